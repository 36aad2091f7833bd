"""A history on disk: the same bits back, readable names, and no trust in what was changed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Entry, Layout, ModelState
from ebbflow.history.store import PILOT, Store
from ebbflow.records import CONFIG, HISTORY, MANIFEST, read_manifest
from ebbflow.report.histories import kept_files

LAYOUT = Layout(("weight", "bias"), ((2, 3), (2,)))
BUFFERS = Layout(("norm.mean",), ((4,),))
FILE = "session-0005.safetensors"


def entry(session: int, signed: bool = True, buffers: int = 4) -> Entry:
    draw = torch.Generator().manual_seed(session)
    theta, signature = torch.randn(2, LAYOUT.total, generator=draw)
    # Values whose bits a careless round trip would lose.
    theta[:3] = torch.tensor([1e-45, -0.0, torch.finfo(torch.float32).max])
    mean = torch.randn(buffers, generator=draw)
    return Entry(session, ModelState(theta, mean), signature if signed else None)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "history", LAYOUT, BUFFERS)


@pytest.mark.parametrize("signed", [True, False])
def test_an_entry_comes_back_bit_by_bit(store: Store, signed: bool) -> None:
    written = entry(5, signed)
    store.write(written)
    read = Store(store.folder, LAYOUT, BUFFERS).read(5)
    assert read.session == 5
    assert same_bits(read.model.theta, written.model.theta)
    assert same_bits(read.model.buffers, written.model.buffers)
    if written.signature is None:
        assert read.signature is None
    else:
        assert read.signature is not None
        assert same_bits(read.signature, written.signature)


def test_a_model_without_buffers_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path, LAYOUT, Layout((), ()))
    store.write(entry(5, buffers=0))
    assert store.read(5).model.buffers.shape == (0,)


def test_the_pilot_comes_back_and_is_never_dropped(store: Store) -> None:
    pilot = entry(1).model
    store.write_pilot(pilot)
    store.write(entry(5))
    store.keep([])
    assert same_bits(store.read_pilot().theta, pilot.theta)
    assert set(read_manifest(store.folder)) == {PILOT}


def test_what_is_read_is_a_copy(store: Store) -> None:
    store.write(entry(5))
    store.read(5).model.theta.zero_()
    assert same_bits(store.read(5).model.theta, entry(5).model.theta)


def test_what_was_written_may_change_afterwards(store: Store) -> None:
    written = entry(5)
    store.write(written)
    written.model.theta.zero_()
    assert same_bits(store.read(5).model.theta, entry(5).model.theta)


def test_any_safetensors_reader_finds_the_tensors_by_name(store: Store) -> None:
    store.write(entry(5))
    with safe_open(store.folder / FILE, "pt") as file:
        assert set(file.keys()) == {
            "theta/weight",
            "theta/bias",
            "buffers/norm.mean",
            "signature/weight",
            "signature/bias",
        }
        weight = file.get_tensor("theta/weight")
    assert weight.shape == (2, 3)
    assert same_bits(weight.reshape(-1), entry(5).model.theta[:6])


def test_the_manifest_holds_facts_and_checksums(store: Store) -> None:
    store.write(entry(5), devices=20, drew_on={"2": 1.0})
    store.write_pilot(entry(1).model)
    manifest = json.loads((store.folder / MANIFEST).read_text())
    assert manifest["version"] == 1
    content = (store.folder / FILE).read_bytes()
    assert manifest["files"][FILE] == {
        "session": 5,
        "devices": 20,
        "drew_on": {"2": 1.0},
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    assert set(manifest["files"]) == {FILE, PILOT}


def test_keep_deletes_all_other_entries(store: Store) -> None:
    for session in (2, 3, 5):
        store.write(entry(session))
    store.keep([2, 5])
    names = {"session-0002.safetensors", FILE}
    assert set(read_manifest(store.folder)) == names
    assert {path.name for path in store.folder.iterdir()} == names | {MANIFEST}
    store.keep([2, 5])
    with pytest.raises(EbbflowError, match="missing"):
        store.read(3)


def test_no_file_is_left_half_written(store: Store) -> None:
    store.write(entry(5))
    store.write(entry(5, signed=False))
    assert {path.name for path in store.folder.iterdir()} == {FILE, MANIFEST}
    assert store.read(5).signature is None


def one_sentence(caught: pytest.ExceptionInfo[EbbflowError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    assert len(re.findall(r"[.!?] [A-Z]", message)) == 0
    return message


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("at", [0, 20, -1])
def test_a_flipped_bit_is_refused(store: Store, at: int) -> None:
    store.write(entry(5))
    flip(store.folder / FILE, at)
    with pytest.raises(EbbflowError, match=rf"{FILE} does not match its checksum") as caught:
        store.read(5)
    assert "restore" in one_sentence(caught)


def test_a_missing_entry_is_named(store: Store) -> None:
    store.write(entry(5))
    (store.folder / FILE).unlink()
    with pytest.raises(EbbflowError, match=rf"{FILE} is missing: restore") as caught:
        store.read(5)
    one_sentence(caught)


def test_a_file_without_a_line_in_the_manifest_is_refused(store: Store) -> None:
    store.write(entry(5))
    (store.folder / "session-0006.safetensors").write_bytes((store.folder / FILE).read_bytes())
    with pytest.raises(EbbflowError, match="does not match its checksum"):
        store.read(6)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(("weight", "bias", "head"), ((2, 3), (2,), (1,))),
        Layout(("weight", "bias"), ((3, 3), (2,))),
        Layout(("weight",), ((2, 3),)),
    ],
    ids=["more tensors", "other shapes", "fewer tensors"],
)
def test_an_entry_of_another_model_is_refused(store: Store, layout: Layout) -> None:
    store.write(entry(5))
    with pytest.raises(EbbflowError, match="another model") as caught:
        Store(store.folder, layout, BUFFERS).read(5)
    one_sentence(caught)


def test_a_file_that_is_no_safetensors_is_refused_even_with_a_right_checksum(store: Store) -> None:
    store.write(entry(5))
    content = b"not a tensor in sight"
    (store.folder / FILE).write_bytes(content)
    files = read_manifest(store.folder)
    files[FILE]["sha256"] = hashlib.sha256(content).hexdigest()
    (store.folder / MANIFEST).write_text(json.dumps({"version": 1, "files": files}))
    with pytest.raises(EbbflowError, match=FILE):
        store.read(5)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"files": 3}', "null"])
def test_an_unreadable_manifest_is_named(store: Store, text: str) -> None:
    store.write(entry(5))
    (store.folder / MANIFEST).write_text(text)
    with pytest.raises(EbbflowError, match=r"manifest\.json is no ") as caught:
        store.read(5)
    one_sentence(caught)


def test_the_report_says_which_files_are_whole(tmp_path: Path) -> None:
    (tmp_path / CONFIG).touch()
    assert kept_files(tmp_path) == []
    store = Store(tmp_path / HISTORY / "fedavg" / "average" / "seed-7", LAYOUT, BUFFERS)
    for session in (2, 3, 5):
        store.write(entry(session))
    store.write_pilot(entry(1).model)
    flip(store.folder / FILE, -1)
    (store.folder / "session-0003.safetensors").unlink()
    assert {kept.path.name: kept.state for kept in kept_files(tmp_path)} == {
        PILOT: "ok",
        "session-0002.safetensors": "ok",
        "session-0003.safetensors": "missing",
        FILE: "damaged",
    }


def test_a_file_saved_by_others_under_the_same_names_can_be_read(store: Store) -> None:
    store.write(entry(5))
    tensors = load_file(store.folder / FILE)
    save_file(dict(reversed(tensors.items())), store.folder / FILE)
    files = read_manifest(store.folder)
    digest = hashlib.sha256((store.folder / FILE).read_bytes()).hexdigest()
    files[FILE]["sha256"] = digest
    (store.folder / MANIFEST).write_text(json.dumps({"version": 1, "files": files}))
    assert same_bits(store.read(5).model.theta, entry(5).model.theta)


def test_nothing_in_the_package_reads_or_writes_a_pickle() -> None:
    package = Path(__file__).parents[2] / "src" / "ebbflow"
    forbidden = re.compile(
        r"import pickle|from pickle|pickle\.\w|torch\.load|torch\.save|allow_pickle=True"
    )
    modules = list(package.rglob("*.py"))
    assert len(modules) > 20
    found = [
        f"{path.name}: {line.strip()}"
        for path in modules
        for line in path.read_text(encoding="utf-8").splitlines()
        if forbidden.search(line)
    ]
    assert found == []
