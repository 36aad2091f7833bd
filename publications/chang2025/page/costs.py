"""The page's sections on what it takes: time to accuracy, costs, resources, the bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from chang2025 import figures, resource_tables, time_to_accuracy
from chang2025.page.pieces import folded, plain, titled
from chang2025.studies import STUDIES
from chang2025.time_to_accuracy import Adaptation
from ebbflow.config.paper_rows import DATASETS
from ebbflow.config.schema import Wireless


def time(adapted: Sequence[Adaptation]) -> Iterator[str]:
    """Yield how soon each start recovers, and at what cost."""
    report = time_to_accuracy.reported(adapted)
    yield "## Time to accuracy\n"
    yield "\n\n".join(report.lines) + "\n"
    yield (
        "Latency and energy are rounds times the mean cost of a round, by [costs.md](costs.md) "
        "with its defaults (the paper's table of simulation parameters, "
        f"{Wireless().bandwidth / 1e6:g} MHz shared equally); "
        "the paper's own latencies come out with `--preset fitted`. The pilot session is not "
        "charged here: that page shows how much this changes. A gain is a sum of points over a "
        "session's rounds.\n"
    )
    for grid in report.grids:
        yield from folded(grid.title, grid)
    for dataset in time_to_accuracy.MEASURED:
        if not any(row["dataset"] == dataset for row in report.rows):
            yield f"Not run: {DATASETS[dataset]}.\n"


def costs(results: Path, pictures: str) -> Iterator[str]:
    """Yield what a run counts beside the paper's formulas, and costs over the bandwidth."""
    yield "## Costs\n"
    for report in (resource_tables.cost_analysis(results), resource_tables.simulation_parameters()):
        yield f"### {report.title}\n"
        yield "\n\n".join(report.lines) + "\n"
        for grid in report.grids:
            yield from plain(grid)
    yield f"### {STUDIES['bandwidth'].title}\n"
    label, rounds = figures.svhn_rounds(results)
    counts = ", ".join(f"{method} {count:.3g}" for method, count in rounds.items())
    yield f"Rounds to the target, {label}: {counts}.\n"
    yield f"![Latency and energy over the bandwidth]({pictures}/bandwidth.png)\n"


def resources(results: Path) -> Iterator[str]:
    """Yield processor time and memory beside the paper's."""
    yield "## Resources\n"
    for name in ("resources-100", "resources-20"):
        report = resource_tables.resources(name, results)
        yield f"### {report.title}\n"
        if not report.rows:
            yield f"Not run: `python -m chang2025 run {name}`.\n"
            continue
        for grid in report.grids:
            yield from folded(f"{len(grid.rows)} rows", grid)


def bound(results: Path) -> Iterator[str]:
    """Yield Theorem 1's bound beside what runs measured."""
    report = resource_tables.bound(results)
    yield "## The bound\n"
    if not report.grids:
        yield "Not run: `python -m chang2025 run bound`.\n"
        return
    yield "\n\n".join(report.lines) + "\n"
    for grid in report.grids:
        yield from titled(grid)
