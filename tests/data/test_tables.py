"""Tables: what is done to columns, and what is said about tables that cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.data.datasets import load
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.naming import natural_order, numbered
from ebbflow.data.own.splitting import held_out
from tests.data.own import assert_one_sentence, assert_owned, patients, write_csv

pd = pytest.importorskip("pandas", reason="tables need pandas")

USUAL = Choices(label="outcome", device="ward", test_split=0.25)
"""How the patients are read."""


def test_a_table_becomes_inputs_labels_and_devices(tmp_path: Path) -> None:
    data = load(str(patients(tmp_path)), choices=USUAL)
    assert_owned(data)
    assert (data.name, data.classes, data.labels) == ("patients", 2, ("ill", "well"))
    assert data.devices == tuple(f"ward {n}" for n in range(1, 12))
    # Age and where it is missing, three values of sex, two of smokes; site is constant.
    assert data.train.x.shape[1] == 2 + 3 + 2
    assert data.train.x.dtype == torch.float32
    told = " ".join(data.notes)
    for words in (
        "16 of 60 samples",
        "mean and standard deviation: age",
        "one value only: site",
        "column age: 9 missing values became",
        "category (f, m, missing)",
        "column sex: 20 missing values are a category",
        "category (False, True)",
        "2 labels",
    ):
        assert words in told, words


def test_numbers_are_standardised_by_the_training_set(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "a.csv", "x,y", "1,0", "3,1", "5,0", ",1")
    test = write_csv(tmp_path / "b.csv", "x,y", "9,0", ",1")
    data = load(str(train), choices=Choices(label="y", test=str(test)))
    deviation = float(np.std([1, 3, 5]))
    expected = [-2 / deviation, 0, 0, 0, 2 / deviation, 0, 0, 1]
    assert data.train.x.flatten().tolist() == pytest.approx(expected, rel=1e-6)
    assert data.test.x.flatten().tolist() == pytest.approx([6 / deviation, 0, 0, 1], rel=1e-6)
    assert (data.labels, data.devices, data.train.device) == ((), (), None)


def test_what_is_missing_or_unknown_in_the_test_set_only(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "a.csv", "x,c,y", "1,a,0", "3,b,1")
    test = write_csv(tmp_path / "b.csv", "x,c,y,more", ",zebra,0,1", "3,b,1,2")
    data = load(str(train), choices=Choices(label="y", test=str(test)))
    assert data.test.x.tolist() == [[0, 0, 0], [1, 0, 1]]
    told = " ".join(data.notes)
    assert "missing in the test set only" in told
    assert "1 test samples with categories that no training sample has have zeros" in told
    assert "more of" in told
    assert "are not used" in told


def test_rare_categories_share_an_input(tmp_path: Path) -> None:
    rows = [f"c{row % 150},{row % 2}" for row in range(151)] + ["c0,1"]
    path = write_csv(tmp_path / "a.csv", "c,y", *rows)
    test = write_csv(tmp_path / "b.csv", "c,y", "c0,0", "new,1")
    data = load(str(path), choices=Choices(label="y", test=str(test)))
    assert data.train.x.shape == (152, 100)
    assert bool((data.train.x.sum(1) == 1).all())
    assert data.test.x[1].tolist() == [0] * 99 + [1]
    assert any("51 rarest categories count as other" in note for note in data.notes)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["0", "1", "2", "0"], ()),
        (["1", "2", "5", "1"], ("1", "2", "5")),
        (["-1", "10", "9", "9"], ("-1", "9", "10")),
        (["0.5", "1.5", "0.5", "1.5"], ("0.5", "1.5")),
        (["1.0", "0.0", "1.0", "0.0"], ()),
        (["True", "False", "True", "False"], ("False", "True")),
        (["grade 10", "grade 9", "grade 10", "grade 9"], ("grade 9", "grade 10")),
    ],
)
def test_labels_of_all_kinds(tmp_path: Path, labels: list[str], names: tuple[str, ...]) -> None:
    rows = [f"{row},{label}" for row, label in enumerate(labels)]
    path = write_csv(tmp_path / "a.csv", "x,y", *rows)
    data = load(str(path), choices=Choices(label="y", test=str(path)))
    assert data.labels == names
    assert data.classes == len(set(labels))
    if names:
        assert [names[y] for y in data.train.y.tolist()] == [
            label.removesuffix(".0") for label in labels
        ]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather", "CSV"])
def test_every_kind_of_file_gives_the_same(tmp_path: Path, ending: str) -> None:
    source = patients(tmp_path)
    frame = pd.read_csv(source)
    path = tmp_path / f"other.{ending}"
    if ending == "tsv":
        frame.to_csv(path, sep="\t", index=False)
    elif ending.lower() == "csv":
        path.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    else:
        pytest.importorskip("pyarrow", reason="Parquet and Feather need pyarrow")
        getattr(frame, f"to_{ending}")(path)
    ours, theirs = (load(str(p), choices=USUAL) for p in (source, path))
    assert torch.equal(ours.train.x, theirs.train.x)
    assert torch.equal(ours.test.y, theirs.test.y)
    assert ours.devices == theirs.devices


def test_types_of_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3, 4], dtype="Int64"),
            "kind": pd.Categorical(["a", "b", "a", "b"]),
            "flag": pd.array([True, False, None, True], dtype="boolean"),
            "single": np.array([1, 2, 3, 4], dtype=np.float32),
            "y": ["n", "y", "n", "y"],
        }
    )
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    data = load(path, choices=Choices(label="y", test=path))
    assert data.train.x.shape == (4, 2 + 2 + 3 + 1)
    assert bool(data.train.x.isfinite().all())


def test_a_column_of_texts_can_be_learnt_from(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "reviews.csv",
        "text,stars,id",
        '"Good, good film",1,a',
        "bad film,0,b",
        "a good one,1,c",
        "so bad,0,d",
    )
    choices = Choices(label="stars", ignore=("id",), inputs="words", test_split=0.25)
    data = load(str(path), choices=choices)
    assert data.train.x.dtype == torch.int64
    assert any('model.kind = "embedding"' in note for note in data.notes)


def test_notes_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", "\x1b[31mred,y", "1,0", "2,1", "3,0")
    data = load(str(path), choices=Choices(label="y", test=str(path)))
    assert any("red" in note for note in data.notes)
    assert not any("\x1b" in note for note in data.notes)


def test_a_counter_of_rows_is_told(tmp_path: Path) -> None:
    rows = [f"{row},{row % 3},{row % 2}" for row in range(100)]
    path = write_csv(tmp_path / "a.csv", "number,x,y", *rows)
    data = load(str(path), choices=Choices(label="y", test_split=0.2))
    assert any("column number seems to number the rows" in note for note in data.notes)


# --- what is refused

Write = Callable[[Path], object]


def lines(*rows: str) -> Write:
    return lambda path: write_csv(path, *rows)


def raw(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


GOOD = ("x,ward,y", "1,a,no", "2,a,yes", "4,b,no", "3,b,yes")
LABELLED: dict[str, Any] = {"label": "y", "device": "ward", "test_split": 0.5}
IDS = [f"p{n},{n % 3},a,{n % 2}" for n in range(9)]

REFUSED: dict[str, tuple[Write, dict[str, Any], list[str]]] = {
    "no label named": (lines(*GOOD), {"label": None}, ["data.label", "--label", "x, ward, y"]),
    "a label that is no column": (
        lines(*GOOD),
        {"label": "yy"},
        ["data.label = 'yy'", "did you mean y?", "x, ward, y"],
    ),
    "owners in no column": (lines(*GOOD), {"device": "wards"}, ["data.device", "mean ward?"]),
    "ignored and not there": (lines(*GOOD), {"ignore": ("z",)}, ["data.ignore = 'z'"]),
    "the label ignored": (lines(*GOOD), {"ignore": ("y",)}, ["'y'", "take it out"]),
    "label and owner in one": (lines(*GOOD), {"device": "y"}, ["both 'y'"]),
    "no test samples": (lines(*GOOD), {"test_split": None}, ["data.test_split", "--test-split"]),
    "nowhere to test": (lines(*GOOD), {"test": "gone.csv"}, ["gone.csv", "does not exist"]),
    "a size for a table": (lines(*GOOD), {"size": (2, 2)}, ["data.size = [2, 2]", "leave it out"]),
    "nothing": (raw(b""), {}, ["is empty", "name the columns"]),
    "only empty lines": (raw(b"\n\n \n"), {}, ["is empty"]),
    "a header alone": (lines("x,ward,y"), {}, ["no rows"]),
    "two columns of one name": (lines("x,y,x", "1,2,3"), {}, ["two columns called 'x'"]),
    "a column without a name": (lines("x,,y", "1,2,3"), {}, ["column 2 has no name"]),
    "a short line": (lines(*GOOD, "1,a"), {}, ["line 6", "2 values", "3 columns"]),
    "a long line": (lines(*GOOD, "1,a,no,no"), {}, ["line 6", "4 values", "3 columns"]),
    "a short line after an empty one": (lines(*GOOD, "", "1,a"), {}, ["line 7", "2 values"]),
    "semicolons": (lines("x;ward;y", "1;a;no"), {}, ["'x;ward;y'", "by commas"]),
    "tabs": (lines("x\tward\ty", "1\ta\tno"), {}, ["separate columns by commas"]),
    "Latin-1": (raw(b"x,ward,y\n1,a,no\n2,caf\xe9,yes\n"), {}, ["line 3", "0xe9", "UTF-8"]),
    "UTF-16": (raw("x,y\n1,2\n".encode("utf-16")), {}, ["line 1", "UTF-8"]),
    "zero bytes": (raw(b"x,ward,y\n1,a,\0\n"), {}, ["line 2", "zero", "plain text"]),
    "a quote without end": (
        raw(b'x,ward,y\n1,a,no\n2,a,"yes\n3,b,no\n'),
        {},
        ["line 4", "end of data", "write it again"],
    ),
    "a label is missing": (lines(*GOOD, "5,a,"), {}, ["line 6", "column y", "no label"]),
    "an owner is missing": (lines(*GOOD, "5,,no"), {}, ["line 6", "column ward", "whose"]),
    "an infinite number": (lines(*GOOD, "inf,a,no"), {}, ["line 6", "column x", "inf", "finite"]),
    "numbers beyond all": (
        lines(*GOOD, "1e308,a,no", "-1.5e308,a,no", "1.7e308,b,yes"),
        {},
        ["column x", "too large"],
    ),
    "a word among numbers": (
        lines(*GOOD, "many,a,no"),
        {},
        ["line 6", "column x", "'many'", "data.ignore"],
    ),
    "dates": (
        lines("x,d,ward,y", *(f"{n},2024-01-{n:02d},a,{n % 2}" for n in range(1, 9))),
        {},
        ["column d", "'2024-01-0", "days since", "data.ignore"],
    ),
    "times": (
        lines("x,d,ward,y", *(f"{n},{n}/5/2024 12:30,a,{n % 2}" for n in range(1, 9))),
        {},
        ["column d", "dates or times"],
    ),
    "an identifier": (lines("id,x,ward,y", *IDS), {}, ["column id", "'p", "data.ignore"]),
    "measurements for labels": (
        lines("x,ward,y", *(f"{n},a,{n / 7}" for n in range(40))),
        {},
        ["column y", "40 different numbers", "choose another data.label"],
    ),
    "an infinite label": (lines("x,ward,y", "1,a,0.5", "2,a,inf"), {}, ["line 3", "column y"]),
    "one class only": (
        lines("x,ward,y", *(f"{n},a,no" for n in range(9))),
        {},
        ["column y", "same label", "nothing to learn"],
    ),
    "nothing to learn from": (
        lines("x,ward,y", *(f"1,a,{n % 2}" for n in range(9))),
        {},
        ["no column left", "constant: x"],
    ),
    "a single sample": (lines("x,ward,y", "1,a,no"), {}, ["1 sample,", "too few", "data.test"]),
    "labels so rare that none can be tested": (
        lines("x,ward,y", "1,a,no", "2,a,yes"),
        {},
        ["no sample is left for testing", "data.test"],
    ),
    "no column of texts": (
        lines(*GOOD),
        {"inputs": "words"},
        ["one column of texts", "none", "data.ignore"],
    ),
    "two columns of texts": (
        lines("s,t,ward,y", "a,b,a,no", "c,d,a,yes", "e,f,b,no", "g,h,b,yes"),
        {"inputs": "words"},
        ["2 (s, t)", "data.ignore"],
    ),
}


@pytest.mark.parametrize(("write", "choices", "says"), REFUSED.values(), ids=list(REFUSED))
def test_tables_that_are_refused(
    tmp_path: Path, write: Write, choices: dict[str, Any], says: list[str]
) -> None:
    path = tmp_path / "own.csv"
    write(path)
    with pytest.raises(EbbflowError) as error:
        load(str(path), choices=Choices(**{**LABELLED, **choices}))
    text = str(error.value)
    assert_one_sentence(text)
    for words in says:
        assert words in text, text


TEST_FILES: dict[str, tuple[list[str], list[str]]] = {
    "a column is missing": (["ward,y", "a,no"], ["lacks the column x", "data.ignore"]),
    "other kinds of values": (["x,ward,y", "high,a,no", "low,a,yes"], ["column x", "numbers"]),
    "a label that nobody learns": (["x,ward,y", "1,a,perhaps"], ["'perhaps'", "no device can"]),
    "no label": (["x,ward,y", "1,a,"], ["test.csv, line 2", "no label"]),
    "a slip of many digits": (["x,ward,y", "1e39,a,no"], ["test.csv, line 2", "1e+39", "correct"]),
    "no rows": (["x,ward,y"], ["test.csv", "no rows"]),
}


@pytest.mark.parametrize(("rows", "says"), TEST_FILES.values(), ids=list(TEST_FILES))
def test_test_tables_that_are_refused(tmp_path: Path, rows: list[str], says: list[str]) -> None:
    train, test = write_csv(tmp_path / "a.csv", *GOOD), write_csv(tmp_path / "test.csv", *rows)
    choices = Choices(label="y", device="ward", test=str(test))
    with pytest.raises(EbbflowError) as error:
        load(str(train), choices=choices)
    assert_one_sentence(str(error.value))
    for words in says:
        assert words in str(error.value), str(error.value)
    with pytest.raises(EbbflowError, match=r"data\.test_split = 0\.5 has no use"):
        good = write_csv(tmp_path / "good.csv", *GOOD)
        load(str(train), choices=choices._replace(test=str(good), test_split=0.5))


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_files_that_cannot_be_read(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("pyarrow", reason="Parquet and Feather need pyarrow")
    path = tmp_path / f"own.{ending}"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(EbbflowError, match=f"is not a readable {ending} file") as error:
        load(str(path), choices=USUAL)
    assert_one_sentence(str(error.value))


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EbbflowError, match=r"package pandas.*pip install \"ebbflow\[table\]\"`"):
        load(str(patients(tmp_path)), choices=USUAL)
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EbbflowError, match=r"pip install \"ebbflow\[table\]\"`"):
        load(str(tmp_path / "own.parquet"), choices=USUAL)
    (tmp_path / "own.hdf5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(EbbflowError, match=r"package h5py.*pip install \"ebbflow\[leaf\]\"`"):
        load(str(tmp_path / "own.hdf5"), choices=Choices(test_split=0.5))


def test_lists_in_a_column_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    frame = pd.DataFrame({"x": [[1], [2]], "y": [0, 1]})
    frame.to_parquet(tmp_path / "t.parquet")
    path = str(tmp_path / "t.parquet")
    with pytest.raises(EbbflowError, match="column x holds values of type"):
        load(path, choices=Choices(label="y", test=path))


# --- properties


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=2, max_size=60),
    st.floats(0.01, 0.99),
)
@settings(deadline=None)
def test_every_label_is_trained_and_devices_are_tested(
    samples: list[tuple[int, int]], share: float
) -> None:
    owners, labels = (np.array(part) for part in zip(*samples, strict=True))
    try:
        test = held_out("own", share, labels, owners).test
    except EbbflowError:
        assert len(np.unique(labels)) > len(labels) - len(np.unique(owners)) - 1
        return
    again = held_out("own", share, labels, owners).test
    assert (test == again).all()
    assert set(labels[~test]) == set(labels)
    for owner in np.unique(owners):
        mine = owners == owner
        assert not test[mine].all()
        if mine.sum() > 1 and len(set(labels)) == 1 and mine.sum() > 2:
            assert test[mine].any()


@given(st.lists(st.text(max_size=8), min_size=1, max_size=30))
def test_names_are_numbered_once_and_in_order(names: list[str]) -> None:
    found = numbered(np.array(names), None)
    assert sorted(found.names) == sorted(set(np.array(names).tolist()))
    assert [found.names[number] for number in found.train.tolist()] == np.array(names).tolist()
    assert list(found.names) == natural_order(found.names)
