"""Who holds which samples in which session: tables, and a picture (needs the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.types import Dataset, Session
from ebbflow.data import datasets
from ebbflow.report.plots import drawing
from ebbflow.simulation.roster import KINDS, build_sessions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS = 24
"""So many rows of a table are shown where not all are asked for."""
ENTRIES = 8
"""So many entries of a row are shown where not all are asked for."""
SMALL = 50
"""So many devices have room for their names and numbers in a picture."""
COLOURS = ("#0072b2", "#d55e00")
"""Devices that first come in an odd session, and in an even one; as in ``plots``."""


class Shares(NamedTuple):
    """The devices of a run in the order of their first session, and what they hold.

    ``counts[i, l]`` is the number of samples with label l on the device ``devices[i]``, and
    ``present[i, s]`` says whether it is here in session s + 1.
    """

    title: str
    devices: tuple[int, ...]
    counts: NDArray[np.int64]
    present: NDArray[np.bool_]

    @property
    def blocks(self) -> list[int]:
        """Return how many devices come first in the same session, for one such session at a time.

        Under ``schedule.kind = "groups"`` these are the two groups that take turns.
        """
        return [len(list(group)) for _, group in groupby(self.present.argmax(axis=1).tolist())]


def shares_of(config: Config, dataset: Dataset | None = None) -> Shares:
    """Return who holds what under the first seed; nothing is trained."""
    kind = config.partition.kind
    if kind not in KINDS:
        raise unknown(kind, KINDS, "partition", "partition.kind")
    if dataset is None:
        limits = config.data
        dataset = datasets.load(
            config.dataset, limit_train=limits.limit_train, limit_test=limits.limit_test
        )
    seed = config.seeds[0]
    title = f"{dataset.name}, {kind}, seed {seed}"
    return shares(title, build_sessions(config, dataset, seed), dataset)


def shares(title: str, sessions: Sequence[Session], dataset: Dataset) -> Shares:
    """Count what the devices of some sessions hold; a device holds the same in all of them."""
    y = dataset.train.y.cpu().numpy()
    first: dict[int, Session] = {}
    for session in sessions:
        for device in session.devices:
            first.setdefault(device, session)
    devices = sorted(first, key=lambda device: (first[device].index, device))
    counts = [
        np.bincount(y[first[device].shards[device]], minlength=dataset.classes)
        for device in devices
    ]
    here = [set(session.devices) for session in sessions]
    present = [[device in those for those in here] for device in devices]
    return Shares(title, tuple(devices), np.array(counts, dtype=np.int64), np.array(present))


# --- tables --------------------------------------------------------------------------------------


def session_table(found: Shares, everything: bool = False) -> Table:
    """Return a table of sessions; those with the same devices have one row."""
    alike: dict[bytes, list[int]] = {}
    for index in range(found.present.shape[1]):
        alike.setdefault(found.present[:, index].tobytes(), []).append(index)
    table = Table(title=found.title, title_justify="left")
    table.add_column("session", overflow="fold")
    table.add_column("devices", justify="right")
    table.add_column("labels", justify="right")
    table.add_column("which", overflow="fold")
    table.add_column("samples", justify="right")
    table.add_column("per device", justify="right")
    rows = list(alike.values())
    shown = rows if everything else rows[:ROWS]
    for same in shown:
        counts = found.counts[found.present[:, same[0]]]
        labels = np.flatnonzero(counts.sum(axis=0)).tolist()
        sizes = counts.sum(axis=1)
        table.add_row(
            ", ".join(str(index + 1) for index in same),
            str(len(counts)),
            str(len(labels)),
            _listed(list(_spans(labels)), everything),
            f"{sizes.sum():,}",
            _between(int(sizes.min()), int(sizes.max())),
        )
    if len(shown) < len(rows):
        table.caption = f"{len(shown)} of {len(rows)} different sessions; --all shows every one"
    return table


def device_table(found: Shares, everything: bool = False) -> Table:
    """Return a table of devices with the labels that they hold, and how often."""
    places = range(len(found.devices)) if everything else _first_of_each(found.blocks)
    table = Table(title="what the devices hold (0-2×9: nine of each)", title_justify="left")
    table.add_column("device", justify="right")
    table.add_column("first here", justify="right")
    table.add_column("samples", justify="right")
    table.add_column("labels", justify="right")
    table.add_column("label × samples", overflow="fold")
    for place in places:
        counts = found.counts[place]
        table.add_row(
            str(found.devices[place]),
            f"session {int(found.present[place].argmax()) + 1}",
            f"{counts.sum():,}",
            str(np.count_nonzero(counts)),
            _listed(list(_runs(counts)), everything),
        )
    if len(places) < len(found.devices):
        table.caption = f"{len(places)} of {len(found.devices)} devices; --all shows every one"
    return table


def _first_of_each(blocks: Sequence[int]) -> list[int]:
    """Return up to ``ROWS`` places, equally many from the beginning of each block."""
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


def _spans(labels: Sequence[int]) -> Iterator[str]:
    """Yield runs of consecutive labels, as in 0-4."""
    for _, run in groupby(enumerate(labels), key=lambda pair: pair[1] - pair[0]):
        members = [label for _, label in run]
        yield _span(members[0], members[-1])


def _runs(counts: NDArray[np.int64]) -> Iterator[str]:
    """Yield runs of consecutive labels with the same number of samples each, as in 0-4×12."""
    for count, run in groupby(range(len(counts)), key=lambda label: int(counts[label])):
        members = list(run)
        if count:
            yield f"{_span(members[0], members[-1])}×{count}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


# --- picture -------------------------------------------------------------------------------------


def check_picture(path: Path) -> None:
    """Refuse a file name that does not say what kind of picture it is."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise EbbflowError(
            f"--picture {path} does not say what kind of picture it is: choose a name that ends in "
            ".png, .pdf or .svg"
        )


