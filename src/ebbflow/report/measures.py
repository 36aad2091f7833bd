"""How soon, how much better and at what cost: the metrics of a run as tables and as JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ebbflow.analysis import accounting
from ebbflow.analysis.accounting import Account
from ebbflow.analysis.metrics import (
    CONFIDENCE,
    Comparison,
    Gain,
    Paired,
    Speed,
    Target,
    Window,
    compared,
    estimate,
    mean_and_deviation,
    paired_test,
    typical_ratio,
)
from ebbflow.config.merge import Layers
from ebbflow.core import counters
from ebbflow.core.counters import Cost
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records

DEFAULT_REFERENCE = "warm_start"
MIB = 2**20
SESSION = "session\n(trans.)"

Accounts = Mapping[tuple[str, str, int], Account]
Measured = TypeVar("Measured", Speed, Gain, Window)


@dataclass(frozen=True)
class Measures:
    """All metrics of a run; ``seeds`` says how many stand behind each algorithm's numbers."""

    reference: str
    methods: tuple[str, ...]
    pilot: int
    seeds: Mapping[str, list[int]]
    windows: list[Window]
    speeds: list[Speed]
    gains: list[Gain]
    accounts: Accounts


def measure(folder: Path, targets: Sequence[Target], reference: str | None = None) -> Measures:
    """Return the metrics of a run folder, of whose sessions at least one must be finished."""
    records.check_run(folder)
    layers = Layers()
    layers.add_file(folder / records.CONFIG)
    config = layers.config()
    rounds = records.read_rounds(folder)
    if not rounds:
        raise EbbflowError(
            f"{folder} holds no rounds yet: let it run on, or start it by `ebbflow resume {folder}`"
        )
    events = list(records.read_lines(folder / records.EVENTS))
    methods = config.methods
    usual = DEFAULT_REFERENCE if DEFAULT_REFERENCE in methods else methods[0]
    try:
        found = compared(
            rounds,
            events,
            pilot=config.pilot.sessions,
            methods=methods,
            reference=usual if reference is None else reference,
        )
        accounts = accounting.totals(events, carry_over=config.pilot.carry_over)
    except (KeyError, TypeError):
        raise EbbflowError(
            f"{folder / records.EVENTS} is not of this version: {records.RESTORE}"
        ) from None
    return Measures(
        found.reference,
        tuple(methods),
        config.pilot.sessions,
        {algorithm: found.seeds(algorithm) for algorithm in _compared_algorithms(found)},
        found.windows(config.window),
        found.speeds(targets),
        found.gains(),
        accounts,
    )


def _compared_algorithms(found: Comparison) -> list[str]:
    return [algorithm for algorithm in found.algorithms() if found.sessions(algorithm)]


# --- tables --------------------------------------------------------------------------------------


def tables(found: Measures) -> Iterator[Table]:
    """Yield the tables of a run: windows, times to accuracy and gains by algorithm, and costs."""
    for algorithm, seeds in found.seeds.items():
        own = [score for score in found.windows if score.algorithm == algorithm]
        for window in dict.fromkeys(score.window for score in own):
            yield _window_table(found, [score for score in own if score.window == window])
        speeds = [speed for speed in found.speeds if speed.algorithm == algorithm]
        for target in dict.fromkeys(speed.target for speed in speeds):
            yield _speed_table(found, [speed for speed in speeds if speed.target == target])
        gains = [gain for gain in found.gains if gain.algorithm == algorithm]
        if gains:
            yield _gain_table(found, gains, seeds)
    for algorithm in dict.fromkeys(key[0] for key in found.accounts):
        accounts = {key: value for key, value in found.accounts.items() if key[0] == algorithm}
        yield _cost_table(found, algorithm, accounts)
        yield _server_table(found, algorithm, accounts)


def _started(title: str, caption: str, columns: Sequence[str]) -> Table:
    # Narrow: the widest table fits a terminal of eighty columns.
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.title_justify = table.caption_justify = "left"
    for name in columns:
        words = name in (SESSION, "method", "stage")
        table.add_column(name, justify="left" if words else "right", no_wrap=words)
    return table


def _by_transition(rows: Sequence[Measured], table: Table) -> Iterator[tuple[str, Measured]]:
    """Yield the rows with the name of their transition where it changes, and a line between."""
    last: int | None = -1
    for row in rows:
        name = ""
        if row.transition != last:
            if last != -1:
                table.add_section()
            name = "all" if row.transition is None else f"{row.session} ({row.transition})"
        last = row.transition
        yield name, row


