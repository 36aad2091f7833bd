"""The processes of a federation: started, recorded, and ended without a trace.

Every process gets a session of its own, so that no Ctrl-C in a terminal reaches it, and a log. It
is written down in ``processes.json`` *before* it begins: until its record is on the disk, it waits
in a shell that ends if its launcher does. So whatever happens to the launcher, SIGKILL included,
another command finds all of them and can end them.

Processes that these start themselves are found by their parents, and by a mark in their
environment (``EBBFLOW_FEDERATION``), which stays when they make sessions of their own and when
their parents end. A process is only ever ended if its number *and* the moment of its start are the
recorded ones, or if it descends from one that is, or if it carries the mark.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import TEMPORARY, make_folder, write_atomically
from ebbflow.flower.launch.process_table import (
    MARK,
    PART,
    LiveProcess,
    descendants,
    everything,
    find,
    is_running,
    marked,
    send,
)

RECORDS = "processes.json"
LOCK = ".processes.lock"
GRACE = 10.0
"""Seconds that a process has between the request to end and its end. Flower takes up to five."""
_LEFTOVERS = 3.0
"""Seconds that those have which their parents should have ended."""
_LAST = 10.0
"""Seconds after which one that was killed and is still there will never go."""
_INTERVAL = 0.05
_WAITS = 'IFS= read -r go && exec "$@" </dev/null'
"""What a process does until it is recorded: `read` fails if the launcher has gone."""


@dataclass(frozen=True)
class Record:
    """A process that was started."""

    name: str
    pid: int
    started: str
    """When it began, as `process_table` writes it."""
    layer: int
    """What it stands on: those of the highest layer are ended first."""
    log: str

    @property
    def running(self) -> bool:
        """Whether it is still running."""
        return is_running(self.pid, self.started)


_HANDLES: list[subprocess.Popen[bytes]] = []
"""Python warns of a process that goes on when nobody holds its handle: here, that is meant."""


@atexit.register
def _look_once_more() -> None:
    """Notice which have ended, or Python takes them for running and warns when it ends itself."""
    for handle in _HANDLES:
        handle.poll()


class Child:
    """A process that this one has started."""

    def __init__(self, record: Record, handle: subprocess.Popen[bytes]) -> None:
        self.record = record
        self._handle = handle
        _HANDLES.append(handle)

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs; the negative number of a signal that ended it."""
        return self._handle.poll()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end; return the exit code, or None if the time was too short."""
        try:
            return self._handle.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class Processes:
    """The processes of the federation in a folder.

    Several commands may start processes at the same time. Once they have all been ended, those
    who still hold such an object can start no more: what they belonged to is over.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, Child] = {}
        with self._locked():
            kept = _read(folder)
            if kept is None:
                kept = _Kept(secrets.token_hex(16), ())
                _write(folder, kept)
        self.mark = kept.mark

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        layer: int = 0,
    ) -> Child:
        """Start a process and record it; what it prints is added to its log.

        What an earlier process of the same name has left behind is ended first. All of it is one
        step: of two commands that start the same at the same time, neither ends what the other has
        just begun.
        """
        make_folder(log.parent)
        with self._locked(), log.open("ab") as output:
            kept = _read(self.folder)
            if kept is None or kept.mark != self.mark:
                raise EbbflowError(
                    f"{self.folder} was taken down: {name} is not started; "
                    "take the federation up again"
                )
            before = next((each for each in kept.records if each.name == name), None)
            if before is not None and before.running:
                raise EbbflowError(
                    f"{name} of {self.folder} is already running (process {before.pid}): "
                    f"`ebbflow federate down {self.folder}` ends all of them"
                )
            if before is not None:
                self.end([name], grace=0)
            handle = subprocess.Popen(
                ["/bin/sh", "-c", _WAITS, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, MARK: self.mark, PART: name},
                start_new_session=True,
            )
            assert handle.stdin is not None
            try:
                found = find(handle.pid)
                if found is None:
                    raise EbbflowError(f"{name} ended at once: see {log}")
                record = Record(name, handle.pid, found.started, layer, str(log))
                others = [each for each in kept.records if each.name != name]
                _write(self.folder, _Kept(self.mark, (*others, record)))
                handle.stdin.write(b"go\n")
            finally:  # without a word it ends by itself
                handle.stdin.close()
        child = self._children[name] = Child(record, handle)
        return child

    def records(self) -> tuple[Record, ...]:
        """Return all that were started, running or not, in the order of their starts."""
        kept = _read(self.folder)
        return kept.records if kept is not None and kept.mark == self.mark else ()

    def running(self, name: str) -> Record | None:
        """Return the process of a name if it is running."""
        return next((each for each in self.records() if each.name == name and each.running), None)

    def end(self, names: Iterable[str], grace: float = GRACE) -> list[str]:
        """End some processes with all that they have started; return who was running.

        What an earlier process of the same name has left behind is ended as well.
        """
        wanted = set(names)
        chosen = [each for each in self.records() if each.name in wanted]
        running = [each.name for each in chosen if each.running]
        known: list[LiveProcess] = []

        def alive() -> list[LiveProcess]:
            table = everything()
            roots = [*known, *_those(chosen)]
            for name in wanted:
                roots += marked(self.mark, table, name)
            # Kept from one time to the next: who has lost its parent cannot be found by it.
            family = {*roots, *descendants(roots, table)}
            known[:] = [each for each in family if is_running(each.pid, each.started)]
            return known

        if grace > 0:
            # Each first ends what it has started in its own way: a SuperNode that is asked twice to
            # end does so at once, and does not tell the SuperLink that it leaves.
            _end(lambda: _those(chosen), grace)
        alive()
        if grace > 0:
            # What they have started is theirs to end: Flower dies at once of a second SIGTERM.
            _end(lambda: _those(chosen), grace)
        _end(alive, min(grace, _LEFTOVERS))
        self._reap()
        return running

    def end_all(self, grace: float = GRACE) -> list[str]:
        """End all of them, for good: nothing can be started here any more."""
        names = end_all(self.folder, grace)
        self._reap()
        return names

    def _reap(self) -> None:
        """Notice which children have ended."""
        for child in self._children.values():
            child.wait(0)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with FileLock(self.folder / LOCK):
            yield


