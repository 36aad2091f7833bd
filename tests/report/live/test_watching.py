"""What browsers are told while runs begin, go on, are cut, end and vanish."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbflow.report.live import watched_run
from ebbflow.report.live import watching as module
from ebbflow.report.live.pace import Pace
from ebbflow.report.live.watching import GONE, Watching
from ebbflow.report.page import content as page_module
from ebbflow.report.page.content import content_of_folders
from ebbflow.runs import records
from tests.report.live.growing import LINES, METHODS, GrowingRun
from tests.test_cli import tree

Answer = dict[str, Any]


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> GrowingRun:
    return GrowingRun(small_run, tmp_path / "run")


@pytest.fixture(autouse=True)
def _waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait for a content as long as it takes, and costs are in it from the beginning."""
    monkeypatch.setattr(module, "PATIENCE", 60.0)
    monkeypatch.setattr(watched_run, "MATURE", 0.0)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for its turn."""
    monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: True)


impatient = pytest.mark.usefixtures("_impatient")


def asked(watching: Watching, after: str = "") -> Answer:
    answer: Answer = json.loads(watching.changes(after))
    assert set(answer) == {"cursor", "state", "rounds", "starts", "content"}
    return answer


def shown(content: Any) -> list[list[Any]]:
    """Return the rounds that a content shows, as an answer names them."""
    return [
        [index, curve["algorithm"], curve["method"], curve["seed"], curve["session"], place, *both]
        for index, run in enumerate(content["runs"])
        for curve in run["curves"]
        for place, both in enumerate(zip(curve["accuracy"], curve["loss"], strict=True), start=1)
    ]


class Page:
    """What a browser knows, told by answers alone."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self.cursor, self.contents = "", 0
        self.rounds: list[list[Any]] = []
        self.starts: set[tuple[Any, ...]] = set()
        self.state: list[Any] = []

    def ask(self) -> Answer:
        answer = asked(self._watching, self.cursor)
        if answer["content"] is not None:
            self.contents += 1
            self.rounds = shown(answer["content"])
            self.starts = {
                (n, c["algorithm"], c["method"], c["seed"], c["session"], c["start"], c["rounds"])
                for n, run in enumerate(answer["content"]["runs"])
                for c in run["curves"]
            }
        self.rounds += answer["rounds"]
        self.starts |= set(map(tuple, answer["starts"]))
        self.state, self.cursor = answer["state"], answer["cursor"]
        return answer


def truth(*folders: Path) -> Any:
    return json.loads(json.dumps(content_of_folders(folders)))


# --- a run that goes on --------------------------------------------------------------------------


@impatient
def test_a_page_that_follows_a_run_shows_what_is_in_its_folder(run: GrowingRun) -> None:
    page = Page(Watching([run.folder]))
    with run.running():
        for session in range(1, 5):
            for done in range(4):
                run.grow(session, done)
                page.ask()
                now = truth(run.folder)
                assert sorted(page.rounds) == sorted(shown(now))
                assert len(page.starts) == METHODS * session
                assert page.state[0]["state"] == "running"
                assert page.state[0]["done"] == 3 * (session - 1) + done
                assert page.state[0]["total"] == 12
            run.end(session)
            assert page.ask()["content"] is not None
    # A content for the page as such and one at each session's end, which is all that it takes.
    assert page.contents == 5


@impatient
def test_only_what_is_new_is_sent(run: GrowingRun) -> None:
    watching = Watching([run.folder])
    run.grow(1, 1)
    first = asked(watching)
    assert first["content"] is not None and first["rounds"] == first["starts"] == []
    run.grow(1, 3)
    second = asked(watching, first["cursor"])
    assert second["content"] is None
    assert [row[:6] for row in second["rounds"]] == [
        [0, "fedavg", method, 1, 1, number]
        for number in (2, 3)
        for method in ("warm_start", "previous")
    ]
    assert asked(watching, second["cursor"])["rounds"] == []
    assert asked(watching, second["cursor"])["cursor"] == second["cursor"]
    # Somebody else still has the first cursor.
    assert asked(watching, first["cursor"])["rounds"] == second["rounds"]
    run.grow(2, 1)
    third = asked(watching, second["cursor"])
    assert third["content"] is not None  # the first session is over


@impatient
def test_a_session_that_begins_is_told_before_its_first_round(run: GrowingRun) -> None:
    watching = Watching([run.folder])
    run.end(1)
    cursor = asked(watching)["cursor"]
    run.grow(2, 0)
    answer = asked(watching, cursor)
    assert answer["content"] is None
    assert [row[:5] for row in answer["starts"]] == [
        [0, "fedavg", "warm_start", 1, 2],
        [0, "fedavg", "previous", 1, 2],
    ]
    assert all(row[6] == 3 for row in answer["starts"])


