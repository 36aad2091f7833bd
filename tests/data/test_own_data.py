"""Data of users' own from Python and from .npz files, and what they may be called with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import ebbflow
from ebbflow.core.errors import EbbflowError
from ebbflow.data.datasets import from_npz, load
from ebbflow.data.own.choices import Choices
from ebbflow.runs.environment import fingerprint
from tests.data.own import assert_one_sentence, assert_owned, leaf, patients
from tests.test_cli import ebbflow as command_line

DRAW = np.random.default_rng(8)
X = DRAW.normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 3
TINY: dict[str, Any] = {"seeds": [1], "sessions": 3, "rounds": 1, "devices": 2}


def refused(*says: str, data: Any, **arguments: Any) -> None:
    with pytest.raises(EbbflowError) as error:
        ebbflow.dataset(data, **arguments)
    assert_one_sentence(str(error.value))
    for words in says:
        assert words in str(error.value), str(error.value)


# --- .npz


def npz(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"x_train": X, "y_train": Y, "x_test": X[:4], "y_test": Y[:4]}
    np.savez(path, **{**arrays, **changes})
    return path


@pytest.mark.parametrize(
    ("owners", "names"),
    [
        (np.array([7, 30, 7, 100] * 3), ("7", "30", "100")),
        (np.array(["ward 10", "ward 2", "ward 2", "x"] * 3), ("ward 2", "ward 10", "x")),
        (np.array([b"b", b"a", b"c", b"a"] * 3), ("a", "b", "c")),
    ],
)
def test_owners_in_an_npz_file(
    tmp_path: Path, owners: NDArray[Any], names: tuple[str, ...]
) -> None:
    path = npz(tmp_path / "own.npz", device_train=owners, device_test=owners[:4])
    data = load(str(path))
    assert_owned(data)
    assert data.devices == names
    assert data.train.device is not None
    assert data.test.device is not None
    assert data.test.device.tolist() == data.train.device[:4].tolist()
    alone = from_npz(npz(tmp_path / "alone.npz", device_train=owners))
    assert alone.test.device is None


def test_texts_and_rows_with_a_single_one_as_labels(tmp_path: Path) -> None:
    names = np.array(["no", "yes", "maybe"])
    told = from_npz(npz(tmp_path / "a.npz", y_train=names[Y], y_test=names[Y[:4]]))
    assert told.labels == ("maybe", "no", "yes")
    assert [told.labels[y] for y in told.train.y.tolist()] == names[Y].tolist()
    for kind in (bool, int, np.float32):
        rows = np.eye(3, dtype=kind)
        hot = from_npz(npz(tmp_path / "b.npz", y_train=rows[Y], y_test=rows[Y[:4]]))
        assert (hot.train.y.tolist(), hot.classes, hot.labels) == (Y.tolist(), 3, ())
        assert any("single one" in note for note in hot.notes)


def test_whole_numbers_are_numbers_unless_they_are_called_tokens(tmp_path: Path) -> None:
    words = DRAW.integers(0, 50, size=(12, 6))
    path = npz(tmp_path / "own.npz", x_train=words, x_test=words[:4])
    usual = from_npz(path)
    assert usual.train.x.dtype == torch.float32
    assert any('data.inputs = "tokens"' in note for note in usual.notes)
    tokens = from_npz(path, Choices(inputs="tokens"))
    assert tokens.train.x.dtype == torch.int64
    assert tokens.train.x.tolist() == words.tolist()
    assert from_npz(path, Choices(inputs="numbers")).notes == ()
    records = ebbflow.compare(
        str(path),
        settings={
            "data.inputs": "tokens",
            "model.kind": "embedding",
            "parameters.embedding.vocabulary": 50,
            "parameters.embedding.width": 4,
        },
        **TINY,
    )
    assert records.rounds


NPZ: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "fractions for tokens": ({}, {"inputs": "tokens"}, ["x_train", "float32", "whole numbers"]),
    "negative tokens": (
        {"x_train": -np.ones((12, 3), int), "x_test": np.ones((4, 3), int)},
        {"inputs": "tokens"},
        ["from -1 to -1", "0 be padding"],
    ),
    "words of numbers": ({}, {"inputs": "words"}, ['data.inputs = "words"', "tokens"]),
    "a label for arrays": ({}, {"label": "y"}, ['data.label = "y"', "arrays have names"]),
    "owners of too few": ({"device_train": Y[:3]}, {}, ["device_train", "(3,)", "12 samples"]),
    "owners in fractions": ({"device_train": Y / 2}, {}, ["device_train", "float64", "texts"]),
    "owners without a name": (
        {"device_train": np.array(["a"] * 11 + [""])},
        {},
        ["sample 11", "device_train", "without a name"],
    ),
    "owners of test samples only": ({"device_test": Y[:4]}, {}, ["device_test", "name both"]),
    "owners in two ways": (
        {"device_train": Y, "device_test": np.array(["0", "1", "2", "0"])},
        {},
        ["device_train and device_test", "in the same way"],
    ),
    "a label of nobody": (
        {"y_train": np.array(["a", "b"] * 6), "y_test": np.array(["a", "b", "c", "c"])},
        {},
        ["'c'", "no device can learn it"],
    ),
    "an empty label": (
        {"y_train": np.array(["a", ""] * 6), "y_test": np.array(["a"] * 4)},
        {},
        ["sample 1 of y_train", "empty label"],
    ),
    "rows with two ones": (
        {"y_train": np.ones((12, 3), int), "y_test": np.ones((4, 3), int)},
        {},
        ["labels y_train have shape (12, 3)"],
    ),
}


@pytest.mark.parametrize(("arrays", "choices", "says"), NPZ.values(), ids=list(NPZ))
def test_npz_files_that_are_refused(
    tmp_path: Path, arrays: dict[str, Any], choices: dict[str, Any], says: list[str]
) -> None:
    path = npz(tmp_path / "own.npz", **arrays)
    with pytest.raises(EbbflowError) as error:
        load(str(path), choices=Choices(**choices))
    assert_one_sentence(str(error.value))
    for words in says:
        assert words in str(error.value), str(error.value)


@pytest.mark.parametrize("name", ["device_id", "client", "users", "WriterId"])
def test_arrays_that_look_like_owners_are_told(tmp_path: Path, name: str) -> None:
    path = npz(tmp_path / "own.npz", **{name: Y})
    (note,) = from_npz(path).notes
    assert f"own.npz also holds {name}, which is not used" in note
    with pytest.raises(EbbflowError, match=f"also holds {name}.*device_train"):
        load(str(path), choices=Choices(owners_needed=True))
    with pytest.raises(EbbflowError, match=f"also holds {name}"):
        ebbflow.compare(str(path), partition="natural", **TINY)
    assert from_npz(npz(tmp_path / "more.npz", extra=Y)).notes == ()


def test_owners_are_part_of_the_digest_and_only_they() -> None:
    digits = load("digits", limit_train=50, limit_test=10)
    before = fingerprint(digits)
    assert before == "041ec847214fd1a717469e581cd89d76"  # as before samples could have owners
    assert fingerprint(replace(digits, notes=("a",), labels=("b",))) == before
    owned = replace(digits, train=replace(digits.train, device=torch.zeros(50, dtype=torch.int64)))
    other = replace(digits, train=replace(digits.train, device=torch.ones(50, dtype=torch.int64)))
    assert len({before, fingerprint(owned), fingerprint(other)}) == 3


# --- arrays


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_arrays_and_a_share(kind: Any) -> None:
    data = ebbflow.dataset((kind(X), kind(Y)), test_split=0.25)
    assert (len(data.train), len(data.test), data.classes) == (9, 3, 3)
    owned = ebbflow.dataset((kind(X), kind(Y), kind(Y + 5)), test_split=0.25)
    assert_owned(owned)
    assert owned.devices == ("5", "6", "7")
    assert ebbflow.compare((kind(X), kind(Y)), test_split=0.25, **TINY).rounds


def test_pairs_of_pairs_and_lists_and_texts() -> None:
    data = ebbflow.dataset(((X, Y), (X[:5], Y[:5])), name="mine")
    assert (data.name, len(data.train), len(data.test)) == ("mine", 12, 5)
    same = ebbflow.dataset((X, Y), test=(X[:5], Y[:5]))
    assert torch.equal(same.test.x, data.test.x)
    texts = [f"word{n} and more" + " so" * n for n in range(8)]
    told = ebbflow.dataset((texts, ["a", "b"] * 4), test_split=0.5)
    assert (told.train.x.dtype, told.labels) == (torch.int64, ("a", "b"))


def test_a_loaded_data_set_and_a_path_are_taken_as_they_are(tmp_path: Path) -> None:
    data = ebbflow.dataset((X, Y), test_split=0.25)
    assert ebbflow.dataset(data) is data
    found = ebbflow.dataset(npz(tmp_path / "own.npz"))
    assert (found.name, len(found.train)) == ("own", 12)


def test_texts_need_a_model_of_texts() -> None:
    data = ebbflow.dataset((["good film", "bad", "so nice", "no"] * 5, [0, 1] * 10), test_split=0.2)
    with pytest.raises(EbbflowError, match=r'model\.kind = "softmax".*set model\.kind to "embed'):
        ebbflow.compare(data, **TINY)
    small = {"model.kind": "embedding", "parameters.embedding.width": 4}
    assert ebbflow.compare(data, settings=small, **TINY).rounds


# --- torch


class Items(TorchDataset[Any]):
    def __init__(self, *items: object) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        return self.items[index]


def dicts(x: str, y: str, **more: Any) -> Items:
    return Items(*({x: torch.tensor(X[n]), y: int(Y[n]), **more} for n in range(12)))


def test_triples_say_whose_they_are() -> None:
    items = Items(*((torch.tensor(X[n]), int(Y[n]), f"phone {n % 4 + 8}") for n in range(12)))
    data = ebbflow.dataset((items, items))
    assert_owned(data)
    assert data.devices == ("phone 8", "phone 9", "phone 10", "phone 11")
    whole = TensorDataset(torch.tensor(X), torch.tensor(Y), torch.tensor(Y))
    tensors = ebbflow.dataset((whole, whole))
    assert tensors.devices == ("0", "1", "2")
    assert ebbflow.dataset(items, test_split=0.5).devices == data.devices


@pytest.mark.parametrize(("x", "y"), [("image", "label"), ("x", "y"), ("pixel_values", "labels")])
def test_items_with_keys(x: str, y: str) -> None:
    items = dicts(x, y, id="a")
    data = ebbflow.dataset((items, items))
    assert torch.equal(data.train.x, torch.tensor(X))
    owned = dicts(x, y, device=3)
    assert ebbflow.dataset((owned, owned)).devices == ("3",)
    named = dicts(x, y, writer="w")
    assert ebbflow.dataset((named, named), device="writer").devices == ("w",)


def test_lists_of_samples() -> None:
    pairs = [(X[n], int(Y[n])) for n in range(12)]
    data = ebbflow.dataset((pairs, pairs[:3]))
    assert (len(data.train), len(data.test)) == (12, 3)
    two = [{"x": X[n], "y": n} for n in range(2)]
    both = ebbflow.dataset(two, test=two)
    assert (len(both.train), len(both.test)) == (2, 2)
    lists = ebbflow.dataset((X.tolist(), Y.tolist()), test_split=0.25)
    assert len(lists.train) == 9


def test_keys_can_be_named() -> None:
    items = dicts("scan", "diagnosis")
    data = ebbflow.dataset((items, items), column="scan", label="diagnosis")
    assert data.train.y.tolist() == Y.tolist()


# --- data frames


def test_a_data_frame_is_read_like_its_file(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas", reason="data frames need pandas")
    path = patients(tmp_path)
    frame = pd.read_csv(path)
    choices: dict[str, Any] = {"label": "outcome", "device": "ward", "test_split": 0.25}
    data = ebbflow.dataset(frame, **choices)
    filed = ebbflow.dataset(path, **choices)
    assert torch.equal(data.train.x, filed.train.x)
    assert (data.devices, data.labels) == (filed.devices, filed.labels)
    two = ebbflow.dataset(frame, test=frame[:9], label="outcome", ignore=["ward"])
    assert len(two.test) == 9
    keys = {f"data.{key}": value for key, value in choices.items()}
    short: dict[str, Any] = {"seeds": [1], "sessions": 3, "rounds": 1}
    first = ebbflow.compare(frame, settings=keys, **short)
    shortcuts: dict[str, Any] = {"label": "outcome", "device_column": "ward", "test_split": 0.25}
    assert ebbflow.compare(path, **shortcuts, **short).rounds == first.rounds
    refused("data.label", "age", data=frame, test_split=0.5)
    refused("two columns called 'age'", data=frame[["age", "age"]], label="age", test_split=0.5)
    refused("give a data frame", data=frame, test=(X, Y), label="outcome")
    refused("type Series", "columns", data=(frame[["age"]], frame["outcome"]), label="outcome")
    both = ebbflow.dataset((frame, frame[:9]), label="outcome", ignore=["ward"])
    assert torch.equal(both.test.x, two.test.x)
    frame["seen"] = pd.Timestamp("2024-05-01")
    refused("column seen", "dates", data=frame, **choices)


# --- Hugging Face's and Flower's, by what they can do


class Names(NamedTuple):
    names: list[str]


class Columns:
    """What a data set of Hugging Face's can do, as far as it is used."""

    def __init__(self, columns: dict[str, list[Any]], labels: list[str] | None = None) -> None:
        self._columns = columns
        self.column_names = list(columns)
        self.features = {"label": Names(labels)} if labels else {}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("columns are read as a whole")


