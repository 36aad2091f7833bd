"""Samples by user: LEAF's and FLUTE's files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ebbflow
from ebbflow.core.errors import EbbflowError
from ebbflow.data.datasets import load
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.words import tokenise
from tests.data.own import assert_one_sentence, assert_owned, leaf

DRAW = np.random.default_rng(1)


def images(count: int) -> list[list[float]]:
    return [[round(v, 3) for v in row] for row in DRAW.random((count, 16)).tolist()]


WRITERS: dict[str, Any] = {
    "f10_2": (images(3), [0, 5, 61]),
    "f2_1": (images(2), [1, 0]),
}


def femnist(folder: Path) -> Path:
    """Write FEMNIST as LEAF does, in small: writers in several files."""
    leaf(folder / "train/all_data_0_niid_1_keep_0_train_9.json", WRITERS)
    leaf(
        folder / "train/all_data_1_niid_1_keep_0_train_9.json",
        {"f3_9": (images(2), [5, 1])},
        hierarchies=["x", "y"],
    )
    tested = {name: (images(1), [5]) for name in ("f2_1", "f3_9", "f99_0")}
    leaf(folder / "test/all_data_0_niid_1_keep_0_test_9.json", tested)
    return folder


def test_femnist(tmp_path: Path) -> None:
    data = load(str(femnist(tmp_path / "femnist")))
    assert_owned(data)
    assert (data.name, data.classes, data.labels) == ("femnist", 62, ())
    assert data.devices == ("f2_1", "f3_9", "f10_2", "f99_0")
    assert data.train.device is not None
    assert data.train.device.tolist() == [2, 2, 2, 0, 0, 1, 1]
    assert tuple(data.train.x.shape) == (7, 16)
    assert data.train.x[0].tolist() == pytest.approx(WRITERS["f10_2"][0][0])
    assert any("1 users" in note and "f99_0" in note for note in data.notes)
    shaped = load(str(tmp_path / "femnist"), choices=Choices(size=(4, 4)))
    assert tuple(shaped.train.x.shape[1:]) == (1, 4, 4)


def test_shakespeare(tmp_path: Path) -> None:
    text = "To be, or not to be, that is the question: whether 'tis nobler in the mind to"

    def windows(start: int, count: int) -> tuple[list[str], list[str]]:
        at = range(start, start + count)
        return [text[i : i + 20] for i in at], [text[i + 20] for i in at]

    root = tmp_path / "shakespeare"
    leaf(root / "train/a.json", {"HAMLET": windows(0, 20), "OPHELIA": windows(20, 10)})
    leaf(root / "test/a.json", {"HAMLET": windows(30, 20)})
    data = load(str(root))
    assert_owned(data)
    assert data.train.x.dtype == torch.int64
    assert tuple(data.train.x.shape) == (30, 20)
    assert int(data.train.x.min()) >= 2  # no padding, and nothing unknown
    assert set("".join(data.labels)) <= set(text)
    told = " ".join(data.notes)
    assert "characters" in told
    assert "only test samples" in told


def test_sent140(tmp_path: Path) -> None:
    def tweet(text: str) -> list[str]:
        return ["146781", "Mon Apr 06", "NO_QUERY", "someone", text]

    texts = ["what a lovely and long day this is", "this is awful, really awful"]
    user = ([tweet(text) for text in texts], [1, 0])
    root = tmp_path / "sent"
    leaf(root / "train/a.json", {"a": user, "b": user})
    leaf(root / "test/a.json", {"a": user})
    data = load(str(root), choices=Choices(vocabulary=6))
    assert int(data.train.x.max()) == 5
    told = " ".join(data.notes)
    assert "number 5, the longest, is the input" in told
    assert "words" in told
    assert "data.vocabulary = 6" in told


def flute(count: int) -> dict[str, Any]:
    users = [f"{n:04d}" for n in range(count)]
    pixels = DRAW.integers(0, 256, size=(count, 3, 4, 5, 3))
    return {
        "users": users,
        "num_samples": 10 * [3] * count,  # FLUTE's own script writes too many
        "user_data": {user: pixels[at].tolist() for at, user in enumerate(users)},
        "user_data_label": {user: [0, 1, at % 2] for at, user in enumerate(users)},
    }


def write_hdf5(path: Path, contents: dict[str, Any]) -> None:
    h5py = pytest.importorskip("h5py", reason="FLUTE's HDF5 files need h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("users", data=contents["users"])
        file.create_dataset("num_samples", data=contents["num_samples"])
        for user, x in contents["user_data"].items():
            file.create_group(f"user_data/{user}").create_dataset("x", data=x)
        for user, y in contents["user_data_label"].items():
            file.create_dataset(f"user_data_label/{user}", data=y)


def test_flute_in_json_and_in_hdf5(tmp_path: Path) -> None:
    train, test = flute(4), flute(2)
    (tmp_path / "json").mkdir()
    (tmp_path / "json/train_data.json").write_text(json.dumps(train))
    (tmp_path / "json/test_data.json").write_text(json.dumps(test))
    (tmp_path / "hdf5").mkdir()
    write_hdf5(tmp_path / "hdf5/train_data.hdf5", train)
    write_hdf5(tmp_path / "hdf5/test_data.hdf5", test)
    first, second = (load(str(tmp_path / kind)) for kind in ("json", "hdf5"))
    assert_owned(first)
    assert tuple(first.train.x.shape) == (12, 3, 4, 5)
    assert float(first.train.x.max()) <= 1
    assert torch.equal(first.train.x, second.train.x)
    assert torch.equal(first.test.y, second.test.y)
    assert first.devices == second.devices == ("0000", "0001", "0002", "0003")
    assert any("divided by 255" in note for note in first.notes)


def test_texts_in_hdf5(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="FLUTE's HDF5 files need h5py")
    with h5py.File(tmp_path / "own.hdf5", "w") as file:
        file.create_dataset("users", data=["bert", "elmo"])
        for user, texts in {"bert": ["my name is Bert", "hello"], "elmo": ["a", "b c"]}.items():
            group = file.create_group(f"user_data/{user}")
            group.create_dataset("x", data=[text.encode() for text in texts])
            group.create_dataset("y", data=[0, 1])
    data = load(str(tmp_path / "own.hdf5"), choices=Choices(test_split=0.5))
    assert (data.devices, tuple(data.train.x.shape[:1])) == (("bert", "elmo"), (2,))


def test_one_file_and_a_share_or_a_second_file(tmp_path: Path) -> None:
    path = leaf(tmp_path / "own.json", {u: (images(4), [0, 1, 0, 1]) for u in "ab"})
    data = load(str(path), choices=Choices(test_split=0.25))
    assert (len(data.train), len(data.test), data.devices) == (6, 2, ("a", "b"))
    both = load(str(path), choices=Choices(test=str(path)))
    assert torch.equal(both.train.x, both.test.x)
    with pytest.raises(EbbflowError, match=r"data\.test_split \(--test-split\)"):
        load(str(path))


Write = Callable[[Path], object]
X = images(2)


def users(contents: dict[str, Any], **changes: Any) -> Write:
    return lambda path: leaf(path, contents, **changes)


REFUSED: dict[str, tuple[Write, list[str]]] = {
    "no JSON": (lambda path: path.write_text("{"), ["not valid JSON", "write it again"]),
    "bad bytes": (lambda path: path.write_bytes(b'{"\xff"'), ["not valid JSON"]),
    "too deep": (lambda path: path.write_text("[" * 100_000), ["nested too deeply", "own.json"]),
    "a list": (lambda path: path.write_text("[]"), ["lacks users or user_data", '"users"']),
    "no users": (users({}), ["lists no users"]),
    "users that are a number": (users({}, users=3), ["lists no users"]),
    "a user without data": (users({"a": (X, [0, 1])}, users=["a", "b"]), ["user 'b'"]),
    "a user without labels": (
        users({}, users=["a"], user_data={"a": {"x": X}}),
        ["user 'a' has no list of labels y"],
    ),
    "a user without inputs": (
        users({}, users=["a"], user_data={"a": {"y": [0]}}),
        ["user 'a' has no list of inputs x"],
    ),
    "more labels than inputs": (users({"a": (X, [0, 1, 1])}), ["2 inputs and 3 labels"]),
    "no samples": (users({"a": (X, [0, 1]), "b": ([], [])}), ["user 'b' has no samples"]),
    "a wrong count": (
        users({"a": (X, [0, 1])}, num_samples=[5]),
        ["2 samples where num_samples says 5"],
    ),
    "a user twice": (
        users({"a": (X, [0, 1])}, users=["a", "a"], num_samples=[2, 2]),
        ["the user 'a'", "name of their own"],
    ),
    "ragged samples": (
        users({"a": ([[1.0, 2.0], [1.0]], [0, 1])}),
        ["user 'a': sample 1", "one form"],
    ),
    "users of different shapes": (
        users({"a": (X, [0, 1]), "b": ([[1.0]], [0])}),
        ["user 'b'", "shape (1,)", "(16,)"],
    ),
    "numbers and texts": (
        users({"a": (X, [0, 1]), "b": (["text"], [0])}),
        ["user 'b'", "texts where those of 'a' are numbers"],
    ),
    "a number among texts": (users({"a": (["t", 3], [0, 1])}), ["sample 1 is no text"]),
    "labels of several kinds": (
        users({"a": (X, [0, 1]), "b": (X, [0, 0.5])}),
        ["user 'b'", "neither whole numbers nor texts"],
    ),
    "not a number": (
        lambda path: leaf(path, {"a": ([[float("nan")], [1.0], [2.0]], [0, 1, 0])}),
        ["NaN"],
    ),
    "a label without end": (users({"a": (images(3), [0, 10**30, 0])}), ["1e+30", "64 bits"]),
    "a negative label": (users({"a": (images(3), [0, -1, 0])}), ["negative label -1"]),
}


@pytest.mark.parametrize(("write", "says"), REFUSED.values(), ids=list(REFUSED))
def test_files_that_are_refused(tmp_path: Path, write: Write, says: list[str]) -> None:
    path = tmp_path / "own.json"
    write(path)
    with pytest.raises(EbbflowError) as error:
        load(str(path), choices=Choices(test_split=0.4))
    assert_one_sentence(str(error.value))
    for words in says:
        assert words in str(error.value), str(error.value)


def test_settings_that_do_not_fit(tmp_path: Path) -> None:
    root = femnist(tmp_path / "femnist")
    for choices, says in (
        (Choices(test_split=0.5), r"data\.test_split = 0\.5 has no use"),
        (Choices(test="x.json"), r"data\.test = 'x\.json' has no use"),
        (Choices(size=(3, 5)), r"data\.size = \[3, 5\] does not fit"),
        (Choices(label="y"), r"data\.label = \"y\" has no use"),
    ):
        with pytest.raises(EbbflowError, match=says):
            load(str(root), choices=choices)
    (tmp_path / "own.hdf5").write_bytes(b"no HDF5")
    pytest.importorskip("h5py", reason="FLUTE's HDF5 files need h5py")
    with pytest.raises(EbbflowError, match="not a readable HDF5 file"):
        load(str(tmp_path / "own.hdf5"))


def test_texts_are_cut_padded_and_told() -> None:
    long = " ".join(f"w{n}" for n in range(300))
    tokens = tokenise([long, "w1 w2"], ["W1!"])
    assert tokens.train.shape == (2, 256)
    assert tokens.train[1, 2:].sum() == 0
    assert tokens.test[0, :3].tolist() == [tokens.train[1, 0], 1, 0]
    assert any("1 training texts are longer than 256 words" in note for note in tokens.notes)
    with pytest.raises(EbbflowError, match="hold no words"):
        tokenise([" ", ""], [""])
    with pytest.raises(EbbflowError, match="does not fit inputs that are texts"):
        tokenise(["a"], ["b"], "numbers")
    assert tokenise(["ab", "cd"], ["xa"], "words").train.tolist() == [[2], [3]]
    assert tokenise(["ab", "cde"], ["xa"], "characters").test.tolist() == [[1, 2, 0]]


@pytest.mark.parametrize("kind", ["femnist", pytest.param("shakespeare", marks=pytest.mark.slow)])
def test_two_hundred_devices_train_in_sessions(kind: str, tmp_path: Path) -> None:
    """With LEAF's own keys: pictures of 784 numbers, and windows of 80 characters."""
    text = "to be or not to be that is the question whether tis nobler in the mind to suffer " * 3

    def samples(count: int) -> tuple[list[Any], list[Any]]:
        if kind == "femnist":
            return DRAW.random((count, 784)).round(2).tolist(), DRAW.integers(
                5, size=count
            ).tolist()
        starts = DRAW.integers(60, size=count).tolist()
        return [text[s : s + 80] for s in starts], [text[s + 80] for s in starts]

    users = [f"user_{number}" for number in range(200)]
    leaf(tmp_path / "data/train/all_data_0.json", {user: samples(6) for user in users})
    leaf(tmp_path / "data/test/all_data_0.json", {user: samples(2) for user in users})
    settings = {"model.kind": "embedding"} if kind == "shakespeare" else {}
    records = ebbflow.compare(
        str(tmp_path / "data"), sessions=4, rounds=1, seeds=[1], settings=settings
    )
    starts = [event for event in records.events if event["event"] == "start"]
    assert {len(event["devices"]) for event in starts} == {100}
    (names,) = [event["names"] for event in records.events if event["event"] == "names"]
    assert names[:3] == ["user_0", "user_1", "user_2"] and len(names) == 200
    assert all(row["devices_devices"] == 100 for row in records.rows)
