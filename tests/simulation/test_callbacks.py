"""What callbacks are told of a run, when, and what happens if they fail."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import ebbflow
from ebbflow import experiment
from ebbflow.core.errors import EbbflowError, RunStoppedError, TrainingError
from ebbflow.runs import records
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    ResumePoint,
    RoundFinished,
    RunFinished,
    RunStarted,
    SessionFinished,
    SessionStarted,
    checked_callbacks,
)
from tests.callbacks import Diary, StopAfter, Stopped
from tests.configs import digits, with_keys
from tests.run_folders import SMALL, same_results, saved

TWO_SEEDS = {**SMALL, "seeds": [1, 2]}
PLACES = ("run_started", "session_started", "round_finished", "session_finished")
DIVERGING = {"algorithm": ["fedavg", "fedprox"], "lr.algorithms.fedprox.initial": 1e30}


def story(sessions: int = 4, rounds: int = 3, seeds: int = 2) -> list[str]:
    """Return the kinds of events of a run in which nothing special happens."""
    session = ["SessionStarted", *["RoundFinished"] * rounds, "SessionFinished"]
    return ["RunStarted", *session * sessions * seeds, "RunFinished"]


class Fails(Callback):
    """A callback that fails the first time that something happens."""

    def __init__(self, where: str, by: BaseException) -> None:
        def fail(event: object) -> None:
            raise by

        setattr(self, where, fail)


# --- what is told --------------------------------------------------------------------------------


@pytest.mark.parametrize("in_folder", [False, True])
def test_everything_is_told_in_order_with_every_field(in_folder: bool, tmp_path: Path) -> None:
    config, diary = with_keys(TWO_SEEDS), Diary()
    folder = tmp_path / "run" if in_folder else None
    found = experiment.run(config, folder, dataset=digits(), callbacks=[diary])
    assert diary.kinds == story()

    (started,) = diary.of(RunStarted)
    assert (started.config, started.folder, started.resumed) == (config, folder, None)
    assert started.seeds == (1, 2)

    rounds = diary.of(RoundFinished)
    assert [r for event in rounds for r in event.results] == found.rounds
    assert [event.step for event in rounds] == [*range(1, 13)] * 2
    for event in rounds:
        assert {(r.seed, r.session, r.round) for r in event.results} == {
            (event.seed, event.session.index, event.round)
        }
        assert [track.method.name for track in event.tracks] == [r.method for r in event.results]
        assert set(event.participants) <= set(event.devices)
        assert {r.participants for r in event.results} == {len(event.participants)}
        assert {r.devices for r in event.results} == {len(event.devices)}
        assert event.recorded == []  # nobody was left out

    for sessions, name in (
        (diary.of(SessionStarted), "start"),
        (diary.of(SessionFinished), "costs"),
    ):
        assert [(e.seed, e.session.index) for e in sessions] == [
            (seed, session) for seed in (1, 2) for session in (1, 2, 3, 4)
        ]
        for session in sessions:
            assert session.world.seed == session.seed
            lines = [line for line in session.recorded if line["event"] == name]
            assert [line["method"] for line in lines] == [t.method.name for t in session.tracks]
    told = [
        line
        for kind in (SessionStarted, SessionFinished)
        for e in diary.of(kind)
        for line in e.recorded
    ]
    in_file = [e for e in found.events if e["event"] != "finished"]
    assert sorted(map(str, told)) == sorted(map(str, in_file))

    (over,) = diary.of(RunFinished)
    assert (over.config, over.folder, over.outcome, over.error) == (
        config,
        folder,
        "finished",
        None,
    )
    assert over.rows == found.rows


def test_participants_are_those_who_were_drawn() -> None:
    diary = Diary()
    keys = {"partition.devices": 6, "participation.share": 0.5}
    experiment.run(with_keys(SMALL, keys), dataset=digits(), callbacks=[diary])
    for event in diary.of(RoundFinished):
        assert len(event.participants) == len(event.devices) // 2


def test_events_cannot_be_changed_and_show_no_models() -> None:
    diary = Diary()
    experiment.run(with_keys(SMALL), dataset=digits(), callbacks=[diary])
    for event in diary.events:
        with pytest.raises(FrozenInstanceError):
            event.config = None  # type: ignore[attr-defined]
        assert "tensor" not in repr(event) and len(repr(event)) < 2000


def test_methods_that_end_are_told_of_once_with_the_reason() -> None:
    diary = Diary()
    config = with_keys(SMALL, DIVERGING)
    found = experiment.run(config, dataset=digits(), callbacks=[diary])
    ended = diary.of(MethodEnded)
    assert [(e.algorithm, e.method) for e in ended] == [
        ("fedprox", "warm_start"),
        ("fedprox", "previous"),
    ]
    for event in ended:
        assert (event.seed, event.session.index, event.round) == (1, 1, 1)
        assert event.reason.startswith("session 1, round 1, device")
        assert event.track.method.group == "fedprox"
        assert event.recorded == [
            e for e in found.events if e.get("text") == event.reason and e["method"] == event.method
        ]
    assert {r.algorithm for e in diary.of(RoundFinished) for r in e.results} == {"fedavg"}
    first = next(e for e in diary.of(RoundFinished))
    assert diary.events.index(ended[-1]) < diary.events.index(first)


def test_the_base_class_does_nothing() -> None:
    config = with_keys(SMALL)
    plain = experiment.run(config, dataset=digits())
    followed = experiment.run(config, dataset=digits(), callbacks=[Callback()])
    assert (followed.rounds, followed.rows) == (plain.rounds, plain.rows)


def test_what_a_callback_needs_is_at_the_front_door() -> None:
    for kind in (RunStarted, SessionStarted, RoundFinished, MethodEnded, SessionFinished):
        assert getattr(ebbflow, kind.__name__) is kind
    assert ebbflow.Callback is Callback
    diary = Diary()
    ebbflow.compare("digits", sessions=4, rounds=3, seeds=[1, 2], devices=4, callbacks=[diary])
    assert diary.kinds == story()


# --- runs that stop and go on --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "point"),
    [(1, (1, 1, 1)), (3, (1, 1, None)), (5, (1, 2, 2)), (14, (2, 1, 2)), (24, (2, 4, None))],
)
def test_a_run_that_is_asked_to_stop_tells_of_every_round_once(
    after: int, point: tuple[int, int, int | None], tmp_path: Path
) -> None:
    config, before, then = with_keys(TWO_SEEDS), Diary(), Diary()
    folder = tmp_path / "run"

    def stop() -> bool:  # asked before the callback is told
        return len(before.of(RoundFinished)) + 1 >= after

    with pytest.raises(RunStoppedError):
        experiment.run(config, folder, dataset=digits(), callbacks=[before], stop=stop)
    (over,) = before.of(RunFinished)
    assert over.outcome == "stopped" and isinstance(over.error, RunStoppedError)
    assert over.rows == ()
    found = experiment.resume(folder, dataset=digits(), callbacks=[then])
    (started,) = then.of(RunStarted)
    assert started.resumed == ResumePoint(*point)
    heard = [r for d in (before, then) for e in d.of(RoundFinished) for r in e.results]
    assert heard == found.rounds
    for kind in (SessionStarted, SessionFinished):
        assert len(before.of(kind)) + len(then.of(kind)) == 8
    assert then.of(RunFinished)[0].rows == found.rows


def test_an_interrupt_counts_as_stopped() -> None:
    diary = Diary()
    config = with_keys(SMALL)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(
            config, dataset=digits(), callbacks=[diary, StopAfter(2, by=KeyboardInterrupt)]
        )
    (over,) = diary.of(RunFinished)
    assert over.outcome == "stopped" and isinstance(over.error, KeyboardInterrupt)


def test_a_run_that_fails_tells_why() -> None:
    diary = Diary()
    keys = {**DIVERGING, "lr.algorithms.fedavg.initial": 1e38}
    with pytest.raises(TrainingError) as raised:
        experiment.run(with_keys(SMALL, keys), dataset=digits(), callbacks=[diary])
    (over,) = diary.of(RunFinished)
    assert (over.outcome, over.error) == ("failed", raised.value)


def test_of_a_finished_run_nothing_but_start_and_end_is_told(tmp_path: Path) -> None:
    folder, diary = tmp_path / "run", Diary()
    found = experiment.run(with_keys(SMALL), folder, dataset=digits())
    experiment.resume(folder, dataset=digits(), callbacks=[diary])
    assert diary.kinds == ["RunStarted", "RunFinished"]
    assert diary.of(RunStarted)[0].resumed == ResumePoint(1, 4)
    assert diary.of(RunFinished)[0].rows == found.rows


# --- callbacks that fail -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment.run(with_keys(SMALL), folder, dataset=digits())
    return folder


@pytest.mark.parametrize("where", PLACES)
def test_a_failing_callback_ends_the_run_which_can_be_resumed(
    where: str, whole: Path, tmp_path: Path
) -> None:
    folder, diary, mistake = tmp_path / "run", Diary(), ValueError("mine")
    with pytest.raises(ValueError, match="mine"):
        experiment.run(
            with_keys(SMALL), folder, dataset=digits(), callbacks=[diary, Fails(where, mistake)]
        )
    (over,) = diary.of(RunFinished)
    assert (over.outcome, over.error) == ("failed", mistake)
    experiment.resume(folder, dataset=digits())
    assert same_results(folder, whole)


def test_a_callback_that_fails_at_the_end_leaves_a_finished_run(
    whole: Path, tmp_path: Path
) -> None:
    folder, diary = tmp_path / "run", Diary()
    fails = Fails("run_finished", ValueError("mine"))
    with pytest.raises(ValueError, match="mine"):
        experiment.run(with_keys(SMALL), folder, dataset=digits(), callbacks=[fails, diary])
    assert len(diary.of(RunFinished)) == 1
    assert same_results(folder, whole)


def test_what_ended_a_run_is_raised_rather_than_what_callbacks_raise_then() -> None:
    class Both(StopAfter):
        def run_finished(self, event: RunFinished) -> None:
            raise ValueError("mine")

    with pytest.raises(Stopped) as raised:
        experiment.run(with_keys(SMALL), dataset=digits(), callbacks=[Both(1)])
    assert raised.value.__notes__ == ["a callback failed as well: ValueError('mine')"]


def test_who_fails_at_the_start_is_not_told_of_the_end() -> None:
    first, last = Diary(), Diary()

    class Odd(Diary):
        def run_started(self, event: RunStarted) -> None:
            raise ValueError("mine")

    odd = Odd()
    with pytest.raises(ValueError, match="mine"):
        experiment.run(with_keys(SMALL), dataset=digits(), callbacks=[first, odd, last])
    assert first.kinds == ["RunStarted", "RunFinished"]
    assert odd.kinds == last.kinds == []


# --- what is no callback -------------------------------------------------------------------------


def nothing() -> None:
    """Be no callback."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["csv"], r"callbacks\[0\] = 'csv' is no callback: .* ebbflow.tracker\(\"csv\"\)"),
        ([Diary(), Diary], r"callbacks\[1\] = <class 'tests.callbacks.Diary'> is no callback"),
        ([nothing], r"callbacks\[0\] = <function nothing at .* is no callback"),
        (["a\x1b[31m"], r"'a\\x1b\[31m' is no callback"),
        (Diary(), r"callbacks = <tests.callbacks.Diary object at .* is no list"),
        ("csv", r"callbacks = 'csv' is no list"),
        (None, r"callbacks = None is no list"),
    ],
)
def test_anything_else_is_refused_before_anything_is_done(
    given: Any, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    calls: list[Callable[[], object]] = [
        lambda: ebbflow.compare("digits", seeds=[1], out=folder, callbacks=given),
        lambda: ebbflow.run("digits", seeds=[1], out=folder, callbacks=given),
        lambda: ebbflow.resume(folder, callbacks=given),
    ]
    for call in calls:
        with pytest.raises(EbbflowError, match=message):
            call()
    assert not folder.exists()


def test_a_tuple_of_callbacks_is_as_good_as_a_list() -> None:
    one, other = Diary(), Diary()
    assert checked_callbacks((one, other), "callbacks") == [one, other]


def test_resume_from_python_tells_callbacks(tmp_path: Path) -> None:
    folder, diary = tmp_path / "run", Diary()
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL), folder, callbacks=[StopAfter(2)])
    assert saved(folder)["round"] == 2
    found = ebbflow.resume(folder, callbacks=[diary])
    assert diary.of(RunStarted)[0].resumed == ResumePoint(1, 1, 2)
    assert [r for e in diary.of(RoundFinished) for r in e.results] == found.rounds[4:]
    assert found.rounds == records.read_rounds(folder)