@dataclass(frozen=True)
class _Kept:
    """What is in ``processes.json``."""

    mark: str
    records: tuple[Record, ...]


def recorded(folder: Path) -> tuple[Record, ...]:
    """Return what a folder's ``processes.json`` names, running or not."""
    kept = _read(folder)
    return () if kept is None else kept.records


def end_all(folder: Path, grace: float = GRACE) -> list[str]:
    """End every process of a federation, and everything that descends from one.

    Returns the names of those that were running. Layer by layer from the top each gets SIGTERM and
    some seconds, then SIGKILL. The record goes last: whoever is interrupted here may do it again.
    """
    if not (folder / RECORDS).exists():
        return []
    with FileLock(folder / LOCK):
        kept = _read(folder)
        if kept is None:
            return []
        # Nobody can start anything now: that needs the lock, and then the record.
        names = [each.name for each in kept.records if each.running]
        for layer in sorted({each.layer for each in kept.records}, reverse=True):
            chosen = [each for each in kept.records if each.layer == layer]
            _end(lambda chosen=chosen: _those(chosen), grace)  # type: ignore[misc]
        _end(lambda: _belonging(kept), min(grace, _LEFTOVERS))
        (folder / RECORDS).unlink()
        for path in folder.glob(f".{RECORDS}.*.tmp"):  # of a launcher that was killed writing it
            if TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)
    return names


def _those(records: Iterable[Record]) -> list[LiveProcess]:
    """Return the recorded processes that are running."""
    found = ((each, find(each.pid)) for each in records)
    return [now for each, now in found if now is not None and now.started == each.started]


def _belonging(kept: _Kept) -> list[LiveProcess]:
    """Return everything that runs and belongs to a federation."""
    table = everything()
    mine = _lineage(table)
    roots = [*_those(kept.records), *marked(kept.mark, table)]
    return [each for each in {*roots, *descendants(roots, table)} if each.pid not in mine]


def _lineage(table: Iterable[LiveProcess]) -> set[int]:
    """Return this process and those above it: a federation cannot end who is ending it."""
    parents = {each.pid: each.parent for each in table}
    found, pid = set(), os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found


def _end(alive: Callable[[], list[LiveProcess]], grace: float) -> None:
    """Ask processes to end, and end them if they have not after a while: at once, if that is 0.

    ``alive`` is asked again and again: a process may start others until its last moment.
    """
    asked: set[tuple[int, str]] = set()
    until = time.monotonic() + grace
    while left := alive():
        patient = time.monotonic() < until
        if not patient:
            # Held first: none must notice that another has ended, nor start anything new.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for process in left:
                    send(process, number)
        for process in left if patient else ():
            if (process.pid, process.started) not in asked:
                asked.add((process.pid, process.started))
                send(process, signal.SIGTERM)
        if time.monotonic() > until + _LAST:
            stuck = ", ".join(str(process.pid) for process in left)
            raise EbbflowError(
                f"processes {stuck} do not end even by SIGKILL: see whether they wait for a disk "
                "or belong to another user"
            )
        time.sleep(_INTERVAL)


def _read(folder: Path) -> _Kept | None:
    path = folder / RECORDS
    try:
        content = json.loads(path.read_bytes())
        return _Kept(content["mark"], tuple(Record(**each) for each in content["processes"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise EbbflowError(
            f"{path} is damaged ({error}): end the processes whose environment has {MARK} by hand, "
            "and delete the file"
        ) from None


def _write(folder: Path, kept: _Kept) -> None:
    content = {"mark": kept.mark, "processes": [asdict(each) for each in kept.records]}
    write_atomically(folder / RECORDS, json.dumps(content, indent=1).encode())
