"""Run folders: they explain the run, and a run that was stopped goes on as if nothing happened."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from ebbflow import experiment, recording
from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core import files, processor
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.registry import RegisteredAlgorithm, RegisteredStart
from ebbflow.core.start import Start, StartingPoint
from ebbflow.core.types import Gradient, State, Theta
from ebbflow.runs import checkpoint, records
from ebbflow.runs.checkpoint import FORMER
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.history import Store, StoredSession
from ebbflow.simulation.callbacks import RoundFinished
from ebbflow.starts import STARTS
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys, with_settings
from tests.run_folders import made_old, resealed, saved
from tests.test_cli import EXECUTABLE, ebbflow, tree

SMALL: dict[str, Any] = {
    "methods": ["warm_start", "previous", "average"],
    "seeds": [1, 2],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 4,
    "data.limit_train": 300,
}
ROUNDS = 2 * 4 * 3
EVERY_ROUND = {"checkpoint.seconds": 1e-9}


def configured(**settings: Any) -> Config:
    return with_keys(SMALL, settings)


def run_until_stopped(config: Config, folder: Path, rounds: int) -> None:
    with pytest.raises(Stopped):
        experiment.run(config, folder, callbacks=[StopAfter(rounds)])


def events(folder: Path) -> list[dict[str, Any]]:
    """Return what happened, without how long it took."""
    found = list(records.read_lines(folder / records.EVENTS))
    return [{key: value for key, value in event.items() if key != "seconds"} for event in found]


def assert_same_run(folder: Path, whole: Path) -> None:
    for name in (records.SUMMARY, records.METRICS, records.CONFIG, records.ENVIRONMENT):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    assert events(folder) == events(whole)
    assert tree(folder / records.HISTORY) == tree(whole / records.HISTORY)


# --- the folder explains the run -----------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that nobody stopped, with a checkpoint after every session."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment.run(configured(), folder)
    return folder


@pytest.fixture(scope="module")
def whole_saved_often(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that nobody stopped, with a checkpoint after every round."""
    folder = tmp_path_factory.mktemp("often") / "run"
    experiment.run(configured(**EVERY_ROUND), folder)
    return folder


def test_every_method_seed_session_and_round_has_one_line(whole: Path) -> None:
    found = [(r.seed, r.session, r.round, r.method) for r in records.read_rounds(whole)]
    methods = ("warm_start", "previous", "average")
    assert found == list(itertools.product((1, 2), range(1, 5), range(1, 4), methods))
    assert len((whole / records.METRICS).read_text().splitlines()) == len(found)


