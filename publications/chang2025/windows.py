"""The rounds that a table averages over.

The authors' list of accuracies begins with the untrained model, so that round i is entry i counted
from zero. Whoever cuts it every T entries gets, as the first of a session, the last round of the
session before. Whether the tables were cut so is not known; it is one of the readings that are
fitted.
"""

from __future__ import annotations

from typing import NamedTuple

from ebbflow.runs.summary import Curve, window_accuracy


class Window(NamedTuple):
    """So many entries from a session's first round on, or ``early``: from the one before it."""

    length: int
    early: bool = False

    def accuracy(self, before: Curve, session: Curve) -> float:
        """Return the mean accuracy; ``before`` are the accuracies of the session before.

        >>> Window(2).accuracy([50.0, 90.0], [10.0, 20.0, 30.0])
        15.0
        >>> Window(2, early=True).accuracy([50.0, 90.0], [10.0, 20.0, 30.0])
        50.0
        """
        entries = [before[-1], *session] if self.early else session
        return window_accuracy(entries, self.length)

    @property
    def mark(self) -> str:
        """How it is written in tables and files.

        >>> Window(5).mark, Window(5, early=True).mark
        ('5', '5 early')
        """
        return f"{self.length} early" if self.early else str(self.length)

    def __str__(self) -> str:
        if not self.early:
            return f"the first {self.length} rounds of a session"
        return (
            f"{self.length} rounds: the last one of the session before, and the first "
            f"{self.length - 1} of the session"
        )


def parse(mark: str) -> Window:
    """Return the window that is written so.

    >>> parse("5 early")
    Window(length=5, early=True)
    """
    length, _, early = mark.partition(" ")
    return Window(int(length), early == "early")
