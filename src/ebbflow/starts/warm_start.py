"""The paper's dynamic initial model: past models weighted by how alike their sessions are."""

from __future__ import annotations

from ebbflow.core import sketch, vector
from ebbflow.core.signature import DISTANCES, similarity_weights
from ebbflow.core.types import Initialiser, Layout, ModelState, Past, Probe, Session, Start


def warm_start(
    layout: Layout, distance: str = "per_tensor", scale: float = 10.0, sketched: bool = False
) -> Initialiser:
    """Return the initialiser of Algorithm 1.

    G_s = w_grad^(s,V+1) - w_Pilot, and w^(s,1) = sum_z mu_(s,z) w^(z,T+1) over z = P+1..s-1, with
    mu_(s,z) proportional to exp(-R d(G_s, G_z)). At s = P+1 there is nothing to draw on: the
    session is probed, for its signature will be needed, and starts from the carried-over model.

    Args:
        layout: Where the model's tensors lie, for the distance that normalises each of them.
        distance: One of `ebbflow.core.signature.DISTANCES`.
        scale: The paper's R, from 0 (the plain average) to infinity (the nearest model alone).
        sketched: Whether sessions that sketches rule out are left unmeasured. Their weight is then
            zero, where all of them together would have had less than `ebbflow.core.sketch.DROPPED`.
    """
    measure = DISTANCES[distance]
    table = sketch.Table(sketch.plan(layout, distance)) if sketched else None

    def start(session: Session, carried: ModelState, past: Past, probe: Probe) -> Start:
        signature = probe(past.pilot).theta - past.pilot.theta
        known = [entry for entry in past.entries if entry.signed]
        if not known:
            return Start(carried, signature=signature)

        def apart(i: int) -> float:
            other = known[i].signature
            if other is None:
                raise ValueError(f"session {known[i].session} lost its signature")
            return measure(signature, other, layout)

        if table is None:
            distances = {i: apart(i) for i in range(len(known))}
        else:
            bounds = table.lower_bounds(signature, known)
            distances = dict(sorted(sketch.nearest_first(bounds, apart, scale).items()))
        weights = [0.0] * len(known)
        found = similarity_weights(list(distances.values()), scale).tolist()
        for i, weight in zip(distances, found, strict=True):
            weights[i] = weight
        # Only what counts is read, and one model after another: the past may be larger than memory.
        counting = vector.counting(weights)
        return Start(
            vector.mix((known[i].model for i in counting), [weights[i] for i in counting]),
            {entry.session: weight for entry, weight in zip(known, weights, strict=True)},
            {known[i].session: distance for i, distance in distances.items()},
            signature,
        )

    return start
