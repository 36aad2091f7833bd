"""A trace in words, the table of its sessions, and a picture of who was there when."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from ebbflow.data.traces.durations import UNITS, about
from ebbflow.data.traces.trace_files import Trace
from ebbflow.report.partition_report import check_picture
from ebbflow.report.plots import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ebbflow.analysis.traces import Stays, TraceCut, TraceFacts

ROWS = 24
"""Sessions that the table shows unless all are asked for."""
PLACES = 5
"""Places of an oddity that are named."""
NAMED = 40
"""Devices whose names fit into a picture."""
DRAWN = 1500
"""Devices that a picture shows; it does not have more lines of pixels."""
LINES = 400
"""Boundaries of sessions that a picture shows; more would hide everything else."""
COLOUR = "#0072b2"


def moment(trace: Trace, time: float, pattern: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time as a date if it is one, and as a number if not."""
    if trace.dated and trace.unit is not None:
        try:
            stamp = datetime.fromtimestamp(time * trace.unit, tz=UTC)
        except (OverflowError, ValueError, OSError):  # before the year 1 or after 9999
            return f"{time:g}"
        return stamp.strftime(pattern)
    return f"{time:g}"


def length(trace: Trace, time: float | None) -> str:
    """Return a length of time with its unit, if that is known."""
    if time is None:
        return "-"
    return f"{time:.4g}" if trace.unit is None else about(time * trace.unit)


def fact_lines(trace: Trace, facts: TraceFacts) -> Iterator[str]:
    """Yield the facts of a trace, a line each."""
    first, last = moment(trace, facts.first), moment(trace, facts.last)
    zone = " UTC" if trace.dated else ""
    yield f"devices   {facts.devices:,}"
    yield f"events    {facts.events:,} joins and leaves"
    yield f"time      {first} to {last}{zone} ({length(trace, facts.last - facts.first)})"
    yield f"stay      {length(trace, facts.median_stay)} in the median"
    yield f"absence   {length(trace, facts.median_absence)} in the median"
    yield f"present   {facts.present:.1f} on average, {facts.least:,} to {facts.most:,}"


def oddity_lines(trace: Trace, stops: bool) -> Iterator[str]:
    """Yield what is odd about a trace; ``stops`` says whether a run would stop at it."""
    if not trace.oddities:
        yield "odd       nothing"
    for oddity in trace.oddities:
        yield f"odd       {oddity.sentence}"
        if (count := len(oddity.places)) > 1:
            more = f" and {count - PLACES:,} more" if count > PLACES else ""
            yield f"          at {'; '.join(oddity.places[:PLACES])}{more}"
    if trace.oddities and stops:
        yield '          a run stops at the first of these, unless schedule.odd = "mend"'


def trace_session_table(trace: Trace, cut: TraceCut, everything: bool = False) -> Table:
    """Return a table of the sessions that a trace would be cut into."""
    title = f"{cut.total:,} session{'s' * (cut.total != 1)}"
    # Without frames nine columns fit into a terminal of eighty characters.
    table = Table(
        title=title, title_justify="left", caption_justify="left", box=None, padding=(0, 1)
    )
    table.add_column("no.", justify="right")
    table.add_column("start")
    for name in ("length", "devices", "joined", "left", "back", "common", "most alike"):
        table.add_column(name, justify="right")
    shown = cut.sessions if everything else cut.sessions[:ROWS]
    short = any(each.length * (trace.unit or 1.0) < 60 for each in shown)
    pattern = "%m-%d %H:%M:%S" if short else "%Y-%m-%d %H:%M"
    for each in shown:
        similar = "-" if each.nearest is None else f"{each.nearest:.0%} ({each.nearest_session})"
        table.add_row(
            str(each.session),
            moment(trace, each.start, pattern),
            length(trace, each.length),
            f"{each.devices:,}",
            f"{each.joined:,}",
            f"{each.left:,}",
            f"{each.back:,}",
            "-" if each.common is None else f"{each.common:.0%}",
            similar,
        )
    notes = ["common: with the session before; most alike: which earlier one"]
    if len(shown) < cut.total:
        hint = "" if everything else "; --all shows more"
        notes.append(f"the first {len(shown):,} of {cut.total:,} sessions{hint}")
    table.caption = "\n".join(notes)
    return table


