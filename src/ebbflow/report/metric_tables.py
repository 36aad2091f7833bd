"""The metrics of a run as tables and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ebbflow.analysis import accounting
from ebbflow.analysis.accounting import Account
from ebbflow.analysis.metrics import (
    CONFIDENCE,
    Gain,
    PairedTest,
    Speed,
    WindowAccuracy,
    interval,
    mean_and_deviation,
    paired_test,
    typical_ratio,
)
from ebbflow.analysis.run_metrics import Accounts, RunMetrics
from ebbflow.core import counters
from ebbflow.core.counters import Cost

MIB = 2**20
SESSION = "session\n(trans.)"

Measured = TypeVar("Measured", Speed, Gain, WindowAccuracy)


# --- tables --------------------------------------------------------------------------------------


def metric_tables(metrics: RunMetrics) -> Iterator[Table]:
    """Yield the tables of a run: windows, times to accuracy and gains by algorithm, and costs."""
    for algorithm, seeds in metrics.seeds.items():
        own = [score for score in metrics.windows if score.algorithm == algorithm]
        for window in dict.fromkeys(score.window for score in own):
            yield _window_table(metrics, [score for score in own if score.window == window])
        speeds = [speed for speed in metrics.speeds if speed.algorithm == algorithm]
        for target in dict.fromkeys(speed.target for speed in speeds):
            yield _speed_table(metrics, [speed for speed in speeds if speed.target == target])
        gains = [gain for gain in metrics.gains if gain.algorithm == algorithm]
        if gains:
            yield _gain_table(metrics, gains, seeds)
    for algorithm in dict.fromkeys(key[0] for key in metrics.accounts):
        accounts = {key: value for key, value in metrics.accounts.items() if key[0] == algorithm}
        yield _cost_table(metrics, algorithm, accounts)
        yield _server_table(metrics, algorithm, accounts)


def _started(title: str, caption: str, columns: Sequence[str]) -> Table:
    # Narrow: the widest table fits a terminal of eighty columns.
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for name in columns:
        words = name in (SESSION, "method", "stage")
        table.add_column(name, justify="left" if words else "right", no_wrap=words)
    return table


def _by_transition(rows: Sequence[Measured], table: Table) -> Iterator[tuple[str, Measured]]:
    """Yield each row with the name of its transition, which is given only where it changes."""
    last: int | None = -1
    for row in rows:
        name = ""
        if row.transition != last:
            if last != -1:
                table.add_section()
            name = "all" if row.transition is None else f"{row.session} ({row.transition})"
        last = row.transition
        yield name, row


def _window_table(metrics: RunMetrics, rows: Sequence[WindowAccuracy]) -> Table:
    first = rows[0]
    better = f"{metrics.reference} {'higher' if metrics.judge.higher else 'lower'} by"
    table = _started(
        f"{first.algorithm}, {metrics.judge.title} over the first {first.window} rounds",
        _seeds_note(len(first.accuracies)),
        (SESSION, "method", metrics.judge.name, "interval", better, "p"),
    )
    ours = {row.transition: row for row in rows if row.method == metrics.reference}
    for name, row in _by_transition(rows, table):
        reference = ours[row.transition].accuracies
        rising = metrics.judge.rising
        apart = [rising(us - them) for us, them in zip(reference, row.accuracies, strict=True)]
        same = row.method == metrics.reference
        difference = "" if same else f"{statistics.fmean(apart):+.2f}"
        p = "" if same else _p(paired_test(reference, row.accuracies))
        table.add_row(
            name, row.method, _mean(row.accuracies), _interval(row.accuracies), difference, p
        )
    return table


def _speed_table(metrics: RunMetrics, rows: Sequence[Speed]) -> Table:
    first = rows[0]
    whose = "" if first.target.of is None else f" of {metrics.reference}"
    asks = any(counters.SURVEY in account.costs for account in metrics.accounts.values())
    survey = ", and a survey as the part of a round's bytes that it moves" if asks else ""
    table = _started(
        f"{first.algorithm}, rounds to {first.target}{whose}",
        f"speed-up: how many times sooner {metrics.reference} is there; with probe: its auxiliary "
        f"rounds counted, too{survey}; ∞: not reached within the session",
        (SESSION, "method", "rounds", "with probe", "reached", "speed-up", "with\nprobe"),
    )
    for name, row in _by_transition(rows, table):
        reached = sum(map(math.isfinite, row.rounds))
        table.add_row(
            name,
            row.method,
            _mean(row.rounds, ".1f"),
            _mean(row.with_probe, ".1f"),
            f"{reached} of {len(row.rounds)}",
            *(
                "" if row.method == metrics.reference else _times(typical_ratio(ratios))
                for ratios in (row.speed_ups, row.speed_ups_with_probe)
            ),
        )
    return table


def _gain_table(metrics: RunMetrics, rows: Sequence[Gain], seeds: Sequence[int]) -> Table:
    points = " (points)" if metrics.judge.percent else ""
    whose = f"accumulated {metrics.judge.name} gain of {metrics.reference} over others{points}"
    table = _started(
        f"{rows[0].algorithm}, {whose}",
        f"a sum over the session's rounds; {_seeds_note(len(seeds))}",
        (SESSION, "method", "gain", "interval", "per\nround", "higher", "p"),
    )
    for name, row in _by_transition(rows, table):
        test = paired_test(row.gains, [0.0] * len(row.gains))
        table.add_row(
            name,
            row.method,
            _mean(row.gains, ".1f", sign=True),
            _interval(row.gains, ".1f"),
            f"{statistics.fmean(row.per_round):+.2f}",
            f"{test.wins} of {test.n}",
            _p(test),
        )
    return table


SENT = ("uploads", "broadcasts", "steps", "samples", "bytes_up", "bytes_down")
"""The counts of a `Cost` that concern devices; of the others, most are the server's alone."""


