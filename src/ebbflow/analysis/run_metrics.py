"""All metrics of a run folder: accuracy, time to accuracy, gains, and the work that was counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebbflow.analysis import accounting
from ebbflow.analysis.accounting import Account
from ebbflow.analysis.metrics import (
    REFERENCE,
    Gain,
    Speed,
    Target,
    WindowAccuracy,
    compared,
)
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import JUDGES, Judge, judge_of
from ebbflow.runs import records
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config
from ebbflow.runs.records import Round

Accounts = Mapping[tuple[str, str, int], Account]
"""What each method has cost, by algorithm, method and seed."""


@dataclass(frozen=True)
class RunMetrics:
    """The metrics of a run; ``seeds`` are those that each algorithm's numbers rest on.

    Gains are positive where the reference is better, whatever the measure ``judge`` is.
    """

    reference: str
    methods: tuple[str, ...]
    pilot: int
    seeds: Mapping[str, list[int]]
    windows: list[WindowAccuracy]
    speeds: list[Speed]
    gains: list[Gain]
    accounts: Accounts
    judge: Judge = JUDGES["accuracy"]


def run_metrics(
    folder: Path, targets: Sequence[Target], reference: str | None = None
) -> RunMetrics:
    """Return the metrics of a run folder, in which at least one round must be finished."""
    config = read_config(folder)
    check_complete(folder)
    rounds = records.read_rounds(folder)
    if not rounds:
        raise EbbflowError(
            f"{folder} holds no rounds yet: let it run on, or start it by `ebbflow resume {folder}`"
        )
    try:
        return metrics_of(config, rounds, records.read_events(folder), targets, reference)
    except (KeyError, TypeError):
        raise EbbflowError(
            f"{folder / records.EVENTS} is not of this version: {records.RESTORE}"
        ) from None


def metrics_of(
    config: Config,
    rounds: Iterable[Round],
    events: Sequence[Mapping[str, Any]],
    targets: Sequence[Target],
    reference: str | None = None,
) -> RunMetrics:
    """Return the metrics of a run's rounds and events."""
    judge = judge_of(config.task, config.metrics)
    methods = config.methods
    usual = REFERENCE if REFERENCE in methods else methods[0]
    comparison = compared(
        [r._replace(accuracy=judge.rising(r.accuracy)) for r in rounds],
        events,
        pilot=config.pilot.sessions,
        methods=methods,
        reference=usual if reference is None else reference,
    )
    accounts = accounting.totals(events, carry_over=config.pilot.carry_over)
    return RunMetrics(
        comparison.reference,
        tuple(methods),
        config.pilot.sessions,
        {
            algorithm: comparison.seeds(algorithm)
            for algorithm in comparison.algorithms()
            if comparison.sessions(algorithm)
        },
        [
            window._replace(accuracies=[judge.rising(value) for value in window.accuracies])
            for window in comparison.windows(config.window)
        ],
        comparison.speeds([_rising(target, judge) for target in targets]),
        comparison.gains(),
        accounts,
        judge,
    )


def _rising(target: Target, judge: Judge) -> Target:
    return target if target.of is not None else Target(judge.rising(target.value), None)