def test_the_configuration_in_the_folder_gives_the_same_rows(whole: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    answer = ebbflow("compare", str(whole / records.CONFIG), "--json", "--out", str(again))
    assert answer.code == 0
    assert_same_run(again, whole)


def test_the_configuration_holds_what_was_left_to_the_data_set(whole: Path) -> None:
    config = tomllib.loads((whole / records.CONFIG).read_text())
    assert config["local"]["batch"] == 16
    assert config["lr"]["algorithms"]["fedavg"] == {"initial": 0.01, "floor": 0.5}


def test_the_environment_tells_versions_machine_and_data(whole: Path) -> None:
    environment = json.loads((whole / records.ENVIRONMENT).read_text())
    assert environment["versions"]["torch"].startswith(torch.__version__.split("+", maxsplit=1)[0])
    assert {"python", "platform", "processor", "cores"} <= environment.keys()
    data = environment["dataset"]
    assert (data["name"], data["train"], data["test"], data["classes"]) == ("digits", 300, 360, 10)
    assert len(data["digest"]) == 32
    assert environment["instructions"] == processor.instructions()
    assert environment["instructions"]["torch"] == torch.backends.cpu.get_cpu_capability()


def test_the_events_tell_who_was_here_and_what_was_drawn_on(whole: Path) -> None:
    starts = [event for event in events(whole) if event["event"] == "start"]
    assert len(starts) == 2 * 4 * 3  # seeds, sessions, methods
    last = [event for event in starts if event["session"] == 4 and event["method"] == "warm_start"]
    for event in last:
        assert event["devices"] == [4, 5, 6, 7]
        assert sum(event["weights"].values()) == pytest.approx(1)
        assert event["weights"].keys() == event["distances"].keys() == {"2", "3"}
    finished = [event for event in events(whole) if event["event"] == "finished"]
    assert [(event["seed"], event["session"]) for event in finished] == list(
        itertools.product((1, 2), range(1, 5))
    )


def test_nothing_in_the_folder_is_a_pickle_or_a_temporary_file(whole: Path) -> None:
    kinds = {Path(name).suffix for name in tree(whole)}
    assert kinds <= {"", ".json", ".jsonl", ".toml", ".safetensors"}


# --- stopping and going on -----------------------------------------------------------------------


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 8, 11, 12, 13, 17, ROUNDS])
def test_a_stopped_run_goes_on_from_its_last_session(
    stop: int, whole: Path, tmp_path: Path
) -> None:
    run_until_stopped(configured(), tmp_path / "run", stop)
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 8, 11, 12, 13, 17, ROUNDS])
def test_a_stopped_run_goes_on_from_its_last_round(
    stop: int, whole_saved_often: Path, tmp_path: Path
) -> None:
    run_until_stopped(configured(**EVERY_ROUND), tmp_path / "run", stop)
    rounds = StopAfter(ROUNDS + 1)
    experiment.resume(tmp_path / "run", callbacks=[rounds])
    repeated = 1 if stop % 3 == 0 else 0  # a session's last round is saved with its end
    assert ROUNDS + 1 - rounds.left == ROUNDS - stop + repeated
    assert_same_run(tmp_path / "run", whole_saved_often)


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_may_be_stopped_again_and_again(
    every: int, whole_saved_often: Path, tmp_path: Path
) -> None:
    run_until_stopped(configured(**EVERY_ROUND), tmp_path / "run", every + 1)
    for _ in range(ROUNDS + 8):
        try:
            experiment.resume(tmp_path / "run", callbacks=[StopAfter(every + 1)])
        except Stopped:
            continue
        break
    assert_same_run(tmp_path / "run", whole_saved_often)


def test_a_run_stopped_before_its_first_round_goes_on(whole: Path, tmp_path: Path) -> None:
    records.claim_folder(tmp_path / "run", configured().model_dump())
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_lines_that_a_crash_cut_short_are_written_again(whole: Path, tmp_path: Path) -> None:
    run_until_stopped(configured(), tmp_path / "run", 8)
    for name in (records.METRICS, records.EVENTS):
        with (tmp_path / "run" / name).open("ab") as lines:
            lines.write(b'{"algorithm": "fed')
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_a_crash_while_the_summary_is_written_loses_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: dict[str, Any], **options: Any) -> None:
        if path.name == records.SUMMARY:
            raise Stopped
        write_sealed(path, content, **options)

    write_sealed = records.write_sealed
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(records, "write_sealed", write)
        experiment.run(configured(), tmp_path / "run")
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_a_crash_between_history_and_checkpoint_loses_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(folder: RunFolder, place: tuple[int, int, int], *facts: Any) -> None:
        if place[:2] == (2, 3):
            raise Stopped
        checkpoint.write_checkpoint(folder, place, *facts)

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(recording, "write_checkpoint", write)
        experiment.run(configured(), tmp_path / "run")
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


# --- on another processor ------------------------------------------------------------------------


def start_elsewhere(folder: Path, instructions: dict[str, str] | None) -> None:
    """Stop a run, and let it seem to have been started with these instructions."""
    run_until_stopped(configured(**EVERY_ROUND), folder, 8)

    def elsewhere(environment: dict[str, Any]) -> None:
        environment["instructions"] = instructions
        if instructions is None:  # a run of an earlier version
            del environment["instructions"]

    resealed(folder / records.ENVIRONMENT, elsewhere)


