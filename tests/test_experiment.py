"""An experiment, in memory and in a folder: checks before work, and the same bits after a crash."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.registry import RegisteredAlgorithm
from ebbflow.core.types import Examples, State
from ebbflow.experiment import resume, run
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import fingerprint
from ebbflow.runs.records import RunRecords, read_manifest
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionStarted
from ebbflow.simulation.roster import build_sessions
from tests.configs import digits, with_settings

SMALL = ("seeds=[100, 200]", "rounds=2", "partition.devices=4", "sessions=4", "engine.workers=1")


def config_of(*settings: str) -> Config:
    return with_settings(*SMALL, *settings)


class CrashError(Exception):
    """What a test stops a run with."""


class Crasher(Callback):
    """A watcher that stops a run when so many rounds are over, before the next session starts.

    With ``within`` it stops right after the round, before anything else is saved.
    """

    def __init__(self, rounds: int, within: bool = False) -> None:
        self.left = rounds
        self.within = within

    def session_started(self, event: SessionStarted) -> None:
        if self.left == 0:
            raise CrashError

    def round_finished(self, event: RoundFinished) -> None:
        self.left -= 1
        if self.within and self.left == 0:
            raise CrashError


def told(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events that do not depend on the clock."""
    return [event for event in events if event["event"] in ("start", "warning")]


