"""The paper's rounds, seconds and joules to a target accuracy."""

from __future__ import annotations

from typing import NamedTuple

from chang2025.reference import table
from ebbflow.analysis.metrics import REFERENCE


class PublishedCost(NamedTuple):
    """A row of the paper's time-to-accuracy table."""

    dataset: str
    overlap: float
    alpha: float
    algorithm: str
    target: float
    method: str
    rounds: int
    latency: float
    energy: float


PAPER_ROUND = {"tinyimagenet": (113.585, 1428.87), "svhn": (6.8865, 77.7)}
"""Seconds and joules of one round, from the rows of the table with most rounds."""


def published() -> list[PublishedCost]:
    """Return the paper's time-to-accuracy table; energies are in J."""
    return [
        PublishedCost(
            row["dataset"].lower(),
            float(row["overlap"]),
            float(row["alpha"]),
            row["algorithm"].lower(),
            float(row["target"]),
            row["method"].replace("proposed", REFERENCE),
            int(row["rounds"]),
            float(row["latency_s"]),
            1e3 * float(row["energy_kj"]),
        )
        for row in table("time_to_accuracy.csv")
    ]


def published_rounds(dataset: str) -> tuple[str, dict[str, float]]:
    """Return the first setting of the paper's table for a data set, and its rounds by method."""
    rows = [row for row in published() if row.dataset == dataset]
    if not rows:
        return "", {}
    first = rows[0]
    label = f"{first.algorithm}, overlap {first.overlap:g}, alpha {first.alpha:g}"
    same = [row for row in rows if row[1:4] == first[1:4]]
    return label, {row.method: float(row.rounds) for row in same}
