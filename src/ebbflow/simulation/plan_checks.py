"""What is odd about a plan of sessions, said before a minute is spent on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed, printable
from ebbflow.core.types import Dataset

SHOWN = 5
"""Sessions and devices that a sentence lists."""


class PlanCheck:
    """Looks at sessions one after another, and then says what is odd about them.

    A session with a single label trains a model that always says that label. Sessions of the same
    devices, one after another, are one session in two parts. Without a session P+3 no start has a
    choice.
    """

    def __init__(self, dataset: Dataset, sessions: int, pilot: int) -> None:
        self._dataset, self._sessions, self._pilot = dataset, sessions, pilot
        self._one_label: list[int] = []
        self._same: list[int] = []
        self._before: tuple[int, ...] = ()
        self._first_label = 0

    def note(self, session: int, devices: tuple[int, ...], labels: Sequence[int]) -> None:
        """Look at a session."""
        if len(labels) == 1 and self._dataset.kind_count > 1:
            self._first_label = self._first_label if self._one_label else labels[0]
            self._one_label.append(session)
        if session > 1 and devices == self._before:
            self._same.append(session)
        self._before = devices

    def sentences(self) -> list[str]:
        """Return what is odd, or raise an error if nothing that is learnt could mean anything."""
        name, label = self._dataset.name, self._label_name()
        if len(self._one_label) == self._sessions:
            raise EbbflowError(
                f"every session of {name} has a single label (session 1: {label}), so that any "
                "model that always says it is right: leave partition.overlap out, or choose "
                "another partition.kind or fewer devices of a kind in each session"
            )
        return list(self._warnings(label))

    def _warnings(self, label: str) -> Iterator[str]:
        if self._one_label:
            yield (
                f"{_counted(self._one_label)} a single label (session {self._one_label[0]}: "
                f"{label}): its accuracy says nothing; choose another partition, or more devices"
            )
        if self._same:
            yield (
                f"{_counted(self._same)} the same devices as the one before: nothing changes "
                "there, and no start can help; cut the sessions elsewhere"
            )
        if self._sessions < self._pilot + 3:
            yield (
                f"with {self._sessions} sessions and pilot.sessions = {self._pilot}, no session "
                f"has two past models to choose from, and no table compares the starts: set "
                f"sessions to at least {self._pilot + 3}"
            )

    def _label_name(self) -> str:
        labels = self._dataset.labels
        return printable(labels[self._first_label]) if labels else str(self._first_label)


def _counted(sessions: Sequence[int]) -> str:
    """Return the subject of a sentence: which sessions have something.

    >>> _counted([3]), _counted([1, 2])
    ('session 3 has', 'sessions 1, 2 have')
    """
    if len(sessions) == 1:
        return f"session {sessions[0]} has"
    return f"sessions {listed(list(map(str, sessions)), SHOWN)} have"
