"""Tables and a picture of who holds which samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable
from ebbflow.report.plots import drawable, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from ebbflow.analysis.holdings import Holdings

ROWS = 24
"""Rows that a table shows unless all are asked for."""
ENTRIES = 8
"""Entries that a row shows unless all are asked for."""
SMALL = 50
"""Devices whose names and numbers fit into a picture."""
DRAWN = 1500
"""Devices that a picture shows; it does not have more lines of pixels."""
BLOCK_COLOURS = ("#0072b2", "#d55e00")
"""For devices that first come in an odd session, and in an even one."""


# --- tables --------------------------------------------------------------------------------------


def session_table(holdings: Holdings, everything: bool = False) -> Table:
    """Return a table of sessions, with one row for sessions that have the same devices."""
    alike: dict[bytes, list[int]] = {}
    for index in range(holdings.present.shape[1]):
        alike.setdefault(holdings.present[:, index].tobytes(), []).append(index)
    table = Table(title=holdings.title, title_justify="left")
    table.add_column("session", overflow="fold")
    table.add_column("devices", justify="right")
    table.add_column("labels", justify="right")
    table.add_column("which", overflow="fold")
    table.add_column("samples", justify="right")
    table.add_column("per device", justify="right")
    rows = list(alike.values())
    shown = rows if everything else rows[:ROWS]
    for same in shown:
        counts = holdings.counts[holdings.present[:, same[0]]]
        labels = np.flatnonzero(counts.sum(axis=0)).tolist()
        sizes = counts.sum(axis=1)
        table.add_row(
            ", ".join(str(index + 1) for index in same),
            str(len(counts)),
            str(len(labels)),
            escape(_listed(list(_spans(labels, holdings)), everything)),
            f"{sizes.sum():,}",
            _between(int(sizes.min()), int(sizes.max())),
        )
    if len(shown) < len(rows):
        table.caption = f"{len(shown)} of {len(rows)} different sessions; --all shows every one"
    return table


def device_table(holdings: Holdings, everything: bool = False) -> Table:
    """Return a table of devices with the labels they hold, and how many samples of each."""
    places = range(len(holdings.devices)) if everything else _first_of_each(holdings.blocks)
    how = "" if holdings.labels else " (0-2×9: nine of each)"
    table = Table(title=f"what the devices hold{how}", title_justify="left")
    table.add_column("device", justify="right")
    table.add_column("first here", justify="right")
    table.add_column("samples", justify="right")
    table.add_column("labels", justify="right")
    table.add_column("label × samples", overflow="fold")
    for place in places:
        counts = holdings.counts[place]
        table.add_row(
            escape(printable(holdings.device_name(place))),
            f"session {int(holdings.present[place].argmax()) + 1}",
            f"{counts.sum():,}",
            str(np.count_nonzero(counts)),
            escape(_listed(list(_runs(counts, holdings)), everything)),
        )
    if len(places) < len(holdings.devices):
        table.caption = f"{len(places)} of {len(holdings.devices)} devices; --all shows every one"
    return table


def _first_of_each(blocks: Sequence[int]) -> list[int]:
    """Return up to ``ROWS`` places, equally many from the start of each block."""
    if sum(blocks) <= ROWS:
        return list(range(sum(blocks)))
    quota = max(1, ROWS // len(blocks))
    places: list[int] = []
    start = 0
    for size in blocks:
        places += range(start, start + min(size, quota))
        start += size
    return places[:ROWS]


def _listed(entries: Sequence[str], everything: bool) -> str:
    if everything or len(entries) <= ENTRIES:
        return ", ".join(entries)
    return f"{', '.join(entries[:ENTRIES])}, ... ({len(entries) - ENTRIES} more)"


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _spans(labels: Sequence[int], holdings: Holdings) -> Iterator[str]:
    """Yield runs of consecutive labels, as in 0-4, or their names."""
    if holdings.labels:
        yield from (printable(holdings.label_name(label)) for label in labels)
        return
    for _, run in groupby(enumerate(labels), key=lambda pair: pair[1] - pair[0]):
        members = [label for _, label in run]
        yield _span(members[0], members[-1])


def _runs(counts: NDArray[np.int64], holdings: Holdings) -> Iterator[str]:
    """Yield runs of consecutive labels with the same number of samples each, as in 0-4×12.

    Labels with names are listed one by one.
    """
    if holdings.labels:
        for label in np.flatnonzero(counts).tolist():
            yield f"{printable(holdings.label_name(label))}×{counts[label]}"
        return
    for count, run in groupby(range(len(counts)), key=lambda label: int(counts[label])):
        members = list(run)
        if count:
            yield f"{_span(members[0], members[-1])}×{count}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def remark_lines(holdings: Holdings) -> list[str]:
    """Return what the user should know about the data and the sessions, a line each."""
    return [f"note: {escape(printable(remark))}" for remark in holdings.remarks]


# --- picture -------------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Refuse a file name whose ending is not that of a picture."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise EbbflowError(
            f"--picture {path} does not say what kind of picture it is: choose a name that ends in "
            ".png, .pdf or .svg"
        )


def partition_picture(holdings: Holdings, path: Path) -> None:
    """Draw the samples of each device by label, and the sessions in which it is present.

    Devices are ordered by their first session, with a line between those of different sessions.
    Beside the labels are the sessions in which a device is present, and its number of samples. Of
    devices that are thinner than a line of pixels, some are drawn, at regular steps.
    """
    check_picture(path)
    pyplot = drawing()
    devices, labels = holdings.counts.shape
    sessions = holdings.present.shape[1]
    wide = min(max(0.42 * labels, 4.5), 11.0)
    narrow = min(max(0.25 * sessions, 1.1), 4.0)
    figure, axes = pyplot.subplots(
        1,
        3,
        figsize=(wide + narrow + 2.8, min(max(0.22 * devices, 1.6), 10.0) + 1.6),
        width_ratios=(wide, narrow, 1.2),
        sharey=True,
        layout="constrained",
    )
    held, here, sizes = axes
    shown = np.arange(devices)[:: -(-devices // DRAWN)]
    _draw_labels(figure, held, holdings, shown)
    _draw_presence(here, holdings, shown)
    _draw_sizes(sizes, holdings, shown)
    for axis in axes:
        _draw_lines(axis, np.cumsum(holdings.blocks)[:-1] - 0.5, "y", color="0.2", linewidth=1.0)
        if devices <= SMALL:
            between = np.arange(1, devices) - 0.5
            _draw_lines(axis, between, "y", color="0.88", linewidth=0.5, zorder=1.5)
        axis.tick_params(length=2, labelsize=8)
    places = _device_ticks(holdings.blocks)
    names = [drawable(holdings.device_name(place)) for place in places]
    held.set_yticks(places, names, fontsize=7)
    figure.suptitle(f"{holdings.title}: who holds what", x=0.01, ha="left", fontsize=11)
    # Nobody reads numbers in a picture of thousands of devices, and it takes less memory.
    figure.savefig(path, dpi=150 if devices <= DRAWN else 80)
    pyplot.close(figure)


def _draw_lines(
    axis: Axes, places: NDArray[np.floating[Any]], across: Literal["x", "y"], **style: Any
) -> None:
    """Draw lines at these places, all as one shape: there may be thousands."""
    from matplotlib.collections import LineCollection  # noqa: PLC0415 - slow to import

    ends = (0.0, 1.0)  # of the axis
    if across == "y":
        segments = [[(end, place) for end in ends] for place in places.tolist()]
        transform = axis.get_yaxis_transform()
    else:
        segments = [[(place, end) for end in ends] for place in places.tolist()]
        transform = axis.get_xaxis_transform()
    style = {"zorder": 2.0, **style}
    axis.add_collection(LineCollection(segments, transform=transform, **style), autolim=False)


def _image(axis: Axes, values: NDArray[Any], devices: int, shades: Colormap, top: int) -> AxesImage:
    """Draw rows of values so that they fill the places of all devices."""
    frame = (-0.5, values.shape[1] - 0.5, devices - 0.5, -0.5)
    return axis.imshow(
        values,
        aspect="auto",
        cmap=shades,
        vmin=0,
        vmax=top,
        extent=frame,
        # Scaling colours, four double numbers for each pixel, takes 70 MB more.
        interpolation="nearest",
        interpolation_stage="data",
    )


def _draw_labels(figure: Figure, axis: Axes, holdings: Holdings, shown: NDArray[np.int64]) -> None:
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415 - slow to import
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - slow to import

    devices, labels = holdings.counts.shape
    # Even one sample stands out from none, which is white.
    shades = LinearSegmentedColormap.from_list("shades", ["#dedaeb", "#9e9ac8", "#3f007d"])
    top = int(holdings.counts.max())
    image = _image(axis, np.ma.masked_equal(holdings.counts[shown], 0), devices, shades, top)
    # The number in a cell, where there is room for it.
    if labels <= 24 and devices <= SMALL:
        for place, label in np.argwhere(holdings.counts).tolist():
            count = int(holdings.counts[place, label])
            colour = "white" if count > 0.6 * top else "black"
            axis.text(label, place, str(count), fontsize=7, ha="center", va="center", color=colour)
    axis.set_xlabel("label", fontsize=9)
    axis.set_ylabel("device", fontsize=9)
    ticks = _ticks(labels, 24)
    upright = max((len(holdings.label_name(label)) for label in ticks), default=0) > 3
    axis.set_xticks(
        ticks,
        [drawable(holdings.label_name(label)) for label in ticks],
        rotation=90 if upright else 0,
    )
    bar = figure.colorbar(image, ax=axis, location="top", aspect=40, fraction=0.03, pad=0.01)
    bar.set_label("samples of a label on a device", fontsize=8)
    bar.locator = MaxNLocator(8, integer=True)
    bar.ax.tick_params(labelsize=7, length=2)


def _draw_presence(axis: Axes, holdings: Holdings, shown: NDArray[np.int64]) -> None:
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - slow to import

    devices, sessions = holdings.present.shape
    present = holdings.present[shown]
    odd_or_even = (present.argmax(axis=1) % 2).astype(np.uint8)
    shade = np.where(present, 1 + odd_or_even[:, None], np.uint8(0))
    _image(axis, shade, devices, ListedColormap(["white", *BLOCK_COLOURS]), 2)
    _draw_lines(axis, np.arange(1, sessions) - 0.5, "x", color="white", linewidth=1.0)
    places = _ticks(sessions, 16)
    axis.set_xticks(places, [str(place + 1) for place in places])
    axis.set_xlabel("here in session", fontsize=9)


def _draw_sizes(axis: Axes, holdings: Holdings, shown: NDArray[np.int64]) -> None:
    totals = holdings.counts[shown].sum(axis=1)
    blocks = holdings.present[shown].argmax(axis=1) % 2
    sides = np.repeat(np.append(shown, len(holdings.devices)) - 0.5, 2)[1:-1]
    for block, colour in enumerate(BLOCK_COLOURS):
        # One shape for all bars of a colour: there may be thousands.
        held = np.repeat(np.where(blocks == block, totals, 0), 2)
        axis.fill_betweenx(sides, 0, held, color=colour, linewidth=0)
    axis.set_xlim(0, 1.08 * int(totals.max()))
    axis.set_xticks([0, int(totals.max())])
    axis.set_xlabel("samples", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _device_ticks(blocks: Sequence[int]) -> list[int]:
    """Return the devices to name: all, or some at regular steps from the start of each block."""
    total = sum(blocks)
    gap = _step(total, SMALL)
    starts = [0]
    for start in accumulate(blocks[:-1]):
        if start - starts[-1] >= gap:
            starts.append(start)
    places: list[int] = []
    for start, end in pairwise([*starts, total + gap]):
        places += [place for place in range(start, min(end, total), gap) if end - place >= gap]
    return places


def _ticks(number: int, most: int) -> list[int]:
    return list(range(0, number, _step(number, most)))


def _step(number: int, most: int) -> int:
    """Return the smallest of 1, 2, 5, 10, ... that cuts a number into at most ``most`` steps."""
    power = 1
    while True:
        for nice in (power, 2 * power, 5 * power):
            if number <= nice * most:
                return nice
        power *= 10
