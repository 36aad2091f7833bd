"""Every tracker logs what the records say, however a run is interrupted, and harms none."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import ebbflow
from ebbflow import experiment
from ebbflow.core import judging, tasks
from ebbflow.core.errors import EbbflowError, EbbflowWarning, RunStoppedError
from ebbflow.runs import records
from ebbflow.runs.plain import check_plain
from ebbflow.runs.records import RunRecords
from ebbflow.runs.verify import verify
from ebbflow.simulation.callbacks import RoundFinished
from ebbflow.trackers import TRACKERS, named_trackers, tracker
from ebbflow.trackers.tracking import Scalars, TrackedOutcome, TrackedRun, Tracker
from tests.callbacks import Diary, StopAfter, Stopped
from tests.configs import digits, with_keys
from tests.run_folders import SMALL, same_results
from tests.test_cli import ebbflow as command_line
from tests.trackers.reading import READERS, expected, mlflow_client, plain

# Checkpoints at the ends of sessions only: what comes after one is computed again.
SELDOM = {**SMALL, "checkpoint.seconds": 1e6}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunRecords:
    folder = tmp_path_factory.mktemp("whole") / "run"
    return experiment.run(with_keys(SELDOM), folder, dataset=digits())


def run(folder: Path, *names: str, **keys: Any) -> RunRecords:
    config = with_keys(SELDOM, keys)
    return experiment.run(config, folder, dataset=digits(), callbacks=[*map(tracker, names)])


def started(folder: Path, *names: str, after: int) -> None:
    """Run, and break off when so many rounds have been logged."""
    callbacks = [*map(tracker, names), StopAfter(after)]
    with pytest.raises(Stopped):
        experiment.run(with_keys(SELDOM), folder, dataset=digits(), callbacks=callbacks)


def resumed(folder: Path, *names: str) -> RunRecords:
    return experiment.resume(folder, dataset=digits(), callbacks=[*map(tracker, names)])


def logged(name: str, folder: Path) -> object:
    return plain(READERS[name](folder))


def test_every_tracker_can_be_read_back() -> None:
    assert list(READERS) == list(TRACKERS)


# --- the contract, for every tracker -------------------------------------------------------------


@pytest.mark.parametrize("name", TRACKERS)
def test_what_is_logged_is_what_is_recorded(name: str, whole: RunRecords, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = run(folder, name)
    assert logged(name, folder) == plain(expected(found))
    assert whole.folder is not None and same_results(folder, whole.folder)
    check_plain(folder)
    assert verify(folder) == []


@pytest.mark.parametrize("name", TRACKERS)
def test_repeated_rounds_are_not_logged_twice(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, name, after=5)
    found = resumed(folder, name)
    assert logged(name, folder) == plain(expected(found))
    assert verify(folder) == []


@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_that_was_never_saved_begins_its_log_again(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, name, after=2)
    found = resumed(folder, name)
    assert logged(name, folder) == plain(expected(found))


@pytest.mark.parametrize("name", TRACKERS)
def test_rounds_from_before_are_logged_as_well(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, after=8)
    found = resumed(folder, name)
    assert logged(name, folder) == plain(expected(found))


@pytest.mark.parametrize("name", TRACKERS)
def test_a_finished_run_can_be_logged_and_once_is_enough(
    name: str, whole: RunRecords, tmp_path: Path
) -> None:
    assert whole.folder is not None
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    for _ in range(2):
        resumed(folder, name)
        assert logged(name, folder) == plain(expected(whole))
    assert verify(folder) == []


@pytest.mark.parametrize("name", TRACKERS)
def test_a_run_that_is_asked_to_stop_has_logged_its_last_round(name: str, tmp_path: Path) -> None:
    folder, diary = tmp_path / "run", Diary()
    with pytest.raises(RunStoppedError):
        experiment.run(
            with_keys(SELDOM),
            folder,
            dataset=digits(),
            callbacks=[tracker(name), diary],
            stop=lambda: len(diary.of(RoundFinished)) >= 4,
        )
    log = READERS[name](folder)
    assert [step for step, _ in log["fedavg", "previous", 1]["loss"]] == [1, 2, 3, 4, 5]
    found = resumed(folder, name)
    assert logged(name, folder) == plain(expected(found))


@pytest.mark.parametrize("name", TRACKERS)
def test_seeds_and_algorithms_are_kept_apart(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    keys = {"seeds": [2, 1], "algorithm": ["fedavg", "fedprox"], "methods": ["previous"]}
    found = run(folder, name, **keys, sessions=2)
    assert logged(name, folder) == plain(expected(found))


@pytest.mark.parametrize("name", TRACKERS)
def test_a_method_that_ends_is_logged_up_to_there(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # A method ends while a session begins, and under another seed all of them in the middle.
    found = run(folder, name, **{"faults.dropout.rate": 0.3, "seeds": [1, 2]})
    ended = {(e["seed"], e["method"], e["round"]) for e in found.events if e["event"] == "ended"}
    assert ended == {(1, "warm_start", 0), (2, "warm_start", 2), (2, "previous", 2)}
    assert logged(name, folder) == plain(expected(found))
    resumed(folder, name)
    assert logged(name, folder) == plain(expected(found))


def test_all_at_once_change_no_bit(whole: RunRecords, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, *TRACKERS)
    assert whole.folder is not None and same_results(folder, whole.folder)


# --- runs in memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["csv", "tensorboard", "mlflow"])
def test_a_run_in_memory_needs_a_place(name: str, tmp_path: Path) -> None:
    small: dict[str, Any] = {"sessions": 2, "rounds": 2, "seeds": [1], "devices": 4}
    with pytest.raises(EbbflowError, match=rf"the tracker {name} writes into the run folder, and"):
        ebbflow.compare("digits", **small, callbacks=[ebbflow.tracker(name)])
    for _ in range(2):  # one log of the latest run, or one of each
        found = ebbflow.compare(
            "digits", **small, callbacks=[ebbflow.tracker(name, folder=tmp_path)]
        )
        assert logged(name, tmp_path) == plain(expected(found))


# --- measures and devices ------------------------------------------------------------------------


def test_measures_are_logged_under_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    found = run(folder, "csv", metrics=["f1", "accuracy"])
    log = READERS["csv"](folder)["fedavg", "previous", 1]
    mine = [r.measures for r in found.rounds if r.method == "previous"]
    for name in ("f1", "accuracy"):
        assert [value for _, value in log[name]] == [m[name] for m in mine if m]
    assert {"start/f1", "final/f1"} <= log.keys() and "start/accuracy" not in log


def test_a_measure_with_one_of_our_names_hides_nothing() -> None:
    class Kept(Tracker):
        name = "kept"

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Scalars] = []

        def log(self, scalars: Scalars) -> None:
            self.seen.append(scalars)

    kept = Kept()
    with (
        mock.patch.dict(judging.JUDGES),
        mock.patch.dict(judging.MEASURES),
        mock.patch.dict(tasks.TASKS),
    ):
        ebbflow.register_metric("loss", lambda outputs, truth: 7.0, ["classes"])
        keys = {"metrics": ["accuracy", "loss"]}
        found = experiment.run(with_keys(SMALL, keys), dataset=digits(), callbacks=[kept])
    rounds = [s.values for s in kept.seen if s.moment == "round"]
    assert {values["measure/loss"] for values in rounds} == {7.0}
    assert [values["loss"] for values in rounds] == [r.loss for r in found.rounds]


# --- trackers that fail --------------------------------------------------------------------------


class Failing(Tracker):
    """A tracker that fails somewhere."""

    name = "failing"

    def __init__(self, where: str, error: Exception) -> None:
        super().__init__()
        self.where, self.error = where, error
        self.called: list[str] = []

    def _reach(self, where: str) -> None:
        self.called.append(where)
        if where == self.where:
            raise self.error

    def open(self) -> None:
        self._reach("open")

    def begin(self, run: TrackedRun) -> None:
        self._reach("begin")

    def log(self, scalars: Scalars) -> None:
        self._reach("log")

    def end(self, run: TrackedRun, outcome: TrackedOutcome) -> None:
        self._reach("end")

    def close(self) -> None:
        self._reach("close")


@pytest.mark.parametrize("where", ["open", "begin", "log", "end", "close"])
@pytest.mark.parametrize("error", [OSError("no route\x1b[31m"), EbbflowError("x"), KeyError("y")])
def test_a_tracker_that_fails_warns_once_and_the_run_goes_on(
    where: str, error: Exception, whole: RunRecords, tmp_path: Path
) -> None:
    folder, failing = tmp_path / "run", Failing(where, error)
    with pytest.warns(EbbflowWarning) as told:
        experiment.run(with_keys(SELDOM), folder, dataset=digits(), callbacks=[failing])
    (text,) = [str(warning.message) for warning in told]
    assert text.startswith("the tracker failing has stopped, and the run goes on (")
    assert type(error).__name__ in text and "\x1b" not in text
    assert failing.called.count(where) == (2 if where == "close" else 1)
    assert failing.called[-1] == "close"
    assert whole.folder is not None and same_results(folder, whole.folder)


def test_a_tracker_that_failed_may_be_used_again(whole: RunRecords, tmp_path: Path) -> None:
    (tmp_path / "csv").write_text("in the way")
    log = tracker("csv", tmp_path)
    config = with_keys(SELDOM)
    with pytest.warns(EbbflowWarning, match=r"tracker csv has stopped.*FileExistsError"):
        experiment.run(config, dataset=digits(), callbacks=[log])
    (tmp_path / "csv").unlink()
    experiment.run(config, dataset=digits(), callbacks=[log])
    assert logged("csv", tmp_path) == plain(expected(whole))


# --- libraries and names -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_library_is_named_before_anything_is_done(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    message = rf'^the tracker {name} needs the package {name}: pip install "ebbflow\[{name}\]"$'
    with pytest.raises(EbbflowError, match=message):
        ebbflow.tracker(name)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(EbbflowError, match="tracker: there is no tracker 'cvs': did you mean csv"):
        ebbflow.tracker("cvs")
    with pytest.raises(EbbflowError, match="--log: there is no tracker ''"):
        named_trackers(["csv,"], "--log")


# --- from the command line -----------------------------------------------------------------------

OPTIONS = ("--sessions", "2", "--rounds", "2", "--devices", "4", "--seeds", "1")


def test_the_option_takes_lists_and_may_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    logs = ("--log", "csv,tensorboard", "--log", "csv")
    done = command_line("compare", *OPTIONS, *logs, "--out", str(folder))
    assert done.code == 0, done.err
    found = records.read_records(folder)
    for name in ("csv", "tensorboard"):
        assert logged(name, folder) == plain(expected(found))
    assert command_line("verify", str(folder)).code == 0
    assert command_line("resume", str(folder), "--log", "mlflow").code == 0
    assert logged("mlflow", folder) == plain(expected(found))
    done = command_line("run", *OPTIONS, "--log", "csv", "--out", str(tmp_path / "one"))
    assert done.code == 0 and (tmp_path / "one" / "csv" / "rounds.csv").exists()


def test_a_wrong_name_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = command_line("compare", *OPTIONS, "--log", "tensorbord", "--out", str(folder))
    assert done.code == 2
    assert done.err.startswith("ebbflow: --log: there is no tracker 'tensorbord': did you mean")
    assert not folder.exists()


def test_a_failing_tracker_is_a_warning_on_the_command_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert command_line("compare", *OPTIONS, "--out", str(folder)).code == 0
    (folder / "csv").write_text("in the way")
    done = command_line("resume", str(folder), "--log", "csv")
    assert done.code == 0
    assert done.err.count("warning: the tracker csv has stopped, and the run goes on") == 1


# --- what each service is told -------------------------------------------------------------------


def test_wandb_leaves_no_link_in_the_run_folder_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    class Look(Diary):
        def round_finished(self, event: RoundFinished) -> None:
            check_plain(folder)
            assert not [path for path in folder.rglob("*") if path.is_symlink()]

    callbacks = [tracker("wandb"), Look()]
    experiment.run(with_keys(SELDOM), folder, dataset=digits(), callbacks=callbacks)


def test_a_link_that_wandb_left_when_it_was_killed_stops_no_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, after=5)
    logs = folder / "wandb" / "offline-run-1-x" / "logs"
    logs.mkdir(parents=True)
    (logs / "debug-core.log").symlink_to(tmp_path / "elsewhere.log")
    assert verify(folder) == []
    resumed(folder, "wandb")
    assert not (logs / "debug-core.log").is_symlink()
    for place, target in ((logs / "debug-core.log", tmp_path), (logs / "other.log", "x")):
        place.symlink_to(target)  # a folder elsewhere, or another name
        with pytest.raises(EbbflowError, match="is a symbolic link"):
            check_plain(folder)
        place.unlink()


def test_wandb_logs_to_a_server_only_what_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Online:
        step = 6
        id = "x"

        def __init__(self) -> None:
            self.steps: list[int] = []

        def log(self, values: dict[str, float], step: int) -> None:
            self.steps.append(step)

        def finish(self, exit_code: int) -> None:
            self.code = exit_code

    begun: list[Online] = []

    def init(**settings: Any) -> Online:
        assert settings["resume"] == "allow"
        begun.append(Online())
        return begun[-1]

    folder = tmp_path / "run"
    started(folder, "wandb", after=5)
    monkeypatch.setattr("wandb.init", init)
    resumed(folder, "wandb")
    for online in begun:
        assert sorted(set(online.steps)) == [*range(6, 13)]
        assert online.code == 0


def test_wandb_obeys_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    def init(**settings: Any) -> None:
        given.append(settings)
        raise ConnectionError("none")

    monkeypatch.setattr("wandb.init", init)
    small = {"sessions": 1, "rounds": 1, "seeds": [1], "methods": ["previous"]}
    for variables in ({}, {"WANDB_PROJECT": "mine", "WANDB_RUN_GROUP": "ours"}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.warns(EbbflowWarning, match="ConnectionError: none"):
            run(tmp_path / f"run-{len(given)}", "wandb", **small)
    assert [(g["project"], g["group"]) for g in given] == [("ebbflow", "run-0"), ("mine", "ours")]
    assert [g["dir"] for g in given] == [tmp_path / "run-0", tmp_path / "run-1"]
    assert given[0]["name"] == "previous, fedavg, seed 1"
    assert (given[0]["config"]["method"], given[0]["config"]["rounds"]) == ("previous", 1)
    with pytest.warns(EbbflowWarning, match="ConnectionError: none"):  # in memory
        experiment.run(with_keys(SELDOM, small), dataset=digits(), callbacks=[tracker("wandb")])
    assert given[2]["dir"] is None  # where W&B puts its files usually


def test_mlflow_says_what_each_of_its_runs_is_and_how_it_ended(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def states() -> dict[str, str]:
        client = mlflow_client(folder / "mlflow" / "mlruns")
        found = client.get_experiment_by_name("ebbflow")
        assert found is not None
        runs = client.search_runs([found.experiment_id])
        assert {run.data.tags["ebbflow.run"] for run in runs} == {"run"}
        assert {run.data.params["partition.devices"] for run in runs} == {"4"}
        return {run.info.run_name or "": run.info.status for run in runs}

    started(folder, "mlflow", after=5)
    names = ("warm_start, fedavg, seed 1", "previous, fedavg, seed 1")
    assert states() == dict.fromkeys(names, "FAILED")
    resumed(folder, "mlflow")
    assert states() == dict.fromkeys(names, "FINISHED")
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ


def test_mlflow_goes_where_its_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    folder = tmp_path / "run"
    run(folder, "mlflow")
    found = mlflow_client(store).get_experiment_by_name("mine")
    assert found is not None
    assert len(mlflow_client(store).search_runs([found.experiment_id])) == 2
    assert [path.name for path in (folder / "mlflow").iterdir()] == ["runs.json"]


def test_a_server_that_does_not_answer_is_one_warning(
    whole: RunRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = tmp_path / "run"
    with pytest.warns(EbbflowWarning, match="the tracker mlflow has stopped") as told:
        run(folder, "mlflow")
    assert len(told) == 1
    assert whole.folder is not None and same_results(folder, whole.folder)


def test_a_note_of_names_that_makes_no_sense_stops_the_tracker_only(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, "mlflow", after=5)
    path = folder / "mlflow" / "runs.json"
    for content in ('{"fedavg/previous/seed-1": {"id": "../../x"}}', "[", "{]"):
        path.write_text(content)
        with pytest.warns(EbbflowWarning, match="the tracker mlflow has stopped"):
            started_again(folder)
    path.unlink()
    found = resumed(folder, "mlflow")
    assert json.loads(path.read_text()).keys() == {
        "fedavg/warm_start/seed-1",
        "fedavg/previous/seed-1",
    }
    assert len(found.rounds) == 24


def started_again(folder: Path) -> None:
    callbacks = [tracker("mlflow"), StopAfter(1)]
    with pytest.raises(Stopped):
        experiment.resume(folder, dataset=digits(), callbacks=callbacks)