@impatient
@pytest.mark.parametrize(
    "cursor", ["", "x", "1", "1-2", "7-0-0", "1-9-0", "-1-0-0", "1-0-0-0", "9" * 5000, "1-\x00-0"]
)
def test_a_cursor_that_is_none_gets_everything(run: GrowingRun, cursor: str) -> None:
    watching = Watching([run.folder])
    run.grow(1, 2)
    asked(watching)
    if (
        cursor == "1-9-0"
    ):  # of the right content, but of rounds that are not there: no more than that
        assert asked(watching, cursor)["rounds"] == []
    else:
        assert asked(watching, cursor)["content"] == truth(run.folder)


@impatient
def test_in_the_end_the_page_is_the_report(run: GrowingRun, small_run: Path) -> None:
    told: list[str] = []
    watching = Watching([run.folder], told.append)
    page = Page(watching)
    with run.running():
        run.grow(3, 2)
        page.ask()
    assert told == []
    run.finish()
    last = page.ask()
    assert last["content"] == truth(run.folder)
    assert last["state"][0]["state"] == "finished"
    assert page.ask()["content"] is None
    assert told == ["the run is finished; the page stays until you stop this"]


@impatient
def test_loss_that_is_no_number_is_null(run: GrowingRun) -> None:
    watching = Watching([run.folder])
    run.grow(1, 1)
    cursor = asked(watching)["cursor"]
    made = records.read_rounds(run.folder)[0]._replace(round=2, loss=float("nan"))
    with (run.folder / records.METRICS).open("ab") as file:
        file.write(records.line_of(made.line()))
    assert asked(watching, cursor)["rounds"][0][7] is None


@impatient
def test_nothing_is_written_to_the_folder(run: GrowingRun) -> None:
    watching = Watching([run.folder])
    run.grow(2, 1)
    before, times = tree(run.folder), run.folder.stat().st_mtime_ns
    asked(watching)
    assert tree(run.folder) == before
    assert run.folder.stat().st_mtime_ns == times


# --- cut, damaged, gone --------------------------------------------------------------------------


@impatient
def test_after_a_resume_the_page_shows_the_folder_again(run: GrowingRun) -> None:
    page = Page(Watching([run.folder]))
    run.grow(3, 2)
    page.ask()
    run.grow(2, 1)
    assert page.ask()["content"] == truth(run.folder)
    run.grow(3, 1)
    page.ask()
    assert sorted(page.rounds) == sorted(shown(truth(run.folder)))


