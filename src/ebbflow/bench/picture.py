"""The picture of the figures (needs the extra ``plot``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ebbflow.bench.results import Results, Suite
from ebbflow.report.plots import drawing

OURS, PEER, OTHER = "#0072b2", "#d55e00", "#999999"


def _bars(axis: Any, suite: Suite) -> None:
    rows = [row for row in suite.rows if row.seconds][::-1]
    colours = [
        OURS if row.name.startswith("ebbflow") else PEER if row.peer else OTHER for row in rows
    ]
    places = range(len(rows))
    medians = [row.median for row in rows]
    axis.barh(places, medians, color=colours, height=0.7)
    for place, row in zip(places, rows, strict=True):
        axis.plot([min(row.seconds), max(row.seconds)], [place, place], color="0.2", linewidth=1)
        axis.annotate(
            f"{row.median:.3g}",
            (max(row.seconds), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.set_yticks(places, [row.name for row in rows], fontsize=8)
    axis.set_xscale("log")
    axis.set_xlim(min(medians) / 2, max(medians) * 3)
    axis.set_xlabel("seconds" if suite.name == "W3" else "seconds a round", fontsize=8)
    axis.set_title(f"{suite.name}: {suite.title.partition(',')[0]}", fontsize=9, loc="left")


def _curves(axis: Any, suite: Suite) -> None:
    rows = [row for row in suite.rows if row.seconds and row.devices and row.steps]
    sizes = [row.devices for row in rows]
    costs = [1e6 * row.median / (row.steps or 1) for row in rows]
    (steps,) = axis.plot(sizes, costs, marker="o", color=OURS, label="a local step (µs)")
    axis.set(xscale="log", ylim=(0, 1.5 * max(costs)))
    axis.set_xlabel("devices in a session", fontsize=8)
    axis.set_ylabel("microseconds", fontsize=8)
    other = axis.twinx()
    memory = [(row.memory or 0) / 1e6 for row in rows]
    (held,) = other.plot(sizes, memory, marker="s", color=PEER, label="anonymous memory (MB)")
    other.set_ylim(0, 1.5 * max(*memory, 1))
    other.set_ylabel("megabytes", fontsize=8)
    other.spines["top"].set_visible(False)
    axis.legend(handles=[steps, held], fontsize=8, frameon=False, loc="lower left")
    axis.set_title("scaling: sessions of more devices", fontsize=9, loc="left")


def draw(results: Results, path: Path) -> bool:
    """Draw the times of every work and the scaling curves; say whether there was anything."""
    suites = [
        suite
        for name, suite in sorted(results.suites.items())
        if (name.startswith("W") or name == "scaling") and any(row.seconds for row in suite.rows)
    ]
    if not suites:
        return False
    pyplot = drawing()
    lines = -(-len(suites) // 2)
    figure, axes = pyplot.subplots(
        lines, 2, figsize=(12, 3.2 * lines), squeeze=False, layout="constrained"
    )
    for axis, suite in zip(axes.flat, suites, strict=False):
        (_curves if suite.name == "scaling" else _bars)(axis, suite)
        axis.tick_params(labelsize=8)
        axis.spines[["top"]].set_visible(False)
    for axis in axes.flat[len(suites) :]:
        axis.set_visible(False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    pyplot.close(figure)
    return True
