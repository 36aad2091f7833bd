"""Tables and a picture of costs on the air (the picture needs the extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table

from ebbflow.analysis.cost import RoundCost, total
from ebbflow.analysis.metrics import REFERENCE, Target
from ebbflow.analysis.run_costs import Reached, RoundEstimate, SweepPoint, Usage
from ebbflow.report.plots import COLOURS, drawing

Item = TypeVar("Item")

UNITS = {"bandwidth": ("bandwidth (MHz)", 1e-6), "devices": ("devices", 1), "speed": ("m/s", 1)}
"""How the quantity of a sweep is written, and the factor to that unit."""
PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}


def amount(value: float, unit: str) -> str:
    """Return a number with three digits and a unit prefix; whole seconds have no prefix.

    >>> amount(1234.5, "J"), amount(0.0123, "s"), amount(0.9996, "s"), amount(0, "B")
    ('1.23 kJ', '12.3 ms', '1.00 s', '0 B')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    value = float(f"{value:.4g}" if unit == "s" and value >= 100 else f"{value:.3g}")
    if unit == "s" and value >= 1:
        return f"{value:.1f} s" if value >= 10 else f"{value:.2f} s"
    step = _step(value, unit)
    scaled = value / 1000**step
    return f"{scaled:.{max(0, 2 - math.floor(math.log10(abs(scaled))))}f} {PREFIXES[step]}{unit}"


def _step(value: float, unit: str) -> int:
    """Return the power of 1000 that a value is written with."""
    highest = 0 if unit == "s" else 4
    return max(-3, min(highest, math.floor(math.log10(abs(value)) / 3)))


def _grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _mean(costs: Sequence[RoundCost]) -> RoundCost:
    return total(costs).times(1 / len(costs))


# --- a run ---------------------------------------------------------------------------------------


def usage_rows(spent: Sequence[Usage]) -> list[dict[str, Any]]:
    """Return the mean cost of a round, of a session and of a run by algorithm and method.

    Sessions and runs include probe rounds and surveys; ``probe`` and ``survey`` are their parts of
    a session.
    """
    rows = []
    for (algorithm, method), own in _grouped(spent, lambda u: u[:2]).items():
        seeds = len({usage.seed for usage in own})
        rounds = [cost for usage in own for cost in usage.rounds]
        probes = total([usage.probe for usage in own])
        surveys = total([usage.survey for usage in own])
        everything = total([*rounds, probes, surveys])
        rows.append(
            {
                "algorithm": algorithm,
                "method": method,
                "round": _mean(rounds)._asdict(),
                "session": everything.times(1 / len(own))._asdict(),
                "probe": probes.times(1 / len(own))._asdict(),
                "survey": surveys.times(1 / len(own))._asdict(),
                "run": everything.times(1 / seeds)._asdict(),
            }
        )
    return rows


def usage_tables(spent: Sequence[Usage]) -> list[Table]:
    """Return a table for each algorithm: what a round, a session and the run cost by method."""
    tables = []
    parts = {"round": "a round", "session": "a session", "probe": "of which probe"}
    if any(usage.survey != RoundCost() for usage in spent):
        parts |= {"probe": "of which\nprobe", "survey": "of which\nsurvey"}
    parts["run"] = "the run"
    before = "probe rounds and surveys" if "survey" in parts else "the probe rounds"
    for algorithm, rows in _grouped(usage_rows(spent), lambda row: row["algorithm"]).items():
        table = Table(
            title=f"{algorithm}, on the air",
            caption="means over rounds, sessions and seeds; bytes of all devices; "
            f"sessions and run include {before}",
            title_justify="left",
        )
        for head in ("method", "", *parts.values()):
            table.add_column(head, justify="left" if head in ("method", "") else "right")
        for row in rows:
            for number, (what, unit) in enumerate(
                (("latency", "s"), ("energy", "J"), ("down", "B"), ("up", "B"))
            ):
                table.add_row(
                    row["method"] if number == 0 else "",
                    what,
                    *(amount(row[part][what], unit) for part in parts),
                    end_section=number == 3,
                )
        tables.append(table)
    return tables


def target_rows(results: Sequence[Reached]) -> list[dict[str, Any]]:
    """Return the cost of reaching the target by algorithm, session and method.

    These are means over the seeds that reached it: ``training`` alone, ``probed`` with the probe
    rounds, ``surveyed`` with the survey too, ``all`` with the share of the pilot sessions as well;
    None if no seed reached it.
    """
    rows = []
    for (algorithm, session, method), own in _grouped(
        results, lambda r: (r.algorithm, r.session, r.method)
    ).items():
        there = [r for r in own if r.rounds is not None]
        row = {
            "algorithm": algorithm,
            "session": session,
            "transition": own[0].transition,
            "method": method,
            "seeds": len(own),
            "reached": len(there),
            "rounds": sum(r.rounds or 0 for r in there) / len(there) if there else None,
        }
        for name, parts in (
            ("training", ("training",)),
            ("probed", ("training", "probe")),
            ("surveyed", ("training", "probe", "survey")),
            ("all", ("training", "probe", "survey", "pilot")),
        ):
            costs = [total([getattr(r, part) for part in parts]) for r in there]
            row[name] = _mean(costs)._asdict() if costs else None
        rows.append(row)
    return sorted(rows, key=lambda row: (row["algorithm"], row["session"]))


