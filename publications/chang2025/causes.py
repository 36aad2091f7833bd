"""Known causes of large differences from the paper: a reviewed table.

A cause applies to a difference only if its place fits and its criterion holds, and every criterion
can fail. What no cause explains is called unexplained.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from typing import NamedTuple

from chang2025 import reference

UNEXPLAINED = "unexplained"


class Difference(NamedTuple):
    """One number of ours that is far from the paper's.

    ``theirs`` is the paper's accuracy, ``highest`` the highest accuracy in any round of our
    session, ``rounds`` how many rounds it has, and ``paper_rounds`` how many the paper's has.
    """

    study: str
    dataset: str
    setting: str
    algorithm: str
    transition: int
    column: str
    theirs: float
    highest: float
    rounds: int
    paper_rounds: int


def never_reached(difference: Difference) -> bool:
    """Whether our session is shorter than the paper's and never reaches the paper's number.

    The number is a mean over the paper's first rounds. A run that gets there later would show that
    the length of its sessions is not what keeps it below.
    """
    return difference.rounds < difference.paper_rounds and difference.highest < difference.theirs


def stands_in(
    file: str, algorithm: str, labels: str, dataset: str | None = None
) -> Callable[[Difference], bool]:
    """Return whether the paper has the same number in another row of its appendix.

    The other row is of this algorithm and these labels, of the same data set unless one is named,
    and at the same transition and start.
    """

    def holds(difference: Difference) -> bool:
        return difference.theirs in _printed(
            file, algorithm, labels, dataset or difference.dataset, difference, shifted=False
        )

    return holds


def shifted_series(*algorithms: str) -> Callable[[Difference], bool]:
    """Return whether another of these algorithms has the same number at another transition."""
    file = "first10_100_clients_partial_overlap.csv"

    def holds(difference: Difference) -> bool:
        own = difference.algorithm
        return own in algorithms and any(
            difference.theirs
            in _printed(
                file, other, "Partial-Overlap", difference.dataset, difference, shifted=True
            )
            for other in algorithms
            if other != own
        )

    return holds


def _printed(
    file: str, algorithm: str, labels: str, dataset: str, difference: Difference, *, shifted: bool
) -> list[float]:
    """Return what a row of the appendix prints for the difference's start.

    At the difference's transition, or if ``shifted`` at the others.
    """
    return [
        float(line["accuracy"])
        for line in reference.table(file)
        if reference.ALGORITHMS[line["algorithm"]] == algorithm
        and line["label_distribution"] == labels
        and reference.NAMES[line["dataset_model"].partition(" (")[0]] == dataset
        and reference.method_name(line["method"]) == difference.column
        and (int(line["transition"]) != difference.transition) == shifted
    ]


class Cause(NamedTuple):
    """A cause of the differences whose place fits the patterns and for which ``holds`` is true.

    ``text`` may name fields of the difference in braces.
    """

    text: str
    holds: Callable[[Difference], bool]
    study: str = "*"
    dataset: str = "*"
    setting: str = "*"
    algorithm: str = "*"


CAUSES = (
    Cause(
        "the paper's row repeats its FedProx row of CIFAR-100, Half",
        stands_in("first10_half_distinct.csv", "fedprox", "Half", "cifar100"),
        study="first10-two-shard-partial-overlap",
        dataset="mnist",
        setting="Partial-Overlap",
        algorithm="fedprox",
    ),
    Cause(
        "the paper's row repeats its FedAvg row",
        stands_in("first10_two_shard_partial_overlap.csv", "fedavg", "Two-Shard"),
        study="first10-two-shard-partial-overlap",
        setting="Two-Shard",
        algorithm="fedprox",
    ),
    Cause(
        "the paper has the same number for another algorithm at another transition",
        shifted_series("fedavg", "fedprox", "moon"),
        study="first10-100-clients",
    ),
    Cause(
        "shorter sessions, {rounds} rounds and not {paper_rounds}: no round of ours reaches the "
        "paper's number",
        never_reached,
    ),
)
"""The first that applies counts."""


def cause_of(difference: Difference) -> str:
    """Return the cause of a difference, or that it is unexplained."""
    place = difference.study, difference.dataset, difference.setting, difference.algorithm
    for cause in CAUSES:
        patterns = cause.study, cause.dataset, cause.setting, cause.algorithm
        if all(map(fnmatch, place, patterns)) and cause.holds(difference):
            return cause.text.format(**difference._asdict())
    return UNEXPLAINED
