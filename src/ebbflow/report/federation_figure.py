"""The picture of a federation: accuracy over rounds, session by session, and who was there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from ebbflow.report.plots import drawing

Score = tuple[int, int, float, tuple[int, ...]]
"""Session, round, accuracy in percent, and the members."""


def federation_picture(scores: Sequence[Score], path: Path, title: str) -> None:
    """Write the picture as PNG. Sessions have different test sets, so no stroke joins them."""
    plots = drawing()
    figure, (above, below) = plots.subplots(
        2, 1, figsize=(7.0, 4.6), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    everybody = sorted({device for _, _, _, members in scores for device in members})
    at = 0
    for session, rows in groupby(scores, key=lambda score: score[0]):
        own = list(rows)
        places = [at + number for number in range(len(own))]
        above.plot(places, [score[2] for score in own], marker="o", ms=3.5, color="#0072b2")
        above.annotate(f"session {session}", (places[0], 94), fontsize=8, color="#555555")
        for device in own[0][3]:
            below.barh(
                everybody.index(device),
                len(own) - 0.2,
                left=places[0] - 0.4,
                height=0.7,
                color="#009e73",
            )
        at += len(own)
        if at < len(scores):
            for axis in (above, below):
                axis.axvline(at - 0.5, color="#bbbbbb", lw=0.8)
    above.set(xlim=(-0.6, at - 0.4), ylim=(0, 100), ylabel="accuracy (%)", title=title)
    below.set(
        yticks=range(len(everybody)), ylabel="device", xlabel="rounds; each session from its start"
    )
    below.set_yticklabels([str(device) for device in everybody])
    below.invert_yaxis()
    figure.savefig(path, dpi=150)
    plots.close(figure)