def target_tables(results: Sequence[Reached], target: Target) -> list[Table]:
    """Return a table for each algorithm: rounds, latency, energy and bytes to the target.

    Sessions before the first transition, in which all methods do the same, are left out.
    """
    tables = []
    chosen = [r for r in results if r.transition is not None]
    for algorithm, own in _grouped(chosen, lambda r: r.algorithm).items():
        of = f"{REFERENCE}'s" if any(r.method == REFERENCE for r in own) else "the best method's"
        goal = str(target) if target.of is None else str(target).replace(" of ", f" of {of} ")
        table = Table(
            title=f"{algorithm}, to {goal}",
            caption="means over the seeds that got there (∞: none did); probe, survey and pilot "
            "charged to the methods that use them, the pilot in equal shares to all sessions",
            title_justify="left",
        )
        for head in ("session", "method", "charged", "rounds", "latency", "energy", "bytes"):
            table.add_column(head, justify="left" if head in ("method", "charged") else "right")
        for session, rows in _grouped(target_rows(own), lambda row: row["session"]).items():
            lines = [(row, *line) for row in rows for line in _charges(row)]
            for number, (row, charged, cost) in enumerate(lines):
                first = charged == "training"
                table.add_row(
                    str(session) if number == 0 else "",
                    row["method"] if first else "",
                    charged,
                    _rounds(row) if first else "",
                    *(["∞"] * 3 if cost is None else _amounts(cost)),
                    end_section=number == len(lines) - 1,
                )
        tables.append(table)
    return tables


def _rounds(row: dict[str, Any]) -> str:
    if not row["reached"]:
        return "∞"
    part = "" if row["reached"] == row["seeds"] else f" ({row['reached']} of {row['seeds']})"
    return f"{row['rounds']:.3g}{part}"


def _charges(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, float] | None]]:
    """Yield each charge that adds something, with the sum so far."""
    before = row["training"]
    yield "training", before
    for name, label in (("probed", "+ probe"), ("surveyed", "+ survey"), ("all", "+ pilot")):
        if row[name] != before:
            yield label, row[name]
        before = row[name]


def _amounts(cost: dict[str, float]) -> list[str]:
    moved = cost["down"] + cost["up"]
    return [amount(cost["latency"], "s"), amount(cost["energy"], "J"), amount(moved, "B")]


# --- without a run -------------------------------------------------------------------------------


def estimate_table(estimates: dict[str, RoundEstimate], title: str) -> Table:
    """Return a table of what a round costs, with a column for each treatment of the fading."""
    table = Table("a round", title=title, title_justify="left")
    for name in estimates:
        table.add_column(name, justify="right")
    rows: list[tuple[str, Callable[[RoundEstimate], str]]] = [
        ("latency", lambda e: amount(e.cost.latency, "s")),
        ("  standard error", lambda e: _known(e.error)),
        ("  deviation of a round", lambda e: _known(e.deviation)),
        ("energy", lambda e: amount(e.cost.energy, "J")),
        ("bytes down", lambda e: amount(e.cost.down, "B")),
        ("bytes up", lambda e: amount(e.cost.up, "B")),
        ("mean device: down", lambda e: amount(e.down, "s")),
        ("mean device: computation", lambda e: amount(e.computation, "s")),
        ("mean device: up", lambda e: amount(e.up, "s")),
    ]
    for name, cell in rows:
        table.add_row(name, *(cell(estimate) for estimate in estimates.values()))
    return table


def _known(seconds: float) -> str:
    return "" if math.isnan(seconds) else amount(seconds, "s")


# --- sweeps --------------------------------------------------------------------------------------


def sweep_table(points: Sequence[SweepPoint], variable: str, title: str) -> Table:
    """Return a table of latency and energy for every value of a sweep."""
    label, factor = UNITS[variable]
    methods = list(dict.fromkeys(point.method for point in points))
    table = Table(label, *methods, title=title, title_justify="left")
    for value, own in _grouped(points, lambda p: p.value).items():
        cells = [f"{amount(p.cost.latency, 's')}\n{amount(p.cost.energy, 'J')}" for p in own]
        table.add_row(f"{value * factor:g}", *cells, end_section=True)
    return table


def sweep_picture(points: Sequence[SweepPoint], variable: str, path: Path, title: str) -> None:
    """Draw latency (left) and energy (right) over a sweep, with a line for each method.

    Below are the two cheapest methods alone; the paper's figure shows them in insets.
    """
    pyplot = drawing()
    label, factor = UNITS[variable]
    lines = _grouped(points, lambda p: p.method)
    cheapest = sorted(lines, key=lambda name: lines[name][0].cost.latency)[:2]
    shown = [list(lines), cheapest] if len(lines) > 2 else [list(lines)]
    figure, axes = pyplot.subplots(
        len(shown),
        2,
        figsize=(10, 2 + 2.4 * len(shown)),
        height_ratios=[3, 2][: len(shown)],
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for row, methods in zip(axes, shown, strict=True):
        for axis, (attribute, unit) in zip(row, (("latency", "s"), ("energy", "J")), strict=True):
            largest = max(getattr(p.cost, attribute) for m in methods for p in lines[m])
            step = _step(largest, unit)
            for method in methods:
                axis.plot(
                    [p.value * factor for p in lines[method]],
                    [getattr(p.cost, attribute) / 1000**step for p in lines[method]],
                    label=method,
                    marker="osD^v"[list(lines).index(method) % 5],
                    markersize=4,
                    linewidth=1.5,
                    color=COLOURS.get(method),
                )
            axis.set(ylabel=f"{attribute} ({PREFIXES[step]}{unit})")
            axis.set_ylim(bottom=0)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set(xlabel=label)
    if len(lines) > 1:
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9
        )
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
