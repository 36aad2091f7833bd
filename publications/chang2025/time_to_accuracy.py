"""Time to accuracy: rounds, seconds and joules until a start has recovered, and what it gains.

The level is the paper's: a share of the highest accuracy that the warm start reaches in a session.
Costs are those of `ebbflow cost` with its defaults, the paper's table of simulation parameters, at
mean rates: rounds times the mean cost of a round, as the paper does it. The paper does not charge
the probe rounds; here both are given.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from chang2025 import reference
from chang2025.collecting import Family, table_families
from chang2025.published_costs import PublishedCost, published
from chang2025.rendering import Grid, Report
from chang2025.studies import study
from chang2025.study_cells import MAIN_ALGORITHMS
from ebbflow.analysis.cost import Errand, RoundCost, round_task
from ebbflow.analysis.metrics import Target, compared, typical_ratio
from ebbflow.analysis.run_costs import estimate, model_size
from ebbflow.config.paper_rows import DATASETS
from ebbflow.config.schema import Wireless
from ebbflow.core import counters
from ebbflow.report.cost_tables import amount
from ebbflow.simulation.methods import algorithm_name

ID = "time-to-accuracy"
TARGETS = {"svhn": 0.97}
"""The paper's share for SVHN; it has 0.95 for TinyImageNet, and so have we for the others."""
USUAL_TARGET = 0.95
MEASURED = ("mnist", "fmnist", "svhn", "agnews")
DRAWS = 20
"""Draws of positions that a round's cost is the mean of."""


class Adaptation(NamedTuple):
    """One start of one algorithm in one setting, means over transitions and seeds.

    ``arrivals`` of ``sessions`` reached the target. ``rounds``, ``cost`` and ``speed_up`` are the
    paper's: training alone; ``probed`` ones charge the probe rounds as well. Times and costs are
    over the sessions that arrived; the speed-up (a geometric mean) is infinite where one did not.
    ``gain`` is the warm start's accumulated gain over this start.
    """

    dataset: str
    family: str
    setting: str
    algorithm: str
    method: str
    target: float
    arrivals: int
    sessions: int
    rounds: float
    cost: RoundCost
    speed_up: float
    probed_rounds: float
    probed_cost: RoundCost
    probed_speed_up: float
    gain: float


def adaptations(family: Family) -> list[Adaptation]:
    """Return how soon every start of a family's algorithms recovers."""
    config = family.config
    target = Target(TARGETS.get(config.dataset, USUAL_TARGET))
    both = compared(
        [r for result in family.results for r in result.rounds()],
        [event for result in family.results for event in result.events()],
        pilot=config.pilot.sessions,
        methods=config.methods,
        reference="warm_start",
    )
    speeds = both.speeds([target])
    gains = {(g.algorithm, g.method): g for g in both.gains() if g.transition is None}
    adapted = []
    for algorithm in config.algorithm:
        for method in config.methods:
            own = [s for s in speeds if (s.algorithm, s.method) == (algorithm, method)]
            (overall,) = (s for s in own if s.transition is None)
            each = [s for s in own if s.transition is not None]
            rounds = [t for s in each for t in s.rounds]
            probed = [t for s in each for t in s.with_probe if math.isfinite(t)]
            there = [t for t in rounds if math.isfinite(t)]
            one = _round(family, algorithm_name(config, method, algorithm))
            gain = gains.get((algorithm, method))
            adapted.append(
                Adaptation(
                    config.dataset,
                    family.name,
                    family.setting,
                    algorithm,
                    method,
                    target.value,
                    len(there),
                    len(rounds),
                    _mean(there),
                    one.times(_mean(there)),
                    typical_ratio(overall.speed_ups),
                    _mean(probed),
                    one.times(_mean(probed)),
                    typical_ratio(overall.speed_ups_with_probe),
                    math.nan if gain is None else fmean(gain.gains),
                )
            )
    return adapted