# --- checks before work --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("methods=warmstart", r"methods: there is no method 'warmstart': did you mean warm_start"),
        ("algorithm=fedavgg", r"algorithm: .* did you mean fedavg"),
        ("model.kind=softmaxx", r"model\.kind: .* did you mean softmax\?"),
        ("partition.kind=dirichlett", r"partition\.kind: .* did you mean dirichlet"),
        (
            "parameters.warm_start.distance=per_tensors",
            r"warm_start\.distance: .* did you mean per_tensor\?",
        ),
        ("device=gpu", r'device = "gpu" is no torch device'),
    ],
)
def test_a_wrong_name_is_found_before_anything_is_written(
    setting: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(EbbflowError, match=message):
        run(config_of(setting), tmp_path / "out", dataset=digits())
    assert not (tmp_path / "out").exists()


def test_a_test_set_without_a_sessions_labels_is_refused() -> None:
    few = digits().test.y < 5
    data = replace(digits(), test=Examples(digits().test.x[few], digits().test.y[few]))
    with pytest.raises(EbbflowError, match=r"session 2 holds the labels \[5, 6, 7, 8, 9\]"):
        build_sessions(config_of(), data, 100)


def test_a_rate_file_that_is_too_short_is_found_before_work(tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    rates.write_text("[0.1, 0.2]")
    settings = (f"lr.file={json.dumps(str(rates))}", "pilot.rounds=3")
    with pytest.raises(EbbflowError, match="holds 2 rates and a session has 3 rounds"):
        run(config_of(*settings), dataset=digits())
    found = run(config_of(settings[0], "seeds=1", "sessions=2"), dataset=digits()).rounds
    assert [r.lr for r in found if r.method == "previous"] == [0.1, 0.2, 0.1, 0.2]


# --- sessions ------------------------------------------------------------------------------------


def test_sessions_alternate_between_two_groups_with_their_own_labels() -> None:
    sessions = build_sessions(config_of("partition.overlap=0.2"), digits(), 100)
    assert [s.index for s in sessions] == [1, 2, 3, 4]
    assert [s.devices for s in sessions[:2]] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [s.labels for s in sessions[:2]] == [(0, 1, 2, 3, 4), (4, 5, 6, 7, 8)]
    assert sessions[0].devices == sessions[2].devices
    rows = [set().union(*(shard.tolist() for shard in s.shards.values())) for s in sessions]
    assert rows[0] == rows[2]
    shared = {int(digits().train.y[row]) for row in rows[0] & rows[1]}
    assert shared == {4}  # a label that both groups see gives both its samples


def test_arrivals_alternate_between_the_label_sets_if_asked_to() -> None:
    config = config_of("schedule.kind=random", "partition.overlap=0.0", "partition.devices=6")
    for session in build_sessions(config, digits(), 100):
        for device, shard in session.shards.items():
            labels = set(digits().train.y[shard].tolist())
            assert labels <= (set(range(5)) if device % 2 == 0 else set(range(5, 10)))


# --- folders -------------------------------------------------------------------------------------


def test_a_folder_holds_what_memory_holds(tmp_path: Path) -> None:
    config = config_of()
    memory = run(config, dataset=digits())
    folder = run(config, tmp_path / "out", dataset=digits())
    assert folder.rounds == memory.rounds
    assert folder.rows == memory.rows
    assert folder.config == memory.config
    assert told(folder.events) == told(memory.events)
    assert (folder.folder, memory.folder) == (tmp_path / "out", None)
    assert read_config(tmp_path / "out") == config


def test_summary_rows_are_strict_json(tmp_path: Path) -> None:
    run(config_of("parameters.warm_start.scale=inf", "seeds=1"), tmp_path, dataset=digits())

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert read_config(tmp_path) == config_of("parameters.warm_start.scale=inf", "seeds=1")


def test_a_finished_run_is_only_read_again(tmp_path: Path) -> None:
    first = run(config_of(), tmp_path, dataset=digits())
    again = resume(tmp_path, dataset=digits(), callbacks=[Crasher(0)])
    assert (again.rounds, again.rows, again.events) == (first.rounds, first.rows, first.events)


def test_a_folder_in_use_is_never_written_over(tmp_path: Path) -> None:
    run(config_of("sessions=1", "seeds=1"), tmp_path / "a", dataset=digits())
    with pytest.raises(EbbflowError, match="already holds a run"):
        run(config_of(), tmp_path / "a", dataset=digits())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(EbbflowError, match="not an empty folder"):
        run(config_of(), tmp_path / "b", dataset=digits())


KEEP_TWO = ("history.keep=last", "history.limit=2")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunRecords:
    return run(config_of(*KEEP_TWO), tmp_path_factory.mktemp("whole"), dataset=digits())


@pytest.mark.parametrize("seconds", [1e-9, 1000.0], ids=["saved every round", "saved per session"])
@pytest.mark.parametrize(("rounds", "within"), [(2, False), (6, False), (1, True), (11, True)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, whole: RunRecords, seconds: float, rounds: int, within: bool
) -> None:
    config = config_of(*KEEP_TWO, f"checkpoint.seconds={seconds}")
    with pytest.raises(CrashError):
        run(config, tmp_path, dataset=digits(), callbacks=[Crasher(rounds, within)])
    resumed = resume(tmp_path, dataset=digits())
    assert resumed.rounds == whole.rounds
    assert resumed.rows == whole.rows
    assert told(resumed.events) == told(whole.events)
    assert whole.folder is not None
    for method in config.methods:
        below = Path("history") / "fedavg" / method / "seed-200"
        files = read_manifest(tmp_path / below)
        assert files == read_manifest(whole.folder / below)
        assert len(files) == 3  # the pilot and the last two sessions


def _drifting() -> Algorithm:
    """FedAvg whose server and devices remember their last model and are drawn back to it."""

    def upload(shared: Broadcast, client: State, done: LocalRun) -> tuple[Upload, State]:
        return weighted_upload(shared, client, done)[0], {"last": done.theta}

    def server_step(theta: Tensor, server: State, total: Upload) -> tuple[Tensor, State]:
        return 0.9 * theta + 0.1 * server["old"] + total.delta / total.samples, {"old": theta}

    return Algorithm(
        "drifting",
        init_server=lambda theta, population: {"old": theta},
        init_client=lambda shared: {"last": shared.theta},
        direction=lambda g, theta, shared, client: g + 0.1 * (theta - client["last"]),
        upload=upload,
        server_step=server_step,
    )


def test_the_state_of_an_algorithm_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALGORITHMS._records, "drifting", RegisteredAlgorithm("drifting", _drifting))
    settings = ("algorithm=drifting", "seeds=1", "rounds=4", "checkpoint.seconds=1e-9")
    config = config_of(*settings, "participation.share=2")
    with pytest.raises(CrashError):
        run(config, tmp_path, dataset=digits(), callbacks=[Crasher(14, within=True)])
    assert resume(tmp_path, dataset=digits()).rounds == run(config, dataset=digits()).rounds


def test_changed_data_are_refused_on_resuming(tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        run(config_of(), tmp_path, dataset=digits(), callbacks=[Crasher(3, within=True)])
    x = digits().train.x.clone()
    x[0, 0, 0, 0] += 1
    other = replace(digits(), train=Examples(x, digits().train.y))
    assert fingerprint(other) != fingerprint(digits())
    with pytest.raises(EbbflowError, match=r"digits is not the one .* digest differs"):
        resume(tmp_path, dataset=other)
    assert len(resume(tmp_path, dataset=digits()).rows) == 2 * 4 * 4  # seeds, methods, sessions


def test_the_number_of_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    run(config_of("sessions=1", "seeds=1"), dataset=digits())
    assert torch.get_num_threads() == before