# --- picture -------------------------------------------------------------------------------------


def trace_picture(
    trace: Trace, names: list[str], stays: Stays, cut: TraceCut | None, path: Path
) -> None:
    """Draw a row for each device with a bar for each stay, and a line where a session begins.

    Of devices that are thinner than a line of pixels, some are drawn, at regular steps.
    """
    check_picture(path)
    pyplot = drawing()
    step = -(-len(names) // DRAWN)
    rows = -(-len(names) // step)
    height = min(max(0.2 * rows, 1.6), 10.0) + 1.2
    figure, axis = pyplot.subplots(figsize=(11, height), layout="constrained")
    scale, label = _time_axis(trace)
    _draw_stays(axis, stays, step, scale)
    told = f"{len(names):,} devices" if step == 1 else f"{rows:,} of {len(names):,} devices"
    if cut is not None:
        told += f", {cut.total:,} sessions"
        if cut.total > LINES:
            told += ", too many to draw"
        else:
            _draw_starts(axis, [start * scale for start in cut.starts])
    first, last = trace.events[0].time * scale, trace.events[-1].time * scale
    room = 0.01 * (last - first) or 0.5
    axis.set(xlim=(first - room, last + room), ylim=(len(names) - 0.4, -0.6))
    axis.set(xlabel=label, ylabel="device")
    if trace.dated:
        axis.xaxis_date(tz=UTC)
    if len(names) <= NAMED:
        axis.set_yticks(range(len(names)), [_label(name) for name in names], fontsize=7)
    axis.set_title(f"who was there when: {told}", loc="left", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _time_axis(trace: Trace) -> tuple[float, str]:
    """Return what times are multiplied by in a picture, and what the axis then shows."""
    if trace.unit is None:
        return 1.0, "time"
    if trace.dated:
        return trace.unit / 86_400, "time (UTC)"  # dates count days
    seconds = (trace.events[-1].time - trace.events[0].time) * trace.unit
    for name, size in UNITS.items():
        if seconds >= 2 * size:
            return trace.unit / float(size), f"time ({name})"
    return trace.unit, "time (s)"


def _draw_starts(axis: Axes, starts: list[float]) -> None:
    """Draw a line where each session begins; many lines are thin ones."""
    for start in starts:
        axis.axvline(start, color="0.25", linewidth=min(0.8, 30 / len(starts)), zorder=2)


def _draw_stays(axis: Axes, stays: Stays, step: int, scale: float) -> None:
    """Draw all bars as one shape: there may be hundreds of thousands."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415 - slow to import

    drawn = stays.devices % step == 0
    left, right = stays.starts[drawn] * scale, stays.ends[drawn] * scale
    middle = stays.devices[drawn]
    top, bottom = middle - 0.4 * step, middle + 0.4 * step
    corners = np.stack(
        [
            np.stack([left, top], axis=1),
            np.stack([right, top], axis=1),
            np.stack([right, bottom], axis=1),
            np.stack([left, bottom], axis=1),
        ],
        axis=1,
    )
    # A thin edge keeps stays visible that are shorter than a pixel.
    bars = PolyCollection(list(corners), facecolors=COLOUR, edgecolors=COLOUR, linewidths=0.2)
    axis.add_collection(bars, autolim=False)


def _label(name: str) -> str:
    """Return a device's name, cut short; a dollar sign would begin a formula."""
    short = name if len(name) <= 20 else f"{name[:18]}..."
    return "".join(c if c.isprintable() else "?" for c in short).replace("$", r"\$")