def _round(family: Family, algorithm: str) -> RoundCost:
    """Return what a round costs, for devices that see as many samples as those of the run did."""
    config = family.config
    work = family.results[0].facts["sessions"][-1]["work"][counters.MAIN]
    samples = work["samples"] / work["uploads"]
    wireless = config.wireless.model_copy(update={"fading": "ergodic"})
    task = round_task(wireless, model_size(config), algorithm=algorithm, steps=samples, batch=1)
    return _estimated(wireless.model_dump_json(), task, work["uploads"] // work["broadcasts"])


@cache
def _estimated(wireless: str, task: Errand, devices: int) -> RoundCost:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the paper's slot, which is a little long
        return estimate(Wireless.model_validate_json(wireless), task, devices, draws=DRAWS).cost


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


def all_adaptations(results: Path, datasets: Sequence[str] = MEASURED) -> list[Adaptation]:
    """Return those of every data set with results."""
    return [
        adaptation
        for dataset in datasets
        for family in table_families(dataset, results)
        for adaptation in adaptations(family)
    ]


def report(results: Path) -> Report:
    """Return the times to accuracy, beside the paper's rows."""
    return reported(all_adaptations(results))


def reported(adapted: Sequence[Adaptation]) -> Report:
    """Return a report of times to accuracy."""
    grids = []
    for dataset in dict.fromkeys(a.dataset for a in adapted):
        own = [a for a in adapted if a.dataset == dataset and a.algorithm in MAIN_ALGORITHMS]
        target = own[0].target if own else USUAL_TARGET
        title = f"{DATASETS[dataset]}, {target:.0%} of the warm start's peak"
        grids.append(Grid(title, *adaptation_table(own), sections=2))
    grids.append(_paper_grid())
    lines = [
        "Means over transitions and seeds that reached the target; the last columns charge the "
        "probe rounds, too.",
        summary_sentence(adapted),
    ]
    rows = [_flat(a) for a in adapted]
    return Report(ID, study(ID).title, lines, grids, rows, {"rows": len(adapted)})


def adaptation_table(adapted: Sequence[Adaptation]) -> tuple[list[str], list[list[str]]]:
    """Return a table with a line for every start."""
    lines, before = [], ("", "")
    for a in adapted:
        here = a.setting, a.algorithm
        lines.append(
            [
                a.setting if a.setting != before[0] else "",
                a.algorithm if here != before else "",
                a.method,
                _rounds(a),
                amount(a.cost.latency, "s") if a.arrivals else "∞",
                amount(a.cost.energy, "J") if a.arrivals else "∞",
                "" if a.method == "warm_start" else times(a.speed_up),
                "" if math.isnan(a.gain) else f"{a.gain:+.1f}",
                f"{a.probed_rounds:.1f}" if a.arrivals else "∞",
                amount(a.probed_cost.latency, "s") if a.arrivals else "∞",
                amount(a.probed_cost.energy, "J") if a.arrivals else "∞",
                "" if a.method == "warm_start" else times(a.probed_speed_up),
            ]
        )
        before = here
    head = ["setting", "algorithm", "start", "rounds", "latency", "energy", "speed-up", "gain"]
    return [*head, "with probe: rounds", "latency", "energy", "speed-up"], lines


def _rounds(a: Adaptation) -> str:
    if not a.arrivals:
        return "∞"
    part = "" if a.arrivals == a.sessions else f" ({a.arrivals} of {a.sessions})"
    return f"{a.rounds:.1f}{part}"


def times(ratio: float) -> str:
    """Return a ratio as text.

    >>> times(5.5), times(math.inf), times(math.nan)
    ('5.5 ×', '∞', '?')
    """
    if math.isnan(ratio):
        return "?"
    return "∞" if math.isinf(ratio) else f"{ratio:.1f} ×"


def _paper_grid() -> Grid:
    gains = [row["accumulated_gain"] for row in reference.table("time_to_accuracy.csv")]
    rows = [_paper_row(row, gain) for row, gain in zip(published(), gains, strict=True)]
    head = ["setting", "algorithm", "start", "target", "rounds", "latency", "energy", "gain"]
    return Grid("The paper's table", head, rows, sections=2)


def _paper_row(row: PublishedCost, gain: str) -> list[str]:
    return [
        f"{DATASETS[row.dataset]}, overlap {row.overlap}, alpha {row.alpha}",
        row.algorithm,
        row.method,
        f"{row.target:.0%}",
        str(row.rounds),
        amount(row.latency, "s"),
        amount(row.energy, "J"),
        f"{float(gain):+.1f}" if gain else "",
    ]


def summary_sentence(adapted: Sequence[Adaptation]) -> str:
    """Return how soon the warm start is there and what the others need, over all that was run."""
    ran = [a for a in adapted if a.algorithm in MAIN_ALGORITHMS]
    warm = [a for a in ran if a.method == "warm_start"]
    if not warm:
        return "Nothing to compare yet."
    parts = []
    for method in dict.fromkeys(a.method for a in ran if a.method != "warm_start"):
        own = [a for a in ran if a.method == method]
        finite = [a for a in own if math.isfinite(a.probed_speed_up) and a.probed_speed_up > 0]
        ratio = typical_ratio([a.probed_speed_up for a in finite]) if finite else math.nan
        plain = typical_ratio([a.speed_up for a in finite]) if finite else math.nan
        late = sum(a.arrivals < a.sessions for a in own)
        part = f"{method} {times(plain)} ({times(ratio)} with the probe charged)"
        if late:
            part += f", which misses the target in some sessions of {late} of {len(own)} settings"
        parts.append(part)
    rounds = fmean(a.rounds for a in warm if a.arrivals)
    return (
        f"`warm_start` reaches the target after {rounds:.1f} rounds on average. Typical speed-ups "
        f"over the others, where all sessions reached the target: {'; '.join(parts)}."
    )


def _flat(a: Adaptation) -> dict[str, Any]:
    content = a._asdict()
    for name in ("cost", "probed_cost"):
        cost: RoundCost = content.pop(name)
        prefix = name.removesuffix("cost")
        content[f"{prefix}latency_s"], content[f"{prefix}energy_j"] = cost.latency, cost.energy
    return content
