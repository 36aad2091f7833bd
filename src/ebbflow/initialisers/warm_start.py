"""The paper's dynamic initial model: past models weighted by how alike their sessions are."""

from __future__ import annotations

from ebbflow.core import vector
from ebbflow.core.signature import DISTANCES, similarity_weights
from ebbflow.core.types import Initialiser, Layout, ModelState, Past, Probe, Session, Start


def warm_start(layout: Layout, distance: str = "per_tensor", scale: float = 10.0) -> Initialiser:
    """Return the initialiser of Algorithm 1.

    G_s = w_grad^(s,V+1) - w_Pilot, and w^(s,1) = sum_z mu_(s,z) w^(z,T+1) over z = P+1..s-1, with
    mu_(s,z) proportional to exp(-R d(G_s, G_z)). At s = P+1 there is nothing to draw on: the
    session is probed, for its signature will be needed, and starts from the carried-over model.

    Args:
        layout: Where the model's tensors lie, for the distance that normalises each of them.
        distance: One of `ebbflow.core.signature.DISTANCES`.
        scale: The paper's R, from 0 (the plain average) to infinity (the nearest model alone).
    """
    measure = DISTANCES[distance]

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        signature = probe(past.pilot).theta - past.pilot.theta
        known = [entry for entry in past.entries if entry.signature is not None]
        if not known:
            return Start(carried, signature=signature)
        distances = [
            measure(signature, e.signature, layout) for e in known if e.signature is not None
        ]
        weights = similarity_weights(distances, scale).tolist()
        sessions = [entry.session for entry in known]
        return Start(
            vector.mix([entry.model for entry in known], weights),
            dict(zip(sessions, weights, strict=True)),
            dict(zip(sessions, distances, strict=True)),
            signature,
        )

    return start
