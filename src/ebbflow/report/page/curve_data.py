"""The curves of a run: the judge's measure and the loss, round by round."""

from __future__ import annotations

from typing import TypedDict

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.page.plain import number, numbers
from ebbflow.runs.records import Round
from ebbflow.runs.summary import Key


class CurveFacts(TypedDict):
    """What one method achieved in one session under one seed.

    ``rounds`` is how many rounds the session is to have, and ``start`` the value before the first.
    The page tells by equal values and losses that methods have done the same so far.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    rounds: int
    start: float | None
    accuracy: list[float | None]
    loss: list[float | None]


def curve_facts(view: RunView) -> list[CurveFacts]:
    """Return every curve, in the order of the settings."""
    by_key: dict[Key, list[Round]] = {}
    for r in view.rounds:
        by_key.setdefault(Key(r.algorithm, r.method, r.seed, r.session), []).append(r)
    # A session that has begun may have no round yet.
    for key in view.starts:
        by_key.setdefault(key, [])
    order = {name: place for place, name in enumerate(view.config.methods)}
    found: list[CurveFacts] = []
    for key in sorted(by_key, key=lambda k: (k.algorithm, k.session, order[k.method], k.seed)):
        curve = sorted(by_key[key], key=lambda r: r.round)
        event = view.starts.get(key, {})
        found.append(
            CurveFacts(
                algorithm=key.algorithm,
                method=key.method,
                seed=key.seed,
                session=key.session,
                rounds=max(event.get("rounds", 0), len(curve)),
                start=number(event.get("accuracy")),
                accuracy=numbers(r.accuracy for r in curve),
                loss=numbers((r.loss for r in curve), 6),
            )
        )
    return found
