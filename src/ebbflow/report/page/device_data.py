"""How devices fare, each on test samples of its own, where they have any."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from ebbflow.analysis.views.run_view import Event, RunView
from ebbflow.report.page.plain import number, numbers, text
from ebbflow.runs.summary import transition

MOST_VALUES = 120_000
"""Scores that the page holds for all distributions together."""
MOST_OF_ONE = 400
"""Scores of one distribution: of more devices, so many quantiles stand for all."""
FEWEST_OF_ONE = 20
MOST_ROWS = 1000
"""Devices in the table, those with the worst scores."""


class DistributionFacts(TypedDict):
    """The scores of the devices of a session under one seed, in order."""

    algorithm: str
    method: str
    seed: int
    session: int
    devices: int
    mean: float | None
    worst: float | None
    spread: float | None
    values: list[float | None]


class DeviceRow(TypedDict):
    """A device: how often it was tested, and its mean score by method."""

    name: str
    times: int
    means: dict[str, float | None]


class DeviceTable(TypedDict):
    """The devices of an algorithm; ``left_out`` counts those that are not in the table."""

    algorithm: str
    left_out: int
    rows: list[DeviceRow]


class DeviceSection(TypedDict):
    """How devices fare; both are empty where test samples have no owners."""

    distributions: list[DistributionFacts]
    tables: list[DeviceTable]


def device_section(view: RunView) -> DeviceSection:
    """Return how devices fare after each session."""
    events = [e for e in view.events if e["event"] == "tested" and e.get("each")]
    most = max(FEWEST_OF_ONE, min(MOST_OF_ONE, MOST_VALUES // max(1, len(events))))
    return DeviceSection(
        distributions=[_distribution(event, most) for event in events],
        tables=[
            table
            for algorithm in view.algorithms
            if (table := _table(view, algorithm, events))["rows"]
        ],
    )


def _distribution(event: Event, most: int) -> DistributionFacts:
    values = sorted(event["each"].values())
    if len(values) > most:
        values = np.quantile(values, np.linspace(0, 1, most)).tolist()
    about: Mapping[str, float] = event.get("devices", {})
    return DistributionFacts(
        algorithm=event["algorithm"],
        method=event["method"],
        seed=event["seed"],
        session=event["session"],
        devices=len(event["each"]),
        mean=number(about.get("mean"), 4),
        worst=number(about.get("worst"), 4),
        spread=number(about.get("spread"), 4),
        values=numbers(values, 4),
    )


def _table(view: RunView, algorithm: str, events: Sequence[Event]) -> DeviceTable:
    """Return the devices' mean scores over seeds and sessions: those with a choice, if any."""
    own = [e for e in events if e["algorithm"] == algorithm]
    pilot = view.config.pilot.sessions
    chosen = [e for e in own if transition(e["session"], pilot) is not None] or own
    scores: dict[str, dict[str, list[float]]] = {}
    for event in chosen:
        for device, score in event["each"].items():
            name = view.device_name(event["seed"], int(device))
            scores.setdefault(name, {}).setdefault(event["method"], []).append(score)
    means = {
        name: {method: statistics.fmean(values) for method, values in by_method.items()}
        for name, by_method in scores.items()
    }
    usual = {name: statistics.fmean(by_method.values()) for name, by_method in means.items()}
    order = sorted(means, key=lambda name: view.judge.rising(usual[name]))
    kept = set(order[:MOST_ROWS])
    return DeviceTable(
        algorithm=algorithm,
        left_out=max(0, len(order) - MOST_ROWS),
        rows=[
            DeviceRow(
                name=text(name),
                times=max(len(values) for values in scores[name].values()),
                means={method: number(mean, 4) for method, mean in by_method.items()},
            )
            for name, by_method in means.items()
            if name in kept
        ],
    )