def _window_table(found: Measures, rows: Sequence[Window]) -> Table:
    first = rows[0]
    table = _started(
        f"{first.algorithm}, accuracy (%) over the first {first.window} rounds",
        _seeds_note(len(first.accuracies)),
        (SESSION, "method", "accuracy", "interval", f"{found.reference} higher by", "p"),
    )
    ours = {row.transition: row for row in rows if row.method == found.reference}
    for name, row in _by_transition(rows, table):
        reference = ours[row.transition].accuracies
        apart = [us - them for us, them in zip(reference, row.accuracies, strict=True)]
        same = row.method == found.reference
        difference = "" if same else f"{statistics.fmean(apart):+.2f}"
        p = "" if same else _p(paired_test(reference, row.accuracies))
        table.add_row(
            name, row.method, _mean(row.accuracies), _interval(row.accuracies), difference, p
        )
    return table


def _speed_table(found: Measures, rows: Sequence[Speed]) -> Table:
    first = rows[0]
    whose = "" if first.target.of is None else f" of {found.reference}"
    table = _started(
        f"{first.algorithm}, rounds to {first.target}{whose}",
        f"speed-up: how many times sooner {found.reference} is there; with probe: its auxiliary "
        "rounds counted, too; ∞: not reached within the session",
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
                "" if row.method == found.reference else _times(typical_ratio(ratios))
                for ratios in (row.speed_ups, row.speed_ups_with_probe)
            ),
        )
    return table


def _gain_table(found: Measures, rows: Sequence[Gain], seeds: Sequence[int]) -> Table:
    table = _started(
        f"{rows[0].algorithm}, accumulated accuracy gain of {found.reference} over others (points)",
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
"""What devices and server do for each other; the rest of a `Cost` is the server's alone."""


def _cost_table(found: Measures, algorithm: str, accounts: Accounts) -> Table:
    table = _started(
        f"{algorithm}, what is sent and trained",
        f"{_mean_note(accounts)}; every method as if it ran alone; a broadcast counts once, "
        "however many devices hear it",
        ("method", "stage", "uploads", "broad-\ncasts", "steps", "samples", "MiB\nup", "MiB\ndown"),
    )
    for method, own in _by_method(found, accounts):
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


def _server_table(found: Measures, algorithm: str, accounts: Accounts) -> Table:
    table = _started(
        f"{algorithm}, what the server compares, mixes and keeps",
        f"{_mean_note(accounts)}; kept: after the last session, whether or not the method has a "
        "use for it",
        (
            *("method", "distances", "to choose\nwhat to keep", "models\nmixed", "models\nkept"),
            *("of these\nneeded", "signa-\ntures", "MiB"),
        ),
    )
    for method, own in _by_method(found, accounts):
        choosing = _mean_cost(own, counters.RETENTION)["distances"]
        everything = _mean_cost(own, None)
        stored = own[0].stored  # the same under every seed
        models, _ = accounting.needed(method, stored)
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


def _by_method(found: Measures, accounts: Accounts) -> Iterator[tuple[str, list[Account]]]:
    for method in found.methods:
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
    found = estimate(values)
    return "" if math.isnan(found.low) else f"{found.low:{style}} to {found.high:{style}}"


def _times(ratio: float) -> str:
    if math.isnan(ratio):
        return "?"
    return "∞" if math.isinf(ratio) else f"{ratio:.2f} ×"


def _p(test: Paired) -> str:
    return "" if math.isnan(test.p) else f"{test.p:.2g}"


# --- JSON ----------------------------------------------------------------------------------------


def as_json(found: Measures) -> str:
    """Return everything as strict JSON: infinity is the word "inf", what is not known is null."""
    content = {
        "reference": found.reference,
        "confidence": CONFIDENCE,
        "seeds": found.seeds,
        "windows": [_described(row, "accuracies", found) for row in found.windows],
        "time_to_accuracy": [_speed(row) for row in found.speeds],
        "gains": [
            {**_described(row, "gains", found), "per_round": row.per_round} for row in found.gains
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
            for (algorithm, method, seed), account in found.accounts.items()
        ],
    }
    return json.dumps(_plain(content), indent=1, allow_nan=False)


def _described(row: Window | Gain, name: str, found: Measures) -> dict[str, Any]:
    values: list[float] = getattr(row, name)
    if isinstance(row, Gain):
        test = paired_test(values, [0.0] * len(values))
    else:
        ours = next(
            other.accuracies
            for other in found.windows
            if other[:4] == (row.algorithm, found.reference, row.transition, row.session)
            and other.window == row.window
        )
        test = paired_test(ours, values)
    compared_with = row.method == found.reference
    return {
        **row._asdict(),
        "estimate": estimate(values)._asdict(),
        "test": None if compared_with else test._asdict(),
    }


def _speed(row: Speed) -> dict[str, Any]:
    target = {"value": row.target.value, "of": row.target.of}
    return {
        **row._asdict(),
        "target": target,
        "reached": sum(map(math.isfinite, row.rounds)),
        "estimate": estimate(row.rounds)._asdict(),
        "estimate_with_probe": estimate(row.with_probe)._asdict(),
        "speed_up": typical_ratio(row.speed_ups),
        "speed_up_with_probe": typical_ratio(row.speed_ups_with_probe),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
