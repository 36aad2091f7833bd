"""A run is followed to its end: nodes take turns, and a server that has died is noticed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from ebbflow.flower.launch import driving, launcher
from ebbflow.flower.launch.control import FINISHED, SeenRun
from ebbflow.flower.launch.driving import Driver, Recorded, ServerDiedError, turns_of
from ebbflow.flower.launch.federation_settings import FederationSettings
from ebbflow.flower.launch.launcher import Federation, NodeOrigin
from ebbflow.flower.saving import EVENTS, HistoryFolder
from tests.flower.stock import initial, stock_grid
from tests.flower.test_sessions import Finished, finishing, lines, sessions

RUNNING, COMPLETED = SeenRun(1, "running", "", ""), SeenRun(1, FINISHED, "completed", "")
DEAD = 0.2


class Scripted(Federation):
    """A federation without processes, whose app does what a script says."""

    def __init__(self, folder: Path, script: Iterator[SeenRun]) -> None:
        super().__init__(folder, FederationSettings())
        self._script = script
        self.came: list[int] = []
        self.known: list[SeenRun] = []
        self.serves = False
        self.stopped: list[int] = []
        self.submitted = 0

    def control(self) -> Any:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def runs(self) -> list[SeenRun]:
        return self.known

    def has_tasks(self) -> bool:
        return self.serves

    def stop_run(self, run_id: int) -> None:
        self.stopped.append(run_id)

    def run(self, number: int) -> SeenRun:
        return next(self._script)

    def submit(self, settings: object = None) -> int:
        self.submitted += 1
        return 1

    def start_node(self, number: int, origin: NodeOrigin | None = None) -> Any:
        self.came.append(number)

    def wait_for_nodes(self, numbers: Iterable[int], seconds: float = 150.0) -> None:
        if 4 in numbers:
            time.sleep(2 * DEAD)  # it takes a while until they are in


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "DEAD", DEAD)
    monkeypatch.setattr(launcher, "_INTERVAL", 0.002)


def history_of(tmp_path: Path) -> Path:
    return tmp_path / "run" / "history"


def follow(tmp_path: Path, script: Iterator[SeenRun]) -> tuple[Scripted, list[str], SeenRun]:
    """Return the federation, what was told, and how the run ended."""
    federation, told = Scripted(tmp_path, script), list[str]()
    seen = Driver(federation, turns_of("0 1, 2 3, 4"), told.append).go()
    return federation, told, seen


def waiting(seconds: float) -> Iterator[SeenRun]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield RUNNING


def after_two_sessions(folder: HistoryFolder, *, last: bool) -> Iterator[SeenRun]:
    """Let two sessions be over, and nodes come in between."""
    yield RUNNING
    folder.append(EVENTS, {"event": "over", "said": "session 1 is over", "last": False})
    yield RUNNING
    folder.append(EVENTS, {"event": "over", "said": "session 2 is over", "last": last})


def test_nobody_comes_after_the_last_session_and_the_app_may_go_on(tmp_path: Path) -> None:
    def script() -> Iterator[SeenRun]:
        folder = HistoryFolder(history_of(tmp_path))
        yield from after_two_sessions(folder, last=True)
        yield RUNNING
        folder.append(EVENTS, {"event": "done", "said": "all is over"})
        folder.close()
        yield from waiting(3 * DEAD)  # it exports its model, say
        yield COMPLETED

    federation, told, seen = follow(tmp_path, script())
    assert seen == COMPLETED
    assert federation.came == [0, 1, 2, 3]
    assert told[-1] == "all is over"
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


def test_a_run_that_has_ended_is_not_dead(tmp_path: Path) -> None:
    def script() -> Iterator[SeenRun]:
        folder = HistoryFolder(history_of(tmp_path))
        yield from after_two_sessions(folder, last=False)
        yield RUNNING
        folder.close()
        yield RUNNING
        time.sleep(2 * DEAD)
        yield COMPLETED

    federation, told, seen = follow(tmp_path, script())
    assert seen == COMPLETED
    assert federation.came == [0, 1, 2, 3, 4]
    assert told[-1] == "node 4 comes"


def test_a_server_that_lets_go_of_its_folder_too_early_is_dead(tmp_path: Path) -> None:
    def script() -> Iterator[SeenRun]:
        folder = HistoryFolder(history_of(tmp_path))
        yield from after_two_sessions(folder, last=True)
        folder.close()
        yield from waiting(30)

    began = time.monotonic()
    with pytest.raises(ServerDiedError, match=r"has died: see .*executor\.log, and resume"):
        follow(tmp_path, script())
    assert DEAD < time.monotonic() - began < 10


def done_with_two_sessions(tmp_path: Path) -> None:
    """Leave behind what a server has written whose two sessions are over."""
    folder = HistoryFolder(history_of(tmp_path))
    for _ in after_two_sessions(folder, last=True):
        pass
    folder.append(EVENTS, {"event": "done", "said": "all is over"})
    folder.close()


def test_an_app_that_works_after_its_last_session_is_followed(tmp_path: Path) -> None:
    done_with_two_sessions(tmp_path)
    federation = Scripted(tmp_path, iter([RUNNING, RUNNING, COMPLETED]))
    federation.known, federation.serves = [RUNNING], True
    assert Driver(federation, turns_of("0 1, 2 3, 4"), lambda said: None).go() == COMPLETED
    assert (federation.stopped, federation.submitted) == ([], 0)
    assert federation.came == [2, 3]  # the nodes of its last session, for what it still asks


def test_an_app_whose_process_is_gone_is_started_again(tmp_path: Path) -> None:
    done_with_two_sessions(tmp_path)
    federation = Scripted(tmp_path, iter([RUNNING, COMPLETED]))
    federation.known = [RUNNING]
    assert Driver(federation, (), lambda said: None).go() == COMPLETED
    assert (federation.stopped, federation.submitted) == ([1], 1)


def test_nodes_come_if_an_app_that_was_done_has_more_sessions(tmp_path: Path) -> None:
    done_with_two_sessions(tmp_path)

    def script() -> Iterator[SeenRun]:
        yield RUNNING
        folder = HistoryFolder(history_of(tmp_path))
        folder.append(EVENTS, {"event": "resumed", "said": "goes on"})
        yield RUNNING
        yield RUNNING
        folder.append(EVENTS, {"event": "done", "said": "all is over"})
        folder.close()
        yield COMPLETED

    federation = Scripted(tmp_path, script())
    federation.known, federation.serves = [RUNNING], True
    assert Driver(federation, turns_of("0 1, 2 3, 4"), lambda said: None).go() == COMPLETED
    assert (federation.stopped, federation.submitted) == ([], 0)
    assert federation.came == [2, 3, 4]


def test_a_federation_says_when_all_is_over_and_not_before(tmp_path: Path) -> None:
    def said() -> list[tuple[str, bool | None]]:
        wanted = ("over", "resumed", "done")
        events = lines(tmp_path, EVENTS)
        return [(e["event"], e.get("last")) for e in events if e["event"] in wanted]

    def done() -> bool:
        return Recorded(tmp_path / "history").done

    with pytest.raises(Finished):  # in the second round of session 2
        sessions(tmp_path, sessions=2).run(stock_grid(), initial(), evaluate_fn=finishing(6))
    assert said() == [("over", False)]
    assert not done()
    sessions(tmp_path, sessions=2).run(stock_grid(), initial())
    ended = [("over", False), ("resumed", None), ("over", True), ("done", None)]
    assert said() == ended
    assert done()
    sessions(tmp_path, sessions=2).run(stock_grid(), initial())
    assert said() == ended
    sessions(tmp_path, sessions=3).run(stock_grid(), initial())
    assert said() == [*ended[:-1], ("resumed", None), ("over", True), ("done", None)]
