"""Charged: when each start is good enough, and how good it is on average, with its bill added.

The paper's start pays for its probe, the learned one for its survey. Time is measured in rounds,
seconds and joules: a probe or survey counts as so many rounds as it moves rounds' worth of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, get_args

from chang2025.cells import Cell, DataSplit, make_cell
from ebbflow import experiment
from ebbflow.analysis.cost import RoundCost
from ebbflow.analysis.metrics import REFERENCE, Target, time_to_accuracy
from ebbflow.analysis.run_costs import Usage, model_size, usages
from ebbflow.config.resolved import Config
from ebbflow.core.files import sha256
from ebbflow.runs.records import read_json, write_json
from ebbflow.starts import STARTS
from learned_start.rules import LEARNED

METHODS = (LEARNED, "warm_start", "previous", "average")
TARGET = Target(0.95)
"""A share of the paper's start's peak in the same session, as in the paper."""
Downlink = Literal["unicast", "multicast"]
Axis = Literal["rounds", "seconds", "joules"]
AXES: tuple[Axis, ...] = get_args(Axis)


class ChargedRow(NamedTuple):
    """One start in one session.

    Attributes:
        bill: What its probe or survey takes, along each axis.
        needed: What it takes to reach the target, bill included; None where it is not reached.
        mean: The mean accuracy while the rounds of a session without a bill last. Accuracy counts
            from the end of the first round on; before that it is zero.
    """

    setting: str
    downlink: Downlink
    seed: int
    session: int
    method: str
    bill: dict[Axis, float]
    needed: dict[Axis, float] | None
    mean: dict[Axis, float]


def cells(seeds: Sequence[int]) -> Iterator[Cell]:
    """Return the paper's settings on MNIST and Fashion-MNIST under FedAvg, and Two-Shard."""
    for seed, dataset in product(seeds, ("mnist", "fmnist")):
        splits = [DataSplit(dataset, overlap=overlap, alpha=0.3) for overlap in (0.0, 0.2)]
        for split in (*splits, DataSplit(dataset, kind="two_shard")):
            yield make_cell(split, ["fedavg"], seed).with_settings({"methods": list(METHODS)})


def charged_digest(cell: Cell) -> str:
    """Return the digest of what a cell's rows depend on."""
    about = (cell.digest, METHODS, TARGET, sorted(STARTS[LEARNED].defaults.items()))
    return sha256(repr(about).encode())[:16]


def charged(cell: Cell) -> list[ChargedRow]:
    """Run a cell and return its rows for either downlink."""
    records = experiment.run(cell.config)
    rows: list[ChargedRow] = []
    for downlink in get_args(Downlink):
        config = cell.with_settings({"wireless.downlink": downlink}).config
        spent = usages(config, model_size(config), records.rounds, records.events)
        rows += _rows(cell, config, downlink, spent)
    return rows


def _rows(
    cell: Cell, config: Config, downlink: Downlink, spent: Sequence[Usage]
) -> Iterator[ChargedRow]:
    peaks = {usage.session: usage.accuracies for usage in spent if usage.method == REFERENCE}
    for usage in spent:
        if usage.session <= config.pilot.sessions + 2:  # where there is no choice yet
            continue
        goal = TARGET.level(peaks[usage.session])
        first = time_to_accuracy(usage.accuracies, goal)
        lengths, bill = _lengths(usage), _bill(usage)
        needed = None
        if math.isfinite(first):
            needed = {axis: bill[axis] + math.fsum(lengths[axis][: int(first)]) for axis in AXES}
        mean = {axis: mean_within(usage.accuracies, lengths[axis], bill[axis]) for axis in AXES}
        yield ChargedRow(
            cell.family, downlink, usage.seed, usage.session, usage.method, bill, needed, mean
        )


def _lengths(usage: Usage) -> dict[Axis, list[float]]:
    """Return how long each round is along each axis."""
    return {
        "rounds": [1.0 for _ in usage.rounds],
        "seconds": [cost.latency for cost in usage.rounds],
        "joules": [cost.energy for cost in usage.rounds],
    }


def _bill(usage: Usage) -> dict[Axis, float]:
    """Return how long the probe and the survey are along each axis."""
    extra = [usage.probe, usage.survey]
    a_round = fmean(_bytes(cost) for cost in usage.rounds)
    return {
        "rounds": math.fsum(_bytes(cost) for cost in extra) / a_round,
        "seconds": math.fsum(cost.latency for cost in extra),
        "joules": math.fsum(cost.energy for cost in extra),
    }


def _bytes(cost: RoundCost) -> float:
    return cost.down + cost.up


def mean_within(
    accuracies: Sequence[float],
    lengths: Sequence[float],
    bill: float = 0.0,
    budget: float | None = None,
) -> float:
    """Return the mean accuracy over a budget, by default what all rounds take without a bill.

    >>> mean_within([80.0, 90.0], [1.0, 1.0], 0.0)
    40.0
    >>> mean_within([80.0, 90.0], [1.0, 1.0], 0.5)
    20.0
    """
    budget = math.fsum(lengths) if budget is None else budget
    ends = [bill + math.fsum(lengths[: t + 1]) for t in range(len(lengths))]
    area = 0.0
    for accuracy, begin, end in zip(accuracies, ends, [*ends[1:], math.inf], strict=True):
        area += accuracy * max(0.0, min(end, budget) - min(begin, budget))
    return area / budget


# --- keeping -------------------------------------------------------------------------------------

FILE = "charged.json"


def run_charged(seeds: Sequence[int], results: Path, say: Callable[[str], None] = print) -> None:
    """Run what is missing, and keep it."""
    results.mkdir(parents=True, exist_ok=True)
    path = results / FILE
    kept: dict[str, Any] = read_json(path) if path.is_file() else {}
    for cell in cells(seeds):
        digest = charged_digest(cell)
        if kept.get(cell.name, {}).get("digest") != digest:
            rows = [_rounded(row._asdict()) for row in charged(cell)]
            kept[cell.name] = {"digest": digest, "rows": rows}
            write_json(path, kept)
            say(cell.name)


def read_charged(seeds: Sequence[int], results: Path) -> list[ChargedRow]:
    """Return what has been kept and was made as it is defined today."""
    path = results / FILE
    kept = read_json(path) if path.is_file() else {}
    return [
        ChargedRow(**row)
        for cell in cells(seeds)
        if kept.get(cell.name, {}).get("digest") == charged_digest(cell)
        for row in kept[cell.name]["rows"]
    ]


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
