"""The paper's two illustrations, drawn: the system model, and Algorithm 1 with S = 4 and P = 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ebbflow.report.plots import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT = "#333333", "#999999"
GROUPS = ("#0072b2", "#d55e00", "#009e73")
"""Colours of devices whose data are alike."""
STAGES = {
    "pilot": "#dddddd",
    "probe": "#f0e442",
    "start": "#cc79a7",
    "main": "#9ecae1",
}


def _blank(axis: Axes, width: float, height: float) -> None:
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.set_aspect("equal")
    axis.axis("off")


def _box(axis: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415 - slow to import

    axis.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=colour,
            edgecolor=INK,
            linewidth=0.8,
        )
    )


def _text(axis: Axes, x: float, y: float, text: str, size: float = 8, colour: str = INK) -> None:
    axis.text(x, y, text, ha="center", va="center", fontsize=size, color=colour)


def _arrow(
    axis: Axes, start: tuple[float, float], end: tuple[float, float], style: str = "->"
) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": style, "color": INK, "linewidth": 0.9})


# --- the system model ----------------------------------------------------------------------------


def _cell(axis: Axes, x: float, title: str, goal: str, present: Sequence[int]) -> None:
    """Draw a server with the devices that are here; others are hollow, at the same place."""
    _text(axis, x, 5.6, title, 9)
    _box(axis, x - 0.8, 4.3, 1.6, 0.7, "#eeeeee")
    _text(axis, x, 4.65, "server")
    for device in range(6):
        across = x - 1.5 + 0.6 * device
        here = device in present
        colour = GROUPS[device // 2]
        face = colour if here else "none"
        edge = colour if here else FAINT
        axis.plot([across], [2.6], "o", markersize=11, mfc=face, mec=edge, mew=1.2)
        _text(axis, across, 2.05, str(device + 1), 7, INK if here else FAINT)
        if here:
            _arrow(axis, (across, 2.85), (x + 0.25 * (across - x), 4.25), "<->")
    _text(axis, x, 1.2, goal, 8)


def system_model(path: Path) -> None:
    """Draw one session with a fixed set of devices beside sessions whose devices come and go."""
    pyplot = drawing()
    figure, axis = pyplot.subplots(figsize=(12, 4.2), layout="constrained")
    _blank(axis, 19.2, 6.8)
    everyone = range(6)
    _text(axis, 2.3, 6.4, "traditional federated learning", 10)
    _cell(axis, 2.3, "one session", "minimise F over devices 1-6", everyone)
    axis.plot([4.7, 4.7], [0.5, 6.6], color=FAINT, linewidth=1, linestyle="--")
    _text(axis, 12, 6.4, "devices arrive and depart: the goal changes with every session", 10)
    for place, present in enumerate(((0, 1, 2, 3), (2, 3, 4, 5), (0, 1, 4))):
        number = place + 1
        names = ", ".join(str(device + 1) for device in present)
        goal = f"minimise F$^{{({number})}}$ over devices {names}"
        _cell(axis, 7.2 + 4.8 * place, f"session {number}", goal, present)
        if place:
            _arrow(axis, (4.5 + 4.8 * place, 4.65), (5.3 + 4.8 * place, 4.65))
            _text(axis, 4.9 + 4.8 * place, 4.95, f"w$^{{({place},T+1)}}$", 7)
    _text(
        axis, 9.6, 0.45, "filled: present; hollow: away; devices of one colour hold alike data", 8
    )
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


# --- Algorithm 1 ---------------------------------------------------------------------------------


def algorithm_illustration(path: Path) -> None:
    """Draw the stages of four sessions, the first of which is the pilot, and what is kept."""
    pyplot = drawing()
    figure, axis = pyplot.subplots(figsize=(13, 5.6), layout="constrained")
    _blank(axis, 20.4, 8.8)
    _text(axis, 10.2, 8.4, "Algorithm 1 with S = 4 sessions, of which P = 1 is the pilot", 11)
    _session(axis, 1)
    for number in (2, 3, 4):
        _session(axis, number)
    _kept(axis)
    _legend(axis)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _left(number: int) -> float:
    return 0.4 + 5.0 * (number - 1)


def _session(axis: Axes, number: int) -> None:
    x = _left(number)
    axis.plot([x - 0.2, x - 0.2], [0.9, 7.9], color=FAINT, linewidth=0.8, linestyle=":")
    _text(axis, x + 2.2, 7.7, f"session {number}", 10)
    if number == 1:
        _box(axis, x, 5.2, 4.4, 1.0, STAGES["pilot"])
        _text(axis, x + 2.2, 5.7, "pilot preparation: T rounds")
        _arrow(axis, (x + 2.2, 5.2), (x + 2.2, 4.6))
        _text(axis, x + 2.2, 4.3, "w$_{Pilot}$ = w$^{(1,T+1)}$", 9)
        return
    _box(axis, x, 6.3, 1.9, 1.0, STAGES["probe"])
    _text(axis, x + 0.95, 6.8, "V rounds\nfrom w$_{Pilot}$", 7)
    _arrow(axis, (x + 1.9, 6.8), (x + 2.4, 6.8))
    _text(axis, x + 3.3, 6.8, f"G$_{number}$ = w$_{{grad}}$ - w$_{{Pilot}}$", 7)
    if number == 2:
        _text(axis, x + 2.2, 5.7, "no past to draw on:\ncarried over, or afresh", 7, FAINT)
    else:
        _box(axis, x, 5.2, 4.4, 0.9, STAGES["start"])
        past = range(2, number)
        mixture = " + ".join(f"μ$_{{{number},{z}}}$ w$^{{({z},T+1)}}$" for z in past)
        _text(axis, x + 2.2, 5.65, f"w$_{{init}}$ = {mixture}", 8)
    _arrow(axis, (x + 2.2, 5.2), (x + 2.2, 4.9))
    _box(axis, x, 4.0, 4.4, 0.9, STAGES["main"])
    _text(axis, x + 2.2, 4.45, "main training: T rounds")
    _arrow(axis, (x + 2.2, 4.0), (x + 2.2, 3.5))


def _kept(axis: Axes) -> None:
    """Draw what the lists hold when each session is over."""
    for row, (name, what) in enumerate((("Q$_1$", "w$^{{({z},T+1)}}$"), ("Q$_2$", "G$_{z}$"))):
        y = 2.6 - 0.9 * row
        for number in (1, 2, 3, 4):
            x = _left(number)
            kept = [what.format(z=z) for z in range(2, number + 1)]
            if number == 1:
                text = "w$_{Pilot}$ alone" if row == 0 else "empty"
            else:
                text = ", ".join(kept)
            _box(axis, x, y, 4.4, 0.65, "#ffffff")
            _text(axis, x + 2.2, y + 0.33, f"{name}: {text}", 7.5)


def _legend(axis: Axes) -> None:
    names = {
        "pilot": "pilot preparation",
        "probe": "pseudo-gradient",
        "start": "initial model, μ from ||G$_s$ - G$_z$||",
        "main": "main training",
    }
    for place, (stage, name) in enumerate(names.items()):
        x = 1.0 + 4.9 * place
        _box(axis, x, 0.25, 0.5, 0.4, STAGES[stage])
        axis.text(x + 0.7, 0.45, name, va="center", fontsize=8, color=INK)