def _cost_table(metrics: RunMetrics, algorithm: str, accounts: Accounts) -> Table:
    asked = ""
    for method, own in _by_method(metrics, accounts):
        survey = _mean_cost(own, counters.SURVEY)
        if survey["questions"]:
            asked += (
                f"; {method} asks {survey['questions']:,.6g} questions, for which devices pass "
                f"{survey['passes']:,.6g} samples forward"
            )
    table = _started(
        f"{algorithm}, what is sent and trained",
        f"{_mean_note(accounts)}; every method as if it ran alone; a broadcast counts once, "
        f"however many devices hear it{asked}",
        ("method", "stage", "uploads", "broad-\ncasts", "steps", "samples", "MiB\nup", "MiB\ndown"),
    )
    for method, own in _by_method(metrics, accounts):
        table.add_section()
        name = method
        for stage in (*counters.STAGES, None):
            mean = _mean_cost(own, stage)
            if any(mean[key] for key in SENT):
                cells = [f"{mean[key]:,.6g}" for key in SENT[:4]]
                cells += [f"{mean[key] / MIB:,.2f}" for key in SENT[4:]]
                table.add_row(name, stage or "all", *cells)
                name = ""
    return table


def _server_table(metrics: RunMetrics, algorithm: str, accounts: Accounts) -> Table:
    table = _started(
        f"{algorithm}, what the server compares, mixes and keeps",
        f"{_mean_note(accounts)}; kept: after the last session, whether or not the method has a "
        "use for it",
        (
            *("method", "distances", "to choose\nwhat to keep", "models\nmixed", "models\nkept"),
            *("of these\nneeded", "signa-\ntures", "MiB"),
        ),
    )
    for method, own in _by_method(metrics, accounts):
        choosing = _mean_cost(own, counters.RETENTION)["distances"]
        everything = _mean_cost(own, None)
        stored = own[0].stored  # the same under every seed
        models = accounting.needed(method, stored)
        table.add_row(
            method,
            f"{everything['distances'] - choosing:,.6g}",
            f"{choosing:,.6g}",
            f"{everything['mixed']:,.6g}",
            str(stored.models),
            str(models),
            str(stored.signatures),
            f"{stored.bytes / MIB:,.2f}",
        )
    return table