def pictures(count: int, mode: str = "RGB") -> list[Any]:
    shape = (4, 5, 3) if mode == "RGB" else (4, 5)
    return [Image.fromarray(DRAW.integers(0, 256, shape).astype(np.uint8)) for _ in range(count)]


def test_columns_with_pictures_and_named_labels() -> None:
    train = Columns({"img": pictures(6), "label": [0, 1, 2] * 2}, ["cat", "dog", "eel"])
    test = Columns({"img": pictures(3), "label": [0, 1, 0]}, ["cat", "dog", "eel"])
    data = ebbflow.dataset({"train": train, "test": test})
    assert (data.labels, data.classes) == (("cat", "dog", "eel"), 3)
    assert data.train.x.dtype == torch.uint8
    assert tuple(data.train.x.shape) == (6, 3, 4, 5)
    assert data.train.pixels is not None
    assert data.test.pixels == data.train.pixels
    drawn = ebbflow.dataset(train, test_split=0.34)
    assert (len(drawn.train), len(drawn.test)) == (4, 2)


def test_columns_with_texts_vectors_and_owners() -> None:
    texts = Columns({"text": ["a b", "b c d", "c"], "label": [0, 1, 0], "user": ["u", "v", "u"]})
    data = ebbflow.dataset({"train": texts, "test": texts}, device="user")
    assert (data.train.x.dtype, data.devices) == (torch.int64, ("u", "v"))
    vectors = Columns({"features": [[1, 2], [3, 4]], "label": [0, 1]})
    assert ebbflow.dataset({"train": vectors, "test": vectors}).train.x.tolist() == [[1, 2], [3, 4]]