def shares_picture(found: Shares, path: Path) -> None:
    """Draw devices by labels, coloured by the number of samples, and who is here when.

    Devices are in the order of their first session, and a line parts those of different ones.
    Beside the labels are the sessions in which a device is here, and its number of samples.
    """
    check_picture(path)
    pyplot = drawing()
    devices, labels = found.counts.shape
    sessions = found.present.shape[1]
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
    _draw_labels(figure, held, found)
    _draw_presence(here, found)
    _draw_sizes(sizes, found)
    for axis in axes:
        for boundary in np.cumsum(found.blocks)[:-1].tolist():
            axis.axhline(boundary - 0.5, color="0.2", linewidth=1.0)
        if devices <= SMALL:
            for boundary in range(1, devices):
                axis.axhline(boundary - 0.5, color="0.88", linewidth=0.5, zorder=1.5)
        axis.tick_params(length=2, labelsize=8)
    places = _device_ticks(found.blocks)
    held.set_yticks(places, [str(found.devices[place]) for place in places], fontsize=7)
    figure.suptitle(f"{found.title}: who holds what", x=0.01, ha="left", fontsize=11)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_labels(figure: Figure, axis: Axes, found: Shares) -> None:
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415 - an extra
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - an extra

    devices, labels = found.counts.shape
    # Even one sample stands out from none, which is white.
    shades = LinearSegmentedColormap.from_list("shades", ["#dedaeb", "#9e9ac8", "#3f007d"])
    top = int(found.counts.max())
    image = axis.imshow(
        np.ma.masked_equal(found.counts, 0), aspect="auto", cmap=shades, vmin=0, vmax=top
    )
    # The number in a cell, where there is room for it.
    if labels <= 24 and devices <= SMALL:
        for place, label in np.argwhere(found.counts).tolist():
            count = int(found.counts[place, label])
            colour = "white" if count > 0.6 * top else "black"
            axis.text(label, place, str(count), fontsize=7, ha="center", va="center", color=colour)
    axis.set_xlabel("label", fontsize=9)
    axis.set_ylabel("device", fontsize=9)
    axis.set_xticks(_ticks(labels, 24))
    bar = figure.colorbar(image, ax=axis, location="top", aspect=40, fraction=0.03, pad=0.01)
    bar.set_label("samples of a label on a device", fontsize=8)
    bar.locator = MaxNLocator(8, integer=True)
    bar.ax.tick_params(labelsize=7, length=2)


def _draw_presence(axis: Axes, found: Shares) -> None:
    from matplotlib.colors import ListedColormap  # noqa: PLC0415 - an extra

    first = found.present.argmax(axis=1)
    shade = np.where(found.present, 1 + first[:, None] % 2, 0)
    axis.imshow(shade, aspect="auto", cmap=ListedColormap(["white", *COLOURS]), vmin=0, vmax=2)
    sessions = found.present.shape[1]
    for boundary in range(1, sessions):
        axis.axvline(boundary - 0.5, color="white", linewidth=1.0)
    places = _ticks(sessions, 16)
    axis.set_xticks(places, [str(place + 1) for place in places])
    axis.set_xlabel("here in session", fontsize=9)


def _draw_sizes(axis: Axes, found: Shares) -> None:
    totals = found.counts.sum(axis=1)
    colours = [COLOURS[first % 2] for first in found.present.argmax(axis=1).tolist()]
    axis.barh(range(len(totals)), totals, height=1.0, color=colours, linewidth=0)
    axis.set_xlim(0, 1.08 * int(totals.max()))
    axis.set_xticks([0, int(totals.max())])
    axis.set_xlabel("samples", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def _device_ticks(blocks: Sequence[int]) -> list[int]:
    """Return the devices to name: all, or some at regular steps from each block's beginning."""
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
    """Return the smallest round step that makes at most so many of a number."""
    power = 1
    while True:
        for nice in (power, 2 * power, 5 * power):
            if number <= nice * most:
                return nice
        power *= 10
