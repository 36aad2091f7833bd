"""ebbflow from Python: the same records as on the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import ebbflow
from ebbflow import Records, experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.data import datasets
from tests.test_cli import ebbflow as command_line

TINY: dict[str, Any] = {"seeds": [1], "sessions": 4, "rounds": 3, "devices": 4}
Splits = tuple[TensorDataset, TensorDataset]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """See that every test leaves torch's number of threads as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert found == 3


def splits(seed: int = 0) -> Splits:
    """Return training and test data of torch: four classes of points."""
    draw = torch.Generator().manual_seed(seed)
    train = TensorDataset(torch.randn(80, 5, generator=draw), torch.arange(80) % 4)
    return train, TensorDataset(torch.randn(20, 5, generator=draw), torch.arange(20) % 4)


def test_compare_returns_rounds_rows_and_events() -> None:
    found = ebbflow.compare("digits", **TINY)
    assert isinstance(found, Records)
    assert len(found.rounds) == 4 * 3 * 4  # sessions, rounds, methods
    methods = {row["method"] for row in found.rows}
    assert methods == {"learned", "warm_start", "previous", "average"}
    assert {event["event"] for event in found.events} == {"start", "costs", "tested"}
    assert found.config["partition"]["devices"] == 4
    assert found.folder is None


def test_nothing_is_printed_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ebbflow.compare(**TINY)
    assert (out.getvalue(), err.getvalue(), list(tmp_path.iterdir())) == ("", "", [])


def test_progress_is_shown_when_asked_for() -> None:
    err = io.StringIO()
    with redirect_stderr(err):
        ebbflow.compare(**TINY, progress=True)
    assert err.getvalue().count("session ") == 4


def test_a_folder_changes_no_number_and_is_the_command_lines(tmp_path: Path) -> None:
    inside = ebbflow.compare(**TINY)
    written = ebbflow.compare(**TINY, out=tmp_path / "run")
    assert written.folder == tmp_path / "run"
    assert (written.rounds, written.rows) == (inside.rounds, inside.rows)
    assert written.config == inside.config
    arguments = ("--seeds=1", "--sessions=4", "--rounds=3", "--devices=4", "--json")
    answer = command_line("compare", *arguments, "--out", str(tmp_path / "other"))
    assert answer.out == (tmp_path / "run" / "summary.json").read_text()
    assert json.loads(answer.out)["rows"] == written.rows


def test_run_runs_one_method() -> None:
    assert {r.method for r in ebbflow.run(**TINY).rounds} == {"warm_start"}
    found = ebbflow.run("digits", method="average", **TINY)
    assert {r.method for r in found.rounds} == {"average"}
    beside = [r for r in ebbflow.compare(**TINY).rounds if r.method == "average"]
    assert found.rounds == beside


def test_settings_have_dots_and_win_over_shortcuts_presets_and_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('window = 7\n[local]\nrule = "each_step"\n')
    found = ebbflow.compare(
        config=tmp_path / "own.toml",
        preset=["demo", "authors-code"],
        settings={"parameters.warm_start.scale": 5, "rounds": 2},
        **TINY,
    ).config
    assert (found["window"], found["local"]["rule"]) == ([7], "one_pass")
    assert (found["parameters"]["warm_start"]["scale"], found["rounds"], found["sessions"]) == (
        5,
        2,
        4,
    )


def test_a_single_value_stands_for_a_list() -> None:
    found = ebbflow.compare(**TINY | {"seeds": 7}, methods="previous", preset="demo")
    assert {(r.method, r.seed) for r in found.rounds} == {("previous", 7)}


def test_an_unknown_argument_is_answered_with_the_nearest() -> None:
    with pytest.raises(EbbflowError, match=r"no argument 'overlaps'.*did you mean overlap\?"):
        ebbflow.compare(overlaps=0.5)  # type: ignore[call-arg]
    with pytest.raises(EbbflowError, match=r"did you mean rounds\?"):
        ebbflow.run(round=3)


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(EbbflowError, match=r"partition\.overlapp .*did you mean partition\.ov"):
        ebbflow.compare(settings={"partition.overlapp": 0.5})


def test_a_refused_value_names_the_argument() -> None:
    with pytest.raises(EbbflowError, match=r"partition\.overlap = 1\.5 \(argument overlap\)"):
        ebbflow.compare(overlap=1.5)


def test_data_from_torch() -> None:
    data = splits()
    found = ebbflow.compare(data, **TINY)
    assert found.config["dataset"] == "custom"
    again = ebbflow.compare(datasets.from_torch(*data), **TINY)
    assert again.rounds == found.rounds


def test_data_from_an_npz_file_is_the_same_data(tmp_path: Path) -> None:
    train, test = splits()
    (x_train, y_train), (x_test, y_test) = train.tensors, test.tensors
    arrays: dict[str, Any] = {"x_train": x_train, "y_train": y_train}
    arrays |= {"x_test": x_test, "y_test": y_test}
    np.savez(tmp_path / "own.npz", **arrays)
    found = ebbflow.compare(str(tmp_path / "own.npz"), **TINY)
    assert found.rounds == ebbflow.compare((train, test), **TINY).rounds


def test_a_path_object_is_a_path_too(tmp_path: Path) -> None:
    path: Any = tmp_path / "own.npz"
    with pytest.raises(EbbflowError, match="does not exist"):
        ebbflow.compare(path, **TINY)


def test_a_finished_run_is_read_again(tmp_path: Path) -> None:
    first = ebbflow.compare(**TINY, out=str(tmp_path / "run"))
    again = ebbflow.resume(str(tmp_path / "run"))
    assert again == first


def test_a_stopped_run_with_data_from_python_goes_on_with_the_same_data(tmp_path: Path) -> None:
    whole = ebbflow.compare(splits(), **TINY)
    interrupted = mock.patch.object(experiment, "_simulate", side_effect=KeyboardInterrupt)
    with interrupted, pytest.raises(KeyboardInterrupt):
        ebbflow.compare(splits(), **TINY, out=tmp_path / "run")
    with pytest.raises(EbbflowError, match="restore the data"):
        ebbflow.resume(tmp_path / "run", dataset=splits(seed=1))
    resumed = ebbflow.resume(tmp_path / "run", dataset=splits())
    assert (resumed.rounds, resumed.rows) == (whole.rounds, whole.rows)


def test_a_resume_that_was_refused_does_not_block_the_next(tmp_path: Path) -> None:
    ebbflow.compare(splits(), **TINY, out=tmp_path / "run")
    with pytest.raises(EbbflowError, match="no data set 'custom'") as refused:
        ebbflow.resume(tmp_path / "run")
    # A notebook keeps the last error, and with it all that was alive when it was raised.
    assert refused.value is not None
    assert ebbflow.resume(tmp_path / "run", dataset=splits()).folder == tmp_path / "run"


def test_a_failing_run_gives_the_threads_back(tmp_path: Path) -> None:
    with pytest.raises(EbbflowError, match="session 1, round 1, device"):
        ebbflow.compare(**TINY, settings={"lr.initial": 3e38}, out=tmp_path / "run")
    with pytest.raises(EbbflowError, match="session 1, round 1, device"):
        ebbflow.compare(**TINY, settings={"lr.initial": 3e38})