class Partitioner(NamedTuple):
    num_partitions: int


class Federated:
    """What a federated data set of Flower's can do, as far as it is used."""

    def __init__(self, **splits: list[Columns]) -> None:
        self.splits = splits
        self.partitioners = {k: Partitioner(len(v)) for k, v in splits.items() if len(v) > 1}

    def load_partition(self, partition_id: int, split: str | None = None) -> Columns:
        return self.splits[split or "train"][partition_id]

    def load_split(self, split: str) -> Columns:
        (whole,) = self.splits[split]
        return whole


def test_partitions_are_devices() -> None:
    parts = [Columns({"x": X[n::3].tolist(), "y": Y[n::3].tolist()}) for n in range(3)]
    whole = Columns({"x": X.tolist(), "y": Y.tolist()})
    data = ebbflow.dataset(Federated(train=parts, test=[whole]))
    assert_owned(data)
    assert data.devices == ("0", "1", "2")
    assert data.train.device is not None
    assert data.train.device.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert data.test.device is None
    both = ebbflow.dataset(Federated(train=parts, test=parts))
    assert both.test.device is not None
    refused("divides test, and not train", data=Federated(test=parts))


def test_hugging_face_itself() -> None:
    hub = pytest.importorskip("datasets", reason="Hugging Face's datasets are not installed")
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=["cat", "dog"])})
    rows = {"image": pictures(4, "L"), "label": [0, 1, 0, 1]}
    part = hub.Dataset.from_dict(rows, features=features)
    data = ebbflow.dataset(hub.DatasetDict({"train": part, "test": part}))
    assert (data.labels, tuple(data.train.x.shape)) == (("cat", "dog"), (4, 1, 4, 5))
    expected = np.stack([np.asarray(picture) for picture in rows["image"]])
    assert np.array_equal(data.train.x[:, 0].numpy(), expected)
    texts = hub.Dataset.from_dict({"text": ["a b", "c"], "label": [0, 1]})
    assert ebbflow.dataset(texts, test=texts).train.x.tolist() == [[2, 3], [4, 0]]


