"""Where each start came from, and which sessions lie close together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from ebbflow.analysis.views.origins import described, origins
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.signature_map import signature_maps
from ebbflow.report.page.plain import number, numbers, text

MOST_PARTS = 60
"""Parts of a start that are told one by one, the heaviest ones; the rest is summed up."""
OTHERS = "others"


class OriginFacts(TypedDict):
    """What a start was mixed from: weights by part, as in `ebbflow.analysis.views.origins`."""

    algorithm: str
    method: str
    seed: int
    session: int
    parts: dict[str, float | None]


class OriginSection(TypedDict):
    """All starts, and what their parts are in words."""

    words: dict[str, str]
    starts: list[OriginFacts]


class MapFacts(TypedDict):
    """Where each session lies by a method's distances; ``stress`` says how badly it shows them."""

    algorithm: str
    method: str
    seed: int
    sessions: list[int]
    x: list[float | None]
    y: list[float | None]
    stress: float | None


def origin_section(view: RunView) -> OriginSection:
    """Return where every start came from."""
    starts = [
        OriginFacts(
            algorithm=origin.key.algorithm,
            method=origin.key.method,
            seed=origin.key.seed,
            session=origin.key.session,
            parts=_heaviest(origin.parts),
        )
        for origin in origins(view)
    ]
    parts = dict.fromkeys(part for start in starts for part in start["parts"])
    words = {part: text(described(part)) for part in parts if part != OTHERS}
    return OriginSection(words=words | {OTHERS: "all other models together"}, starts=starts)


def _heaviest(parts: Mapping[str, float]) -> dict[str, float | None]:
    kept = sorted(parts, key=lambda part: -abs(parts[part]))[:MOST_PARTS]
    told = {text(part): number(weight, 4) for part, weight in parts.items() if part in kept}
    rest = [weight for part, weight in parts.items() if part not in kept]
    return told | ({OTHERS: number(sum(rest), 4)} if rest else {})


def map_facts(view: RunView) -> list[MapFacts]:
    """Return a map for every algorithm, method and seed that compared sessions."""
    return [
        MapFacts(
            algorithm=found.algorithm,
            method=found.method,
            seed=found.seed,
            sessions=list(found.sessions),
            x=numbers(found.places[:, 0].tolist()),
            y=numbers(found.places[:, 1].tolist()),
            stress=number(found.stress, 3),
        )
        for found in signature_maps(view)
    ]