# --- the page about them -------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"
KINDS = (RunStarted, SessionStarted, RoundFinished, MethodEnded, SessionFinished, RunFinished)


def test_the_page_lists_every_event_and_every_field() -> None:
    page = PAGE.read_text(encoding="utf-8")
    first = page.split("These are the fields:")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", first, flags=re.MULTILINE)
    names = [name for name in vars(Callback) if not name.startswith("_")]
    assert [method for _, method in rows] == names
    assert [getattr(ebbflow, kind) for kind, _ in rows] == [*KINDS]
    table = page.split("These are the fields:")[1].split("Records cannot be changed")[0]
    listed: dict[str, set[str]] = {kind.__name__: set() for kind in KINDS}
    for fields, of in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", table, flags=re.MULTILINE):
        every = [kind.__name__ for kind in KINDS[1:-1]]
        for kind in every if of == "the four in between" else re.findall(r"\w+", of):
            listed[kind] |= set(re.findall(r"\w+", fields))
    for kind in KINDS:
        properties = {n for n in dir(kind) if isinstance(getattr(kind, n, None), property)}
        assert listed[kind.__name__] == {f.name for f in dataclasses.fields(kind)} | properties


def test_python_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, "callbacks.md", "exec"), names)
    assert capsys.readouterr().out == f"{names['lowest'].accuracy}\n"
    assert set(names["lowest"].accuracy) == {"learned", "warm_start", "previous", "average"}
    assert len(list(Path("runs/logged/csv").iterdir())) == 2