# --- what is refused

REFUSED: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "a name for arrays": ((X, Y), {"label": "y", "test_split": 0.5}, ["'y'", "leave the name"]),
    "a name for pairs": (
        Items((X[0], 0), (X[1], 1)),
        {"column": "scan", "test_split": 0.5},
        ["Item 0", "'scan'", "dictionaries"],
    ),
    "a number": (3, {}, ["train data are of type int", "(X, y)"]),
    "an array alone": (X, {"test_split": 0.5}, ["type ndarray", "(X, y)"]),
    "no test samples": ((X, Y), {}, ["data.test_split", "0.2"]),
    "a share and a test set": (((X, Y), (X, Y)), {"test_split": 0.5}, ["has test samples"]),
    "a share of everything": (
        (X, Y),
        {"test_split": 1.0},
        ["data.test_split = 1.0", "less than 1"],
    ),
    "an unknown argument": ((X, Y), {"labels": "y"}, ["no argument 'labels'", "mean label?"]),
    "too few labels": ((X, Y[:5]), {"test_split": 0.5}, ["12 samples", "5"]),
    "ragged rows": (([[1], [1, 2]], [0, 1]), {"test_split": 0.5}, ["differ in length"]),
    "objects": ((np.array([{}, 1]), [0, 1]), {"test_split": 0.5}, ["hold objects"]),
    "labels in fractions": ((X, Y / 2), {"test_split": 0.5}, ["float64", "integers"]),
    "a size for arrays": ((X, Y), {"size": [2, 2]}, ["data.size = [2, 2]", "leave it out"]),
    "a folder without train": (
        {"test": dicts("x", "y")},
        {},
        ["hold test, and not train and test"],
    ),
    "keys without a usual name": (
        dicts("scan", "y"),
        {"test_split": 0.5},
        ["Item 0 of the train data has scan, y", "inputs", "column=..."],
    ),
    "several usual names": (
        dicts("x", "y", image=1),
        {"test_split": 0.5},
        ["several that may be the inputs (x, image)", "column=..."],
    ),
    "no usual label": (dicts("x", "class_id"), {"test_split": 0.5}, ["label=..."]),
    "a key that is not there": (
        dicts("x", "y"),
        {"test_split": 0.5, "label": "z"},
        ["no 'z', only x, y"],
    ),
    "keys that change": (
        Items({"x": X[0], "y": 0}, {"x": X[1]}),
        {"test_split": 0.5},
        ["Item 1", "no 'y'", "same keys"],
    ),
    "owners of some": (
        Items((X[0], 0, "a"), (X[1], 1)),
        {"test_split": 0.5},
        ["1 of the 2 items", "or none"],
    ),
    "labels of two kinds": (
        Items((X[0], 0), (X[1], "one")),
        {"test_split": 0.5},
        ["numbers and texts such as 'one'"],
    ),
    "labels without end": (
        Items((X[0], 0), (X[1], 10**30)),
        {"test_split": 0.5},
        ["do not fit into 64 bits"],
    ),
    "pictures of two sizes": (
        Columns({"img": [*pictures(1), Image.new("RGB", (2, 2))], "label": [0, 1]}),
        {"test_split": 0.5},
        ["Item 1", "(3, 2, 2)", "one form"],
    ),
    "a transparent picture": (
        Columns({"img": [Image.new("RGBA", (2, 2))] * 2, "label": [0, 1]}),
        {"test_split": 0.5},
        ["Item 0", "mode RGBA", "convert"],
    ),
    "a number among texts": (
        Columns({"text": ["a", 3], "label": [0, 1]}),
        {"test_split": 0.5},
        ["Item 1", "type int", "texts"],
    ),
}


