"""The paper's warm start: past models weighted by the similarity of their sessions."""

from __future__ import annotations

from functools import cache
from typing import Literal

from ebbflow.core import sketch, vector
from ebbflow.core.errors import unknown
from ebbflow.core.ranges import Scale
from ebbflow.core.signature import (
    DISTANCES,
    TO_ALL,
    distances_to_all,
    nearly_uniform,
    similarity_weights,
)
from ebbflow.core.stacks import PastModels, Stack, is_long
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.types import Layout


def warm_start(
    distance: str = "per_tensor",
    scale: Scale = 10.0,
    signature: Literal["exact", "sketch"] = "exact",
) -> Start:
    """Return the start of Algorithm 1.

    G_s = w_grad^(s,V+1) - w_Pilot, and w^(s,1) = sum_z mu_(s,z) w^(z,T+1) over z = P+1..s-1, with
    mu_(s,z) proportional to exp(-R d(G_s, G_z)). At s = P+1 there is no past session yet: the
    session is probed, because later ones need its signature, and continues from the carried-over
    model.

    Args:
        distance: One of `ebbflow.core.signature.DISTANCES`.
        scale: The paper's R, from 0 (the plain average) to infinity (the nearest model alone).
        signature: ``exact`` measures the distance to every past session; ``sketch`` first rules out
            sessions by short sketches. Those would weigh less than `ebbflow.core.sketch.DROPPED`
            together, and get the weight zero.
    """
    if distance not in DISTANCES:
        raise unknown(distance, DISTANCES, "distance", "parameters.warm_start.distance")

    @cache
    def sketches(layout: Layout) -> sketch.SketchTable:
        return sketch.SketchTable(sketch.plan(layout, distance))

    @cache
    def forms(layout: Layout) -> Stack:
        form = TO_ALL[distance].form
        return Stack(lambda session: form(session.required_signature, layout))

    models = PastModels()

    def choose(situation: Situation) -> StartingPoint:
        pilot, layout = situation.pilot, situation.layout
        displacement = situation.probe(pilot).theta - pilot.theta
        past = [session for session in situation.past if session.signed]
        if not past:
            return StartingPoint(situation.carried, signature=displacement)

        def measure(i: int) -> float:
            return DISTANCES[distance](displacement, past[i].required_signature, layout)

        numbers = [session.number for session in past]
        if signature == "sketch":
            bounds = sketches(layout).lower_bounds(displacement, past)
            measured = sketch.nearest_first(bounds, measure, scale)
            distances = {numbers[i]: measured[i] for i in sorted(measured)}
        elif is_long(past) and distance in TO_ALL:
            blocks = forms(layout).blocks(past)
            found = distances_to_all(distance, displacement, blocks, layout)
            distances = dict(zip(numbers, found, strict=True))
        else:
            distances = {number: measure(i) for i, number in enumerate(numbers)}
        found = similarity_weights(list(distances.values()), scale).tolist()
        weights = dict(zip(distances, found, strict=True))
        if len(distances) < len(numbers):  # sketches have ruled the others out
            weights = dict.fromkeys(numbers, 0.0) | weights
        each = list(weights.values())
        # Only models with a weight are read, a few at a time: the past may be larger than memory.
        counting = vector.counting(each)
        return StartingPoint(
            models.mixture(past, counting, [each[i] for i in counting]),
            weights,
            distances,
            displacement,
            warnings=_warnings(each, scale, distance),
        )

    return Start(choose, sketch_distance=distance if signature == "sketch" else None)


def _warnings(weights: list[float], scale: float, distance: str) -> tuple[str, ...]:
    # R = 0 asks for the plain average; with any other R the user should know.
    if scale == 0 or not nearly_uniform(weights):
        return ()
    other = (
        "" if distance == "per_tensor" else ' or set parameters.warm_start.distance = "per_tensor"'
    )
    return (
        f"the weights of the {len(weights)} past sessions are nearly uniform, so the warm start is "
        f"close to the plain average: raise parameters.warm_start.scale (R, now {scale:g}){other}",
    )