def test_rounds_of_a_cut_run_wait_for_a_content_that_they_fit(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching([run.folder])
    turn = {"computing": True}
    monkeypatch.setattr(
        Pace, "ready", lambda self, haste=1.0: self is watching._looking or turn["computing"]
    )
    with run.running():
        run.grow(1, 3)
        cursor = asked(watching)["cursor"]
        turn["computing"] = False
        run.grow(1, 1)
        assert asked(watching, cursor)["rounds"] == []
        run.grow(1, 2)
        assert asked(watching, cursor)["rounds"] == []
        turn["computing"] = True
        assert asked(watching, cursor)["content"] == truth(run.folder)


@impatient
def test_a_damaged_line_is_a_sentence_in_the_state(run: GrowingRun) -> None:
    page = Page(Watching([run.folder]))
    run.grow(1, 1)
    page.ask()
    assert page.state[0]["trouble"] == ""
    run.grow(1, 3)
    run.damage(METHODS + 1)
    page.ask()
    assert f"line {METHODS + 2} does not match its checksum" in page.state[0]["trouble"]
    assert len(page.rounds) == METHODS + 1
    run.grow(1, 1)
    run.grow(1, 3)
    page.ask()
    assert page.state[0]["trouble"] == ""
    assert len(page.rounds) == LINES


@impatient
def test_settings_that_cannot_be_read_are_a_sentence(run: GrowingRun) -> None:
    page = Page(Watching([run.folder]))
    run.grow(1, 1)
    page.ask()
    text = (run.folder / records.CONFIG).read_text()
    (run.folder / records.CONFIG).write_text("rounds = [")
    page.ask()
    assert "config.toml" in page.state[0]["trouble"]
    assert page.contents == 1
    (run.folder / records.CONFIG).write_text(text)
    run.grow(1, 2)
    page.ask()
    assert page.state[0]["trouble"] == ""
    assert len(page.rounds) == 2 * METHODS


@impatient
def test_a_folder_that_vanished_is_told_and_may_come_back(run: GrowingRun, tmp_path: Path) -> None:
    page = Page(Watching([run.folder]))
    run.grow(1, 3)
    page.ask()
    run.folder.rename(tmp_path / "elsewhere")
    answer = page.ask()
    assert (page.state[0]["state"], page.state[0]["trouble"]) == ("stopped", GONE)
    assert answer["content"] is None
    (tmp_path / "elsewhere").rename(run.folder)
    run.grow(1, 1)
    page.ask()
    assert page.state[0]["trouble"] == ""
    assert len(page.rounds) == METHODS


@impatient
def test_what_failed_is_tried_again(run: GrowingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> None:
        raise OSError(5, "Input/output error")

    watching = Watching([run.folder])
    run.grow(1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(page_module, "page_content", failing)
        assert "Input/output error" in watching.page().text
        assert asked(watching)["content"] is None
    assert asked(watching)["content"] == truth(run.folder)


# --- several runs --------------------------------------------------------------------------------


@impatient
def test_runs_of_a_folder_come_and_go(small_run: Path, tmp_path: Path) -> None:
    sweep, told = tmp_path / "sweep", list[str]()
    page = Page(Watching([sweep], told.append))
    assert page.ask()["content"] is None
    second = GrowingRun(small_run, sweep / "b")
    second.grow(1, 2)
    assert [run["name"] for run in page.ask()["content"]["runs"]] == ["b"]
    first = GrowingRun(small_run, sweep / "a")
    assert [run["name"] for run in page.ask()["content"]["runs"]] == ["a", "b"]
    second.grow(1, 3)
    first.grow(1, 1)
    assert {(row[0], row[5]) for row in page.ask()["rounds"]} == {(0, 1), (1, 3)}
    assert sorted(page.rounds) == sorted(shown(truth(sweep)))
    first.finish()
    page.ask()
    assert [state["state"] for state in page.state] == ["finished", "stopped"]
    assert told == []
    second.finish()
    assert page.ask()["content"] == truth(sweep)
    assert told == ["all 2 runs are finished; the page stays until you stop this"]
    shutil.rmtree(first.folder)
    page.ask()
    assert page.ask()["content"] is None
    assert sorted(page.rounds) == sorted(shown(truth(sweep)))
    assert len(page.state) == 1


@impatient
def test_runs_that_are_named_one_by_one(small_run: Path, tmp_path: Path) -> None:
    first, second = (GrowingRun(small_run, tmp_path / name / "x") for name in "ab")
    watching = Watching([first.folder, tmp_path / "not-yet", second.folder, tmp_path / "a"])
    first.grow(1, 1)
    second.grow(1, 1)
    answer = asked(watching)
    assert [run["name"] for run in answer["content"]["runs"]] == ["a/x", "b/x"]


# --- how much is done ----------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count looks and contents."""
    counts = {"run_folders": 0, "page_content": 0}
    for name, place in zip(counts, (module, page_module), strict=True):
        usual = getattr(place, name)

        def counting(*arguments: Any, name: str = name, usual: Any = usual) -> Any:
            counts[name] += 1
            return usual(*arguments)

        monkeypatch.setattr(place, name, counting)
    yield counts


def test_nothing_is_done_unless_somebody_asks(run: GrowingRun, counted: dict[str, int]) -> None:
    watching = Watching([run.folder])
    run.grow(1, 1)
    assert counted == {"run_folders": 0, "page_content": 0}
    for _ in range(20):
        asked(watching)
    assert counted == {"run_folders": 1, "page_content": 1}


def test_contents_of_a_fast_run_are_few(
    run: GrowingRun, counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds come at once, the rest when its turn has come, and at the end without waiting."""
    watching = Watching([run.folder])
    monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: self is watching._looking)
    page = Page(watching)
    with run.running():
        for session in (1, 2, 3):
            for done in (1, 2, 3):
                run.grow(session, done)
                page.ask()
                assert len(page.rounds) in (0, (session - 1) * LINES + done * METHODS)
    assert counted["page_content"] == 0
    run.finish()
    last = page.ask()["content"]
    assert counted["page_content"] == 1
    assert last == truth(run.folder)


@impatient
def test_costs_of_a_fast_run_wait_until_it_is_over(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_run, "MATURE", 3600.0)
    watching = Watching([run.folder])
    with run.running():
        for session in (1, 2, 3):
            run.end(session)
            content = asked(watching)["content"]["runs"][0]
            assert content["costs"] == {
                "reason": watched_run.LATER,
                "sessions": [],
                "targets": [],
            }
            assert content["scores"] == truth(run.folder)["runs"][0]["scores"]
    assert asked(watching)["content"] == truth(run.folder)  # it was stopped
    run.finish()
    assert asked(watching)["content"] == truth(run.folder)


def test_costs_are_those_of_some_time_before_until_their_turn_comes(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, turn = Watching([run.folder]), {"costs": True}
    monkeypatch.setattr(
        Pace,
        "ready",
        lambda self, haste=1.0: self in (watching._looking, watching._computing) or turn["costs"],
    )
    with run.running():
        run.end(2)
        before = asked(watching)["content"]["runs"][0]["costs"]
        assert before == truth(run.folder)["runs"][0]["costs"]
        turn["costs"] = False
        run.end(3)
        assert asked(watching)["content"]["runs"][0]["costs"] == before
        run.end(1)  # somebody resumes it from a checkpoint
        assert asked(watching)["content"]["runs"][0]["costs"]["reason"] == watched_run.LATER
        turn["costs"] = True
        run.end(2)
        assert asked(watching)["content"]["runs"][0]["costs"] == before
    run.finish()
    assert asked(watching)["content"] == truth(run.folder)


def test_a_page_that_is_loaded_again_and_again_is_not_computed_each_time(
    run: GrowingRun, counted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watching, turn = Watching([run.folder]), {"computing": True}
    monkeypatch.setattr(
        Pace, "ready", lambda self, haste=1.0: self is watching._looking or turn["computing"]
    )
    with run.running():
        run.grow(1, 1)
        watching.page()
        watching.page()
        assert counted["page_content"] == 1
        run.grow(1, 2)
        watching.page()
        assert counted["page_content"] == 2
        turn["computing"] = False
        run.grow(1, 3)
        page = watching.page()
        assert counted["page_content"] == 2
        # It asks for what it lacks.
        cursor = re.search(r'"cursor":"([0-9-]+)"', page.text)
        assert cursor is not None
        assert {row[5] for row in asked(watching, cursor[1])["rounds"]} == {3}


def test_rounds_come_while_a_content_is_computed(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, gate = page_module.page_content, threading.Event()

    def slow(*arguments: Any) -> Any:
        assert gate.wait(60)
        return usual(*arguments)

    page = Page(Watching([run.folder]))
    monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: True)
    with run.running():
        run.grow(1, 1)
        page.ask()
        monkeypatch.setattr(page_module, "page_content", slow)
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        run.grow(2, 0)
        assert page.ask()["content"] is None
        run.grow(2, 2)
        assert [row[4:6] for row in page.ask()["rounds"]] == 2 * [[2, 1]] + 2 * [[2, 2]]
        assert page.contents == 1
        monkeypatch.setattr(module, "PATIENCE", 60.0)
        gate.set()
        answer = page.ask()
        # What came while it was computed is added to it.
        assert answer["content"] is not None and len(answer["rounds"]) == 2 * METHODS
        assert sorted(page.rounds) == sorted(shown(truth(run.folder)))
        run.grow(2, 3)
        page.ask()
        assert sorted(page.rounds) == sorted(shown(truth(run.folder)))


def test_a_run_that_is_cut_while_a_content_is_computed(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, gate = page_module.page_content, threading.Event()

    def slow(*arguments: Any) -> Any:
        assert gate.wait(60)
        return usual(*arguments)

    page = Page(Watching([run.folder]))
    monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: True)
    with run.running():
        run.grow(1, 1)
        page.ask()
        monkeypatch.setattr(page_module, "page_content", slow)
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        run.grow(2, 3)
        page.ask()
        run.grow(1, 2)
        page.ask()
        run.grow(2, 1)
        assert page.ask()["rounds"] == []
        monkeypatch.setattr(module, "PATIENCE", 60.0)
        gate.set()
        page.ask()
        page.ask()
        assert sorted(page.rounds) == sorted(shown(truth(run.folder)))


def test_a_bug_reaches_who_asked_and_nobody_waits_for_ever(
    run: GrowingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def buggy(*arguments: Any) -> Any:
        raise ZeroDivisionError

    watching = Watching([run.folder])
    run.grow(1, 1)
    with monkeypatch.context() as patched:
        patched.setattr(page_module, "page_content", buggy)
        with pytest.raises(ZeroDivisionError):
            watching.page()
        assert "cannot be made" in watching.page().text
    monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: True)
    assert asked(watching)["content"] == truth(run.folder)


# --- pages ---------------------------------------------------------------------------------------


def test_a_page_waits_for_a_run(tmp_path: Path) -> None:
    page = Watching([tmp_path / "<script>alert(1)</script>\x1b[31m"]).page()
    assert "There is no run yet at" in page.text
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text and "\x1b" not in page.text
    assert 'http-equiv="refresh"' in page.text
    assert "script-src" not in page.policy and page.policy.startswith("default-src 'none'")


def test_a_folder_that_cannot_be_shown_says_why(run: GrowingRun) -> None:
    (run.folder / records.CONFIG).write_text("rounds = [")
    page = Watching([run.folder]).page()
    assert "config.toml" in page.text
    (run.folder / "more").symlink_to("/etc")
    assert 'http-equiv="refresh"' in Watching([run.folder]).page().text