@pytest.mark.parametrize(("data", "arguments", "says"), REFUSED.values(), ids=list(REFUSED))
def test_data_that_are_refused(data: Any, arguments: dict[str, Any], says: list[str]) -> None:
    refused(*says, data=data, **arguments)


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "json", "npz"])
def test_damaged_files_are_read_or_refused_and_never_crash(tmp_path: Path, ending: str) -> None:
    pd = pytest.importorskip("pandas", reason="tables need pandas")
    path, damaged = tmp_path / f"own.{ending}", tmp_path / f"damaged.{ending}"
    choices = Choices(label="outcome", device="ward", test_split=0.25)
    if ending == "json":
        leaf(path, {user: ([[0.1, 2], [3, 4], [5, 6]], [0, 1, 0]) for user in "abc"})
        choices = Choices(test_split=0.3)
    elif ending == "npz":
        npz(path, device_train=Y)
        choices = Choices()
    elif ending == "csv":
        path = patients(tmp_path)
    else:
        pytest.importorskip("pyarrow", reason="Parquet and Feather need pyarrow")
        getattr(pd.read_csv(patients(tmp_path)), f"to_{ending}")(path)
    draw = np.random.default_rng(5)
    whole = path.read_bytes()
    refusals = 0
    for _ in range(150):
        content = bytearray(whole)
        for _ in range(draw.integers(1, 4)):
            content[draw.integers(len(content))] = draw.integers(256)
        damaged.write_bytes(
            content if draw.random() < 0.8 else content[: draw.integers(len(content))]
        )
        try:
            load(str(damaged), choices=choices)
        except EbbflowError:
            refusals += 1
    assert refusals > 20


