"""Truths that are not one class for each sample: from tables, .npz files and Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset as TorchDataset

import ebbflow
from ebbflow.core.errors import EbbflowError
from ebbflow.data.own.truths import truths_of
from tests.test_cli import ebbflow as command

DRAW = np.random.default_rng(7)
SMALL: dict[str, Any] = {"seeds": [1], "rounds": 1, "sessions": 4, "window": 1}


def table(path: Path, rows: int = 120) -> Path:
    lines = ["age,ward,smokes,days,pain,fever"]
    for row in range(rows):
        age, pain = DRAW.integers(20, 90), DRAW.integers(2)
        days = 100 + 3 * age + 10 * DRAW.normal()
        lines.append(f"{age},w{row % 6},{'yes' if row % 3 else 'no'},{days:.3f},{pain},{row % 2}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_numbers_of_a_column_are_standardised_and_told(tmp_path: Path) -> None:
    path = table(tmp_path / "stays.csv")
    data = ebbflow.dataset(path, task="regression", label="days", device="ward", test_split=0.25)
    assert data.train.y.shape == (len(data.train), 1) and data.classes == 1
    assert abs(float(data.train.y.mean())) < 1e-5
    assert float(data.train.y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert data.scale is not None and 200 < data.scale[0][0] < 350
    assert any("standardised" in note for note in data.notes)
    assert data.devices == ("w0", "w1", "w2", "w3", "w4", "w5")


def test_several_columns_are_several_labels(tmp_path: Path) -> None:
    path = table(tmp_path / "stays.csv")
    data = ebbflow.dataset(path, task="multilabel", label="pain, fever", test_split=0.2)
    assert data.classes == 2 and set(data.train.y.flatten().tolist()) == {0.0, 1.0}
    both = ebbflow.dataset(path, task="regression", label="days,age", test_split=0.2)
    assert both.train.y.shape[1] == 2 and both.scale is not None and len(both.scale[0]) == 2


def test_a_regression_from_the_command_line(tmp_path: Path) -> None:
    path = table(tmp_path / "stays.csv", 300)
    answer = command(
        *("compare", "--dataset", str(path), "--label", "days", "--device-column", "ward"),
        *("--test-split", "0.2", "--set", "task=regression", "--seeds", "1", "--rounds", "3"),
        *("--sessions", "5", "--window", "3", "--out", str(tmp_path / "run")),
    )
    assert answer.code == 0, answer.err
    assert "fedavg, RMSE over the first 3 rounds" in answer.out
    assert "worst tenth" in answer.out
    metrics = command("metrics", str(tmp_path / "run"), "--target", "0.5")
    assert metrics.code == 0, metrics.err
    assert "RMSE over the first 3 rounds" in metrics.out
    assert command("cost", str(tmp_path / "run")).code == 0
    bound = command("bound", str(tmp_path / "run"))
    assert bound.code == 2 and 'task = "regression"' in bound.err


def test_arrays_and_items_hold_numbers_labels_and_tokens() -> None:
    x = DRAW.normal(size=(60, 4)).astype(np.float32)
    for y, task, outputs in (
        (x[:, 0] * 2.0, "regression", 1),
        ((x[:, :3] > 0).astype(int), "multilabel", 3),
        (DRAW.integers(9, size=(60, 5)), "tokens", 9),
    ):
        data = ebbflow.dataset((x, y), task=task, test_split=0.2)  # type: ignore[arg-type]
        assert data.classes >= outputs - 1
        items = _Items(x, np.asarray(y))
        same = ebbflow.dataset((items, items), task=task)  # type: ignore[arg-type]
        assert same.train.y.shape[1:] == data.train.y.shape[1:]


class _Items(TorchDataset[Any]):
    def __init__(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return {"a": self.x[index, :2], "b": self.x[index, 2:]}, self.y[index]


def test_items_with_several_inputs_are_packed_by_name() -> None:
    x = DRAW.normal(size=(40, 4)).astype(np.float32)
    items = _Items(x, np.arange(40) % 3)
    data = ebbflow.dataset((items, items))
    assert data.inputs is not None
    assert [part.name for part in data.inputs.parts] == ["a", "b"]
    assert torch.equal(data.train.x, torch.from_numpy(x))
    arrays = {"a": x[:, :2], "b": x[:, 2:]}, np.arange(40) % 3
    assert ebbflow.dataset(arrays, test_split=0.5).inputs == data.inputs


def test_an_npz_file_of_numbers(tmp_path: Path) -> None:
    x = DRAW.normal(size=(50, 3))
    path = tmp_path / "own.npz"
    np.savez(path, x_train=x, y_train=x[:, 0], x_test=x[:9], y_test=x[:9, 0])
    data = ebbflow.dataset(path, task="regression")
    assert data.train.y.shape == (50, 1)
    records = ebbflow.compare(str(path), task="regression", devices=3, **SMALL)
    assert records.rows[-1]["accuracy"] > 0


@pytest.mark.parametrize(
    ("task", "train", "sentence"),
    [
        ("regression", np.array(["a", "b"]), "needs numbers"),
        ("regression", np.array([1.0, np.nan]), "sample 1 of y is not a finite number"),
        ("regression", np.array([2.0, 2.0]), "is 2 in all training samples"),
        ("multilabel", np.array([[0, 1], [0, 2]]), r"sample 1 is \[0 2\]"),
        ("multilabel", np.array([0, 1]), "a zero or a one for each label"),
        ("tokens", np.array([0, 1]), "needs whole numbers"),
        ("tokens", np.array([[0, -3]]), "holds the token -3"),
    ],
)
def test_truths_that_a_task_cannot_use_are_refused(
    task: str, train: NDArray[Any], sentence: str
) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        truths_of("own", task, train, train, "y")


def test_splits_with_different_numbers_of_columns_are_refused() -> None:
    with pytest.raises(EbbflowError, match="y has 2 columns in the training set and 3"):
        truths_of("own", "regression", np.eye(2), np.eye(3), "y")


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("smokes", r"stays.csv, line 2: column smokes holds 'no', which is no number"),
        ("days,nothing", "'nothing' is no column"),
    ],
)
def test_columns_that_cannot_be_predicted_are_refused(
    tmp_path: Path, label: str, sentence: str
) -> None:
    path = table(tmp_path / "stays.csv")
    with pytest.raises(EbbflowError, match=sentence):
        ebbflow.dataset(path, task="regression", label=label, test_split=0.2)


def test_a_missing_number_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "stays.csv"
    path.write_text("age,days\n1,2\n2,\n3,4\n")
    with pytest.raises(EbbflowError, match="line 3: column days holds no number"):
        ebbflow.dataset(path, task="regression", label="days", test_split=0.4)


@pytest.mark.parametrize("task", ["classes", "regression", "multilabel", "tokens"])
@pytest.mark.parametrize("truth", [np.float64(1.0), np.zeros(0), np.zeros(3)])
def test_too_few_truths_are_refused_whatever_the_task(
    task: str, truth: NDArray[Any], tmp_path: Path
) -> None:
    x = DRAW.normal(size=(20, 3))
    np.savez(tmp_path / "own.npz", x_train=x, y_train=truth, x_test=x, y_test=np.zeros(20))
    with pytest.raises(EbbflowError):
        ebbflow.dataset(tmp_path / "own.npz", task=task)  # type: ignore[arg-type]
    if np.ndim(truth):
        with pytest.raises(EbbflowError):
            ebbflow.dataset((x, truth), task=task, test_split=0.2)  # type: ignore[arg-type]
