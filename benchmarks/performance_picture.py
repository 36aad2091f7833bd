"""The picture of the performance page (needs the extra ``plot``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results import Measurement, Results, Suite, seconds_text
from ebbflow.report.plots import drawing

# Colours that colour-blind readers can tell apart, also in greyscale.
OURS, PEER, OTHER = "#0072b2", "#d55e00", "#999999"
SMALL = 8
_LABELS = {OURS: "ebbflow", PEER: "other simulators", OTHER: "for comparison"}


def _colour(measurement: Measurement) -> str:
    if measurement.name.startswith("ebbflow"):
        return OURS
    return PEER if measurement.peer else OTHER


def _bars(axis: Any, suite: Suite) -> None:
    """Draw medians as bars from zero, with the fastest and the slowest repeat."""
    rows = [row for row in suite.measurements if row.seconds]
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        axis.barh(place, row.median, color=_colour(row), height=0.7)
        axis.plot([min(row.seconds), max(row.seconds)], [place, place], color="0.2", linewidth=1)
        axis.annotate(
            seconds_text(row.median),
            (max(row.seconds), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
        )
    axis.set_yticks(places, [row.name for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.2 * max(max(row.seconds) for row in rows))
    axis.set_xlabel("seconds" if suite.name == "W3" else "seconds a round", fontsize=SMALL)
    axis.set_title(f"{suite.name}: {suite.title.partition(', ')[0]}", fontsize=9, loc="left")


def _curves(axis: Any, suite: Suite) -> None:
    """Draw the time of a local step and the memory over the number of devices."""
    rows = [row for row in suite.measurements if row.seconds and row.devices and row.steps]
    sizes = [row.devices for row in rows]
    costs = [1e6 * row.median / (row.steps or 1) for row in rows]
    memory = [(row.memory or 0) / 1e6 for row in rows]
    (steps,) = axis.plot(sizes, costs, marker="o", color=OURS, label="a local step")
    axis.set(xscale="log", ylim=(0, 2 * max(costs)))
    axis.set_xlabel("devices in a session", fontsize=SMALL)
    axis.set_ylabel("microseconds", fontsize=SMALL)
    other = axis.twinx()
    (held,) = other.plot(sizes, memory, marker="s", color=PEER, label="anonymous memory")
    other.set_ylim(0, 1.3 * max(*memory, 1))
    other.set_ylabel("megabytes", fontsize=SMALL)
    other.tick_params(labelsize=SMALL)
    other.spines[["top"]].set_visible(False)
    axis.legend(handles=[steps, held], fontsize=SMALL, frameon=False, loc="lower left")
    axis.set_title("scaling: sessions of more devices", fontsize=9, loc="left")


def draw(results: Results, path: Path) -> bool:
    """Draw the times of every workload and the scaling curves; return whether there were any."""
    suites = [
        suite
        for name, suite in sorted(results.suites.items())
        if (name.startswith("W") or name == "scaling")
        and any(row.seconds for row in suite.measurements)
    ]
    if not suites:
        return False
    pyplot = drawing()
    lines = -(-len(suites) // 2)
    figure, axes = pyplot.subplots(
        lines, 2, figsize=(12, 3 * lines), squeeze=False, layout="constrained"
    )
    for axis, suite in zip(axes.flat, suites, strict=False):
        (_curves if suite.name == "scaling" else _bars)(axis, suite)
        axis.tick_params(labelsize=SMALL)
        axis.spines[["top"] if suite.name == "scaling" else ["top", "right"]].set_visible(False)
    for axis in axes.flat[len(suites) :]:
        axis.set_visible(False)
    if any(suite.name != "scaling" for suite in suites):
        patches = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in _LABELS]
        figure.legend(
            patches,
            _LABELS.values(),
            fontsize=SMALL,
            frameon=False,
            loc="outside upper right",
            ncols=3,
        )
    figure.savefig(path, dpi=130, metadata={"Software": None})
    pyplot.close(figure)
    return True
