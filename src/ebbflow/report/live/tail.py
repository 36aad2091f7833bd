"""Reads the line files of a run while they grow: each line once, when it is whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Any, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records
from ebbflow.runs.records import LONGEST_LINE, RESTORE, Round
from ebbflow.runs.schemas import Event, RoundLine, checked

SEAM = 1024
"""Bytes before the place where reading stopped that must still be there when it goes on."""


class NewLines(NamedTuple):
    """What a line file says since it was last read.

    Attributes:
        anew: Whether the file is not the one of last time, or was cut: nothing of what it said
            before holds, and ``objects`` are all of its lines.
        objects: What the new lines hold.
        trouble: A sentence on why reading stopped before the end of the file, or nothing.
    """

    anew: bool
    objects: list[dict[str, Any]]
    trouble: str = ""


class LineTail:
    """The end of a line file, from where it was last read.

    A line that is still being written is left for the next time. The file is opened for each look,
    so that one which was replaced or removed is noticed. A resumed run cuts its files and writes
    the same rounds again; if that happens between two looks and changes nothing, it is not noticed.
    """

    def __init__(self, path: Path, kind: Any) -> None:
        self._path = path
        self._kind = kind
        self.start_over()

    def start_over(self) -> None:
        """Forget what was read, so that the next look begins with the first line."""
        self._file: tuple[int, int] | None = None
        self._position, self._number = 0, 0
        self._seam = b""
        self._checked = True

    def read(self) -> NewLines:
        """Return what is new."""
        try:
            # A FIFO would block for ever, and a link may lead anywhere.
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return NewLines(self._forgotten(), [])
        except OSError as error:
            return NewLines(False, [], f"{self._path} cannot be read ({error.strerror}): {RESTORE}")
        try:
            return self._read_from(handle)
        finally:
            os.close(handle)

    def _read_from(self, handle: int) -> NewLines:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return NewLines(False, [], f"{self._path} is no plain file: {RESTORE}")
        with os.fdopen(handle, "rb", closefd=False) as file:
            here = facts.st_dev, facts.st_ino
            anew = not (self._file == here and self._goes_on(file)) and self._forgotten()
            self._file = here
            file.seek(self._position)
            return self._lines(file, anew)

    def _forgotten(self) -> bool:
        """Start over; return whether there was anything to forget."""
        known = self._position > 0
        self.start_over()
        return known

    def _goes_on(self, file: IO[bytes]) -> bool:
        """Whether the file still holds what was read last, where it was read."""
        file.seek(self._position - len(self._seam))
        return file.read(len(self._seam)) == self._seam

    def _lines(self, file: IO[bytes], anew: bool) -> NewLines:
        objects: list[dict[str, Any]] = []
        while line := file.readline(LONGEST_LINE):
            where = f"{self._path}, line {self._number + 1}"
            if not line.endswith(b"\n"):
                if len(line) == LONGEST_LINE:
                    text = f"{where} is longer than any line of a run: {RESTORE}"
                    return NewLines(anew, objects, text)
                break
            if self._number == 0:  # a file of version 1 has no checksums at all
                self._checked = records.split_line(line)[1] is not None
            try:
                content = records.object_of_line(line, where, checked=self._checked)
                objects.append(checked(self._kind, content, where, RESTORE))
            except EbbflowError as error:
                # It stays the next line to read: it may be cut and written again at this moment.
                return NewLines(anew, objects, str(error))
            self._position += len(line)
            self._number += 1
            self._seam = (self._seam + line[-SEAM:])[-SEAM:]
        return NewLines(anew, objects)


class NewRecords(NamedTuple):
    """What a run has recorded since the last look; see `NewLines`."""

    anew: bool
    rounds: list[Round]
    events: list[dict[str, Any]]


class RunTail:
    """The rounds and events of a run folder, as far as they were read."""

    def __init__(self, folder: Path) -> None:
        self.rounds: list[Round] = []
        self.events: list[dict[str, Any]] = []
        self.trouble = ""
        self._metrics = LineTail(folder / records.METRICS, RoundLine)
        self._events = LineTail(folder / records.EVENTS, Event)

    def start_over(self) -> None:
        """Forget everything, so that the next look reads all of it."""
        self._metrics.start_over()
        self._events.start_over()
        self.rounds, self.events = [], []

    def read(self) -> NewRecords:
        """Read on, and return what is new."""
        metrics, events = self._metrics.read(), self._events.read()
        anew = metrics.anew or events.anew
        if anew:  # a resume cuts both files, though in one of them it may not show
            self.start_over()
            metrics, events = self._metrics.read(), self._events.read()
        new = NewRecords(anew, [Round(**line) for line in metrics.objects], events.objects)
        self.rounds += new.rounds
        self.events += new.events
        self.trouble = metrics.trouble or events.trouble
        return new