def run_warnings(folder: Path) -> list[str]:
    """Return the warnings that concern the run as a whole."""
    return [e["text"] for e in events(folder) if e["event"] == "warning" and "method" not in e]


OTHER = {"torch": "DEFAULT", "oneDNN": "SSE41"}


def test_going_on_with_other_instructions_warns_in_the_events(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start_elsewhere(folder, OTHER)
    lines = len(events(folder))
    with pytest.raises(Stopped):
        experiment.resume(folder, callbacks=[StopAfter(4)])
    (text,) = run_warnings(folder)
    assert re.search(r"started with other .* \(torch DEFAULT, oneDNN SSE41\) than .* now", text)
    assert processor.described(processor.instructions()) in text
    assert "set ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA" in text
    assert events(folder)[lines]["event"] == "warning"  # where the run went on
    experiment.resume(folder)
    assert run_warnings(folder) == [text, text]
    before = tree(folder)
    experiment.resume(folder)  # nothing is left to compute
    assert tree(folder) == before


def test_a_warning_changes_nothing_in_what_is_read_of_a_run(tmp_path: Path, whole: Path) -> None:
    start_elsewhere(tmp_path / "run", OTHER)
    resumed = experiment.resume(tmp_path / "run")
    assert resumed.rows == records.read_records(whole).rows
    for command in (("metrics",), ("cost",), ("history", "ls")):
        told, quiet = (ebbflow(*command, str(path)) for path in (tmp_path / "run", whole))
        assert (told.code, quiet.code) == (0, 0)


def test_the_same_instructions_or_none_recorded_do_not_warn(tmp_path: Path) -> None:
    # Whether a processor has no more than AVX2 or is held to it makes no difference.
    held = {**processor.instructions(), "ONEDNN_MAX_CPU_ISA": "as it is"}
    for name, instructions in (("held", held), ("old", None)):
        start_elsewhere(tmp_path / name, instructions)
        answer = ebbflow("resume", str(tmp_path / name))
        assert answer.code == 0
        assert "warning" not in answer.err
        assert run_warnings(tmp_path / name) == []


def test_the_command_line_warns_before_it_goes_on(tmp_path: Path) -> None:
    start_elsewhere(tmp_path / "run", OTHER)
    answer = ebbflow("resume", str(tmp_path / "run"), "--json")
    assert answer.code == 0
    assert answer.err.startswith("warning: the run was started with other instructions")
    assert json.loads(answer.out)["rows"]
    assert "warning" not in ebbflow("resume", str(tmp_path / "run")).err


RETENTION = {"sessions": 6, "rounds": 2, "history.limit": 2}


@pytest.mark.parametrize("keep", ["last", "diverse"])
def test_only_so_many_sessions_are_kept(keep: str, tmp_path: Path) -> None:
    experiment.run(configured(**RETENTION, **{"history.keep": keep}), tmp_path / "run")
    for method in ("warm_start", "previous", "average"):
        where = tmp_path / "run" / records.HISTORY / "fedavg" / method / "seed-2"
        assert len(list(where.glob("session-*"))) == 2
        if keep == "last":
            assert (where / "session-0005.safetensors").exists()
        assert (where / "pilot.safetensors").exists()


@pytest.mark.parametrize("keep", ["last", "diverse"])
def test_a_crash_before_entries_are_deleted_loses_nothing_and_leaves_nothing(
    keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(**RETENTION, **{"history.keep": keep})
    experiment.run(config, tmp_path / "whole")
    for call in (11, 17, 36):  # of 3 methods x 6 sessions x 2 seeds: midway, a seed's end, the end
        folder = tmp_path / f"run-{call}"
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(Store, "keep", _dying(call))
            experiment.run(config, folder)
        experiment.resume(folder)
        assert_same_run(folder, tmp_path / "whole")


def _dying(call: int) -> Callable[[Store, Collection[int]], None]:
    """Return a `Store.keep` that works until that call."""
    calls, really = itertools.count(1), Store.keep

    def keep(self: Store, sessions: Collection[int]) -> None:
        if next(calls) == call:
            raise Stopped
        really(self, sessions)

    return keep


# --- sketches ------------------------------------------------------------------------------------

SKETCH = {
    "parameters.warm_start.signature": "sketch",
    "parameters.warm_start.scale": 400.0,
    "sessions": 6,
}


@pytest.fixture(scope="module")
def sketched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that leaves past sessions out by their sketches."""
    folder = tmp_path_factory.mktemp("sketched") / "run"
    experiment.run(configured(**SKETCH), folder)
    return folder


def test_a_run_with_sketches_is_the_run_without(sketched: Path, tmp_path: Path) -> None:
    exact = tmp_path / "exact"
    experiment.run(configured(**SKETCH | {"parameters.warm_start.signature": "exact"}), exact)
    fields = [[r._asdict() for r in records.read_rounds(path)] for path in (sketched, exact)]
    for ours, theirs in zip(*fields, strict=True):
        assert ours.pop("loss") == pytest.approx(theirs.pop("loss"), rel=1e-5)
        assert ours == theirs
    for ours, theirs in zip(events(sketched), events(exact), strict=True):
        assert ours.get("weights") == pytest.approx(theirs.get("weights"), abs=1e-6)
    measured = [
        (len(event["distances"]), len(event["weights"]))
        for event in events(sketched)
        if event["event"] == "start" and event["method"] == "warm_start" and event["session"] == 6
    ]
    assert measured
    assert all(few < many == 4 for few, many in measured)


def test_a_history_holds_sketches_where_it_holds_signatures(sketched: Path) -> None:
    for method, signed in (("warm_start", True), ("average", False)):
        below = sketched / records.HISTORY / "fedavg" / method / "seed-1"
        tensors = load((below / "session-0003.safetensors").read_bytes())
        assert ("sketch/tensors-1/values" in tensors) == signed


@pytest.mark.parametrize("stop", [8, 13, 16, 34])
def test_a_stopped_run_with_sketches_goes_on(stop: int, sketched: Path, tmp_path: Path) -> None:
    run_until_stopped(configured(**SKETCH), tmp_path / "run", stop)
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", sketched)


def test_without_a_folder_the_run_is_the_same(sketched: Path) -> None:
    assert experiment.run(configured(**SKETCH)).rounds == records.read_rounds(sketched)


def test_sketches_may_be_switched_on_when_a_run_goes_on(sketched: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_until_stopped(
        configured(**SKETCH | {"parameters.warm_start.signature": "exact"}), folder, 14
    )
    config = folder / records.CONFIG
    config.write_text(config.read_text().replace('signature = "exact"', 'signature = "sketch"'))
    experiment.resume(folder)
    found, expected = (records.read_rounds(path) for path in (folder, sketched))
    assert [r.accuracy for r in found] == [r.accuracy for r in expected]
    below = folder / records.HISTORY / "fedavg" / "warm_start" / "seed-1"
    kept = [
        "sketch/tensors-1/values" in load((below / f"session-000{z}.safetensors").read_bytes())
        for z in range(2, 7)
    ]
    assert kept == [False, False, False, True, True]


@pytest.mark.parametrize("signature", ["exact", "sketch"])
def test_a_past_on_disk_is_read_and_not_held(signature: str, tmp_path: Path) -> None:
    kinds: list[type] = []

    class Look(StopAfter):
        def round_finished(self, event: RoundFinished) -> None:
            kinds.extend(type(entry) for track in event.tracks for entry in track.past)

    settings = SKETCH | {"parameters.warm_start.signature": signature, "seeds": [1]}
    experiment.run(configured(**settings), tmp_path / "run", callbacks=[Look(0)])
    assert kinds
    assert set(kinds) == {StoredSession}


# --- state of an algorithm -----------------------------------------------------------------------


def stateful() -> Algorithm:
    """Return a toy with momentum on the server and a counter on every device, both of effect."""

    def direction(g: Gradient, theta: Theta, shared: Broadcast, client: State) -> Gradient:
        return g * (1 + 0.3 * client["rounds"])

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, _ = weighted_upload(shared, client, run)
        return sent, {"rounds": client["rounds"] + 1}

    def server_step(theta: Theta, server: State, total: Upload) -> tuple[Theta, State]:
        momentum = 0.5 * server["momentum"] + total.delta / total.samples
        return theta + momentum, {"momentum": momentum}

    return Algorithm(
        "stateful",
        init_server=lambda theta, population: {"momentum": torch.zeros_like(theta)},
        init_client=lambda shared: {"rounds": torch.zeros((), dtype=shared.theta.dtype)},
        direction=direction,
        upload=upload,
        server_step=server_step,
    )


@pytest.mark.parametrize("engine", ["vectorised", "sequential"])
def test_the_state_of_server_and_devices_survives(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS._records, "stateful", RegisteredAlgorithm("stateful", stateful))
    settings = {
        "algorithm": ["stateful"],
        "rounds": 4,
        "engine.kind": engine,
        # Few take part, so that devices come to a round with different counters, or none.
        "participation.share": 2,
    }
    config = configured(**EVERY_ROUND, **settings)
    experiment.run(config, tmp_path / "whole")
    plain = experiment.run(configured(**settings | {"algorithm": ["fedavg"]}))
    stated = records.read_rounds(tmp_path / "whole")
    assert [r.loss for r in plain.rounds][:3] == [r.loss for r in stated][:3]
    assert [r.loss for r in plain.rounds][3:6] != [r.loss for r in stated][3:6]
    for stop in (2, 11, 15):
        run_until_stopped(config, tmp_path / f"run-{stop}", stop)
        experiment.resume(tmp_path / f"run-{stop}")
        assert_same_run(tmp_path / f"run-{stop}", tmp_path / "whole")


def test_kept_states_and_teachers_survive(tmp_path: Path) -> None:
    """Stopped within sessions: what devices keep over a boundary, and the session's teacher."""
    settings = {
        "algorithm": ["scaffold", "moon", "feddyn"],
        "methods": ["warm_start", "continuous"],
        "parameters.continuous.base": "algorithm",
        "boundary.state": "keep",
        "schedule.kind": "random",
        "schedule.stay": 1.0,
        "participation.share": 3,
        "sessions": 4,
        "seeds": [1],
        "lr.initial": 0.05,
    }
    config = configured(**EVERY_ROUND, **settings)
    experiment.run(config, tmp_path / "whole")
    for stop in (5, 8, 11):
        run_until_stopped(config, tmp_path / f"run-{stop}", stop)
        experiment.resume(tmp_path / f"run-{stop}")
        assert_same_run(tmp_path / f"run-{stop}", tmp_path / "whole")


def test_a_checkpoint_holds_the_teacher(tmp_path: Path) -> None:
    settings = {"methods": ["continuous", "previous"], "seeds": [1]}
    run_until_stopped(configured(**EVERY_ROUND, **settings), tmp_path / "run", 8)
    checkpoint = saved(tmp_path / "run")
    assert [track["teacher"] for track in checkpoint["tracks"]] == [True, False]
    tensors = load((tmp_path / "run" / checkpoint["tensors"]).read_bytes())
    below = tmp_path / "run" / records.HISTORY / "fedavg" / "continuous" / "seed-1"
    last = load((below / "session-0002.safetensors").read_bytes())
    assert torch.equal(
        tensors["0/teacher/theta"], torch.cat([last["theta/weight"].flatten(), last["theta/bias"]])
    )


# --- starts that are learnt ----------------------------------------------------------------------

LEARNED: dict[str, Any] = {"methods": ["learned", "previous"], "seeds": [1], "sessions": 5}


@pytest.mark.parametrize("often", [EVERY_ROUND, {}], ids=["every round", "every session"])
def test_a_stopped_run_with_learned_starts_goes_on(often: dict[str, Any], tmp_path: Path) -> None:
    """A later session needs the model that the interrupted one began with, and its devices."""
    config = configured(**LEARNED, **often)
    experiment.run(config, tmp_path / "whole")
    for stop in (5, 9, 13):
        run_until_stopped(config, tmp_path / f"run-{stop}", stop)
        experiment.resume(tmp_path / f"run-{stop}")
        assert_same_run(tmp_path / f"run-{stop}", tmp_path / "whole")
    assert experiment.run(config).rounds == records.read_rounds(tmp_path / "whole")


def test_learned_starts_go_on_where_devices_change_and_few_sessions_are_kept(
    tmp_path: Path,
) -> None:
    few = {"history.keep": "last", "history.limit": 2}
    churn = {"schedule.kind": "random", "schedule.stay": 1.0}
    config = configured(**LEARNED | few | churn | EVERY_ROUND)
    experiment.run(config, tmp_path / "whole")
    run_until_stopped(config, tmp_path / "run", 11)
    experiment.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_checkpoint_holds_the_model_that_a_learned_session_began_with(tmp_path: Path) -> None:
    run_until_stopped(configured(**LEARNED, **EVERY_ROUND), tmp_path / "run", 8)
    checkpoint = saved(tmp_path / "run")
    assert [track["kept"] for track in checkpoint["tracks"]] == [True, False]
    tensors = load((tmp_path / "run" / checkpoint["tensors"]).read_bytes())
    experiment.resume(tmp_path / "run")
    below = tmp_path / "run" / records.HISTORY / "fedavg" / "learned" / "seed-1"
    entry = load((below / "session-0003.safetensors").read_bytes())
    weight, bias = entry["start/theta/weight"], entry["start/theta/bias"]
    assert torch.equal(tensors["0/kept/theta"], torch.cat([weight.flatten(), bias]))
    assert not torch.equal(tensors["0/kept/theta"], tensors["0/theta"])


def test_a_checkpoint_of_an_earlier_version_goes_on_without_kept_starts(tmp_path: Path) -> None:
    run_until_stopped(configured(**EVERY_ROUND), tmp_path / "run", 8)
    made_old(tmp_path / "run")
    path = tmp_path / "run" / FORMER
    written = json.loads(path.read_text())
    for track in written["tracks"]:
        assert track.pop("kept") is False
    path.write_text(json.dumps(written))
    assert len(experiment.resume(tmp_path / "run").rounds) == ROUNDS * 3


def test_a_history_holds_starts_and_members_of_learned_sessions_alone(tmp_path: Path) -> None:
    experiment.run(configured(**LEARNED), tmp_path / "run")
    members = {e["session"]: e["devices"] for e in events(tmp_path / "run") if "devices" in e}
    for method, kept in (("learned", True), ("previous", False)):
        below = tmp_path / "run" / records.HISTORY / "fedavg" / method / "seed-1"
        for session in range(2, 6):
            tensors = load((below / f"session-{session:04d}.safetensors").read_bytes())
            assert ("start/theta/weight" in tensors) == ("members" in tensors) == kept
            if kept:
                assert tensors["members"].tolist() == members[session]


# --- kill -9 -------------------------------------------------------------------------------------

KILLED = ("--seeds", "1,2", "--sessions", "5", "--rounds", "8", "--devices", "6")
LINES = 2 * 5 * 8 * 4


@pytest.fixture(scope="module")
def killed_never(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("never") / "run"
    ebbflow("compare", *KILLED, "--set", "checkpoint.seconds=0.01", "--out", str(folder))
    return folder


def kill_and_resume(folder: Path, lines: int) -> None:
    """Kill a run as soon as it has recorded that many lines, and go on with it."""
    command = [EXECUTABLE, "compare", *KILLED, "--set", "checkpoint.seconds=0.01"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "--out", str(folder)], **quiet) as child:
        while child.poll() is None:
            metrics = folder / records.METRICS
            begun = (folder / records.CONFIG).exists()
            if begun and (lines == 0 or _count(metrics) >= lines):
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        child.wait()
    # On a busy machine a run may end before it is shot; it must be the same then, too.
    assert child.returncode in (-signal.SIGKILL, 0)
    assert ebbflow("resume", str(folder), "--json").code == 0


def _count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_run_is_saved_after_its_first_round(tmp_path: Path) -> None:
    """However seldom it is saved later: it need never be begun again."""
    run_until_stopped(configured(**{"checkpoint.seconds": 1e9}), tmp_path / "run", 2)
    (path,) = checkpoint.checkpoint_paths(tmp_path / "run")
    read = checkpoint.read_checkpoint(path)
    assert (read.session, read.round) == (1, 1)


@pytest.mark.parametrize(
    "lines",
    [pytest.param(0, marks=pytest.mark.slow), 50, pytest.param(170, marks=pytest.mark.slow)],
)
def test_a_killed_run_goes_on(lines: int, killed_never: Path, tmp_path: Path) -> None:
    kill_and_resume(tmp_path / "run", lines)
    assert_killed_is_whole(tmp_path / "run", killed_never)


@pytest.mark.slow
def test_a_run_killed_at_twenty_moments_goes_on(killed_never: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    for n in range(20):
        kill_and_resume(tmp_path / f"run-{n}", draw.randrange(LINES * 9 // 10))
        assert_killed_is_whole(tmp_path / f"run-{n}", killed_never)
        shutil.rmtree(tmp_path / f"run-{n}")


def assert_killed_is_whole(folder: Path, whole: Path) -> None:
    for name in (records.SUMMARY, records.METRICS):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert events(folder) == events(whole)
    manifests = [path for path in tree(whole / records.HISTORY) if path.endswith("manifest.json")]
    ours, theirs = tree(folder / records.HISTORY), tree(whole / records.HISTORY)
    assert [ours[path] for path in manifests] == [theirs[path] for path in manifests]


# --- files are whole or not there ----------------------------------------------------------------


def test_a_crash_while_writing_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(handle: int) -> None:
        raise Stopped

    files.write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", dying)
    with pytest.raises(Stopped):
        files.write_atomically(tmp_path / "file", b"new")
    assert tree(tmp_path) == {"file": b"old"}


def test_a_run_refused_at_its_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="5000 devices"):
        experiment.run(configured(**{"partition.devices": 5000}), tmp_path / "run")
    assert tree(tmp_path) == {}
    assert not (tmp_path / "run").exists()


def test_a_run_of_an_earlier_version_goes_on_though_settings_were_added_since(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    config = with_settings("seeds=1", "rounds=2", "sessions=2", "partition.devices=3")
    wanted = experiment.run(config, run).rows
    made_old(run)
    path = run / FORMER
    checkpoint = json.loads(path.read_text())
    for added in ("wireless", "precision"):
        del checkpoint["config"][added]
    del checkpoint["config"]["partition"]["samples"]
    # The parameters of starts were sections of their own, and all of them were written down.
    own = checkpoint["config"].pop("parameters")
    checkpoint["config"]["warm_start"] = {"distance": "per_tensor", **own["warm_start"]}
    del checkpoint["config"]["history"]["distance"]
    path.write_text(json.dumps(checkpoint))
    assert experiment.resume(run).rows == wanted


def test_only_the_warm_starts_signature_may_change_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine(signature: str = "a") -> Start:
        return Start(lambda situation: StartingPoint(situation.carried))

    monkeypatch.setitem(STARTS._records, "mine", RegisteredStart("mine", mine))
    config = configured(methods=["mine"], **{"parameters.mine.signature": "b"})
    run_until_stopped(config, tmp_path / "run", 14)
    path = tmp_path / "run" / records.CONFIG
    path.write_text(path.read_text().replace('signature = "b"', 'signature = "c"'))
    with pytest.raises(EbbflowError, match=r"parameters is .*'c'.* and was .*'b'"):
        experiment.resume(tmp_path / "run")