# --- the command line


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    patients(tmp_path)
    (tmp_path / "own.xlsx").write_bytes(b"PK")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text("{")
    return tmp_path


SHORT = ("--sessions=3", "--rounds=1", "--seeds=1", "--out=out")


def test_a_table_on_the_command_line(desk: Path) -> None:
    options = ("--label", "outcome", "--device-column", "ward", "--test-split", "0.2")
    answer = command_line("compare", "--dataset", "patients.csv", *options, *SHORT, "--json")
    assert answer.code == 0, answer
    written = (desk / "out" / "config.toml").read_text()
    assert 'label = "outcome"' in written
    assert "test_split = 0.2" in written
    again = command_line("compare", "out/config.toml", "--out=again", "--json")
    assert again.out == answer.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--dataset patients.csv", ["patients.csv needs data.label", "--label"]),
        ("--dataset patients.csv --label outcom", ["'outcom'", "mean outcome?"]),
        ("--dataset patients.csv --label outcome", ["data.test_split", "--test-split"]),
        ("--dataset nosuch.csv --label y", ["nosuch.csv does not exist"]),
        ("--dataset nosuch.parquet --label y", ["nosuch.parquet does not exist"]),
        ("--dataset own.xlsx", ["own.xlsx", "of no kind", ".csv"]),
        ("--dataset empty", ["empty holds no folders with pictures"]),
        ("--dataset bad.json --test-split 0.2", ["bad.json is not valid JSON"]),
        ("--dataset digits --label y", ['data.label = "y" has no use', "'digits'"]),
        ("--dataset digits --test-split 0.2", ["data.test_split = 0.2 has no use"]),
        ("--dataset digits --test-split 2", ["data.test_split = 2", "--test-split", "less than 1"]),
        ("--dataset digits --set data.size=[0,3]", ["data.size", "greater than or equal to 1"]),
        ("--dataset digits --set data.inputs=letters", ["data.inputs", "'tokens'"]),
        ("--dataset digits --set data.ignore=3", ["data.ignore", "valid string"]),
        ("--dataset digits --set data.vocabulary=2", ["data.vocabulary = 2", "equal to 3"]),
        ("--dataset ''", ["no data set ''"]),
    ],
)
def test_one_sentence_and_no_traceback(desk: Path, arguments: str, says: list[str]) -> None:
    words = arguments.replace("''", "").split(" ")
    answer = command_line("compare", *words, *SHORT)
    assert (answer.code, answer.out) == (2, ""), answer
    assert answer.err.startswith("ebbflow: ")
    assert answer.err.count("\n") == 1
    for text in says:
        assert text in answer.err, answer.err
    assert not (desk / "out").exists()


def test_what_the_page_on_own_data_says_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="the page has a table")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    commands = 0
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", page, flags=re.DOTALL):
        if kind == "python":
            exec(compile(block, "own-data.md", "exec"), names)
            continue
        for line in block.splitlines():
            commands += 1
            arguments = shlex.split(line.removeprefix("$ ebbflow "))
            short = ("--sessions=3", "--rounds=1", "--seeds=1", f"--out=run-{commands}")
            answer = command_line(*arguments, *short)
            assert answer.code == 0, answer
    assert commands == 6