def _by_method(metrics: RunMetrics, accounts: Accounts) -> Iterator[tuple[str, list[Account]]]:
    for method in metrics.methods:
        own = [account for (_, name, _), account in accounts.items() if name == method]
        if own:
            yield method, own


def _mean_cost(accounts: Sequence[Account], stage: str | None) -> dict[str, float]:
    """Return the mean over seeds of one stage's counts, or of all stages'."""
    costs = [asdict(_stage_cost(account, stage)) for account in accounts]
    return {name: statistics.fmean(cost[name] for cost in costs) for name in costs[0]}


def _stage_cost(account: Account, stage: str | None) -> Cost:
    if stage is not None:
        return account.costs.get(stage, Cost())
    return sum(account.costs.values(), start=Cost())


def _mean_note(accounts: Accounts) -> str:
    seeds = len({seed for _, _, seed in accounts})
    return "one seed" if seeds == 1 else f"mean over {seeds} seeds"


def _seeds_note(n: int) -> str:
    if n < 2:
        return "one seed: no deviation, no interval, no test"
    return (
        f"mean ± deviation and {CONFIDENCE:.0%} bootstrap interval over {n} seeds; p: exact paired "
        f"permutation test, which {n} seeds cannot bring below {2.0 ** (1 - n):.2g}"
    )


def _mean(values: Sequence[float], style: str = ".2f", *, sign: bool = False) -> str:
    if math.inf in values:
        return "∞"
    mean, deviation = mean_and_deviation(values)
    text = f"{mean:{'+' if sign else ''}{style}}"
    return text if math.isnan(deviation) else f"{text} ± {deviation:{style}}"


def _interval(values: Sequence[float], style: str = ".2f") -> str:
    around = interval(values)
    return "" if math.isnan(around.low) else f"{around.low:{style}} to {around.high:{style}}"


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "?"
    return "∞" if math.isinf(ratio) else f"{ratio:.2f} ×"


def _p(test: PairedTest) -> str:
    return "" if math.isnan(test.p) else f"{test.p:.2g}"


# --- JSON ----------------------------------------------------------------------------------------


def metrics_record(metrics: RunMetrics) -> dict[str, Any]:
    """Return what ``ebbflow metrics --json`` prints."""
    return {
        "reference": metrics.reference,
        "confidence": CONFIDENCE,
        "seeds": metrics.seeds,
        "windows": [_described(row, "accuracies", metrics) for row in metrics.windows],
        "time_to_accuracy": [_speed(row) for row in metrics.speeds],
        "gains": [
            {**_described(row, "gains", metrics), "per_round": row.per_round}
            for row in metrics.gains
        ],
        "costs": [
            {
                "algorithm": algorithm,
                "method": method,
                "seed": seed,
                "sessions": account.sessions,
                "stages": {stage: asdict(cost) for stage, cost in account.costs.items()},
                "total": asdict(_stage_cost(account, None)),
                "stored": asdict(account.stored),
            }
            for (algorithm, method, seed), account in metrics.accounts.items()
        ],
    }


def _described(row: WindowAccuracy | Gain, name: str, metrics: RunMetrics) -> dict[str, Any]:
    values: list[float] = getattr(row, name)
    if isinstance(row, Gain):
        test = paired_test(values, [0.0] * len(values))
    else:
        ours = next(
            other.accuracies
            for other in metrics.windows
            if other[:4] == (row.algorithm, metrics.reference, row.transition, row.session)
            and other.window == row.window
        )
        test = paired_test(ours, values)
    compared_with = row.method == metrics.reference
    return {
        **row._asdict(),
        "estimate": interval(values)._asdict(),
        "test": None if compared_with else test._asdict(),
    }


def _speed(row: Speed) -> dict[str, Any]:
    target = {"value": row.target.value, "of": row.target.of}
    return {
        **row._asdict(),
        "target": target,
        "reached": sum(map(math.isfinite, row.rounds)),
        "estimate": interval(row.rounds)._asdict(),
        "estimate_with_probe": interval(row.with_probe)._asdict(),
        "speed_up": typical_ratio(row.speed_ups),
        "speed_up_with_probe": typical_ratio(row.speed_ups_with_probe),
    }
