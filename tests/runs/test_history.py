"""A history on disk: the same bits back, readable names, and no trust in what was changed."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ebbflow.core.errors import EbbflowError
from ebbflow.core.sketch import LIMIT, SketchTable, plan, sketch
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.runs import history
from ebbflow.runs.history import PILOT, Store
from ebbflow.runs.kept_files import kept_files
from ebbflow.runs.records import CONFIG, HISTORY, MANIFEST, read_manifest, write_sealed

LAYOUT = Layout(("weight", "bias"), ((2, 3), (2,)))
BUFFERS = Layout(("norm.mean",), ((4,),))
FILE = "session-0005.safetensors"


def entry(session: int, signed: bool = True, buffers: int = 4) -> PastSession:
    draw = torch.Generator().manual_seed(session)
    theta, signature = torch.randn(2, LAYOUT.total, generator=draw)
    # Values whose bits a careless round trip would lose.
    theta[:3] = torch.tensor([1e-45, -0.0, torch.finfo(torch.float32).max])
    mean = torch.randn(buffers, generator=draw)
    return PastSession(session, ModelState(theta, mean), signature if signed else None)


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
    assert read.number == 5
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
    with safe_open(store.folder / PILOT, framework="pt") as tensors:
        assert same_bits(tensors.get_tensor("theta/weight").reshape(-1), pilot.theta[:6])
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
    assert manifest["version"] == 2
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


# --- entries that stay on disk -------------------------------------------------------------------


def alike(a: PastSession, b: PastSession) -> bool:
    if a.signature is None or b.signature is None:
        signed = a.signature is b.signature
    else:
        signed = same_bits(a.signature, b.signature)
    pairs = zip(a.model, b.model, strict=True)
    return signed and a.number == b.number and all(same_bits(x, y) for x, y in pairs)


@pytest.mark.parametrize("signed", [True, False])
def test_a_written_entry_is_the_one_in_memory_bit_by_bit(store: Store, signed: bool) -> None:
    stored = store.write(entry(5, signed))
    assert alike(stored, entry(5, signed))
    assert alike(store.read(5), entry(5, signed))
    assert stored.signed == store.read(5).signed == entry(5, signed).signed == signed
    assert stored.sketch is None


def test_a_stored_entry_holds_no_tensor(store: Store) -> None:
    stored = store.write(entry(5))
    assert stored.model.theta.data_ptr() != stored.model.theta.data_ptr()
    held = [value for value in vars(stored).values() if isinstance(value, torch.Tensor)]
    assert held == []
    assert repr(stored) == f"StoredSession(5, '{store.folder / FILE}')"


def test_what_is_read_of_a_stored_entry_is_a_copy(store: Store) -> None:
    stored = store.write(entry(5))
    stored.model.theta.zero_()
    assert alike(stored, entry(5))


def open_files(below: Path) -> list[str]:
    """Return what this process has open or mapped of a folder."""
    found = Path("/proc/self/maps").read_text().splitlines()
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.append(str(handle.readlink()))
    return [line for line in found if str(below) in line]


linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="there is no /proc here")


@linux
def test_no_file_stays_open_or_mapped(store: Store) -> None:
    store.write_pilot(entry(1).model)
    kept = [store.write(entry(session)) for session in (2, 3, 5)]
    kept += store.read_all([2, 3, 5])
    models = [(stored.model, stored.signature, stored.sketch) for stored in kept]
    assert len(models) == 6
    assert open_files(store.folder) == []


@linux
def test_no_file_stays_open_after_an_entry_was_refused(store: Store) -> None:
    store.write(entry(5))
    with pytest.raises(EbbflowError, match="another model"):
        Store(store.folder, Layout(("weight",), ((2, 3),)), BUFFERS).read(5)
    assert open_files(store.folder) == []


def test_what_was_read_outlives_its_file(store: Store) -> None:
    stored = store.write(entry(5))
    model, signature = stored.model, stored.signature
    store.keep([])
    assert not (store.folder / FILE).exists()
    assert alike(PastSession(5, model, signature), entry(5))
    with pytest.raises(EbbflowError, match=rf"{FILE} is missing: restore"):
        _ = stored.model


@linux
def test_a_file_may_be_deleted_while_it_is_mapped(store: Store) -> None:
    store.write(entry(5))
    with safe_open(store.folder / FILE, "pt") as file:
        weight = file.get_tensor("theta/weight")
        store.keep([])
        assert same_bits(weight.reshape(-1), entry(5).model.theta[:6])


def test_a_file_is_checked_once_when_it_is_first_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []

    def digest(file: BinaryIO, name: str) -> Any:
        checks.append(file.name)
        return really(file, name)

    really: Any = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", digest)
    stored = store.write(entry(5))
    assert stored.signed
    assert checks == []
    for _ in range(3):
        assert alike(stored, entry(5))
    assert checks == [str(store.folder / FILE)]
    again = store.read(5)
    assert len(checks) == 2
    assert alike(again, entry(5))
    assert len(checks) == 2


def test_a_file_that_was_damaged_since_it_was_written_is_refused(store: Store) -> None:
    stored = store.write(entry(5))
    flip(store.folder / FILE, -1)
    with pytest.raises(EbbflowError, match=rf"{FILE} does not match its checksum") as caught:
        _ = stored.signature
    one_sentence(caught)


# --- models that sessions began with -------------------------------------------------------------


def started(session: int, signed: bool = False, buffers: int = 4) -> PastSession:
    """Return an entry with the model that the session began with, and its devices."""
    plain, other = entry(session, signed, buffers), entry(session + 1000, signed, buffers)
    return PastSession(session, plain.model, plain.signature, other.model, (3, 1, 7))


@pytest.mark.parametrize("signed", [True, False])
def test_a_start_and_the_devices_come_back_bit_by_bit(store: Store, signed: bool) -> None:
    whole = started(5, signed)
    assert whole.start is not None
    for stored in (store.write(whole), Store(store.folder, LAYOUT, BUFFERS).read(5)):
        assert alike(stored, whole)
        assert stored.start is not None
        assert same_bits(stored.start.theta, whole.start.theta)
        assert same_bits(stored.start.buffers, whole.start.buffers)
        assert stored.devices == (3, 1, 7)


def test_a_start_without_buffers_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path, LAYOUT, Layout((), ()))
    store.write(started(5, buffers=0))
    start = store.read(5).start
    assert start is not None
    assert start.buffers.shape == (0,)


def test_any_safetensors_reader_finds_the_start_by_name(store: Store) -> None:
    store.write(started(5))
    with safe_open(store.folder / FILE, "pt") as file:
        assert set(file.keys()) == {
            *(f"{prefix}theta/{name}" for prefix in ("", "start/") for name in LAYOUT.names),
            *(f"{prefix}buffers/norm.mean" for prefix in ("", "start/")),
            "members",
        }
        assert file.get_tensor("members").tolist() == [3, 1, 7]


def test_the_manifest_does_not_grow_with_the_devices(store: Store) -> None:
    # It is read and written for every session: with the devices of all of them in it, each session
    # would take longer than the one before.
    few, many = started(5), started(6)
    store.write(few)
    size = (store.folder / MANIFEST).stat().st_size
    stored = store.write(replace(many, devices=tuple(range(10_000))))
    assert (store.folder / MANIFEST).stat().st_size < 2 * size + 20
    assert stored.devices == store.read(6).devices == tuple(range(10_000))


def test_devices_listed_in_the_manifest_as_by_earlier_versions_are_read(store: Store) -> None:
    store.write(started(5))
    tensors = load_file(store.folder / FILE)
    del tensors["members"]
    save_file(tensors, store.folder / FILE)
    files = read_manifest(store.folder)
    files[FILE]["sha256"] = hashlib.sha256((store.folder / FILE).read_bytes()).hexdigest()
    files[FILE]["members"] = [3, 1, 7]
    (store.folder / MANIFEST).write_text(json.dumps({"version": 1, "files": files}))
    assert store.read(5).devices == (3, 1, 7)


def test_without_a_start_neither_it_nor_the_devices_are_written(store: Store) -> None:
    """Entries of other methods are what they were before there were starts, to the bit."""
    plain = entry(5)
    written = PastSession(5, plain.model, plain.signature, None, (3, 1, 7))
    assert store.write(written).devices == ()
    before = (store.folder / FILE).read_bytes()
    assert store.read(5).start is None
    assert store.read(5).devices == ()
    store.write(entry(5))
    assert (store.folder / FILE).read_bytes() == before


def test_a_start_of_another_model_is_refused(store: Store) -> None:
    store.write(started(5))
    tensors = load_file(store.folder / FILE)
    tensors["start/theta/weight"] = torch.zeros(3, 3)
    save_file(tensors, store.folder / FILE)
    files = read_manifest(store.folder)
    files[FILE]["sha256"] = hashlib.sha256((store.folder / FILE).read_bytes()).hexdigest()
    (store.folder / MANIFEST).write_text(json.dumps({"version": 1, "files": files}))
    with pytest.raises(EbbflowError, match="another model") as caught:
        store.read(5)
    one_sentence(caught)


@linux
def test_reading_a_start_leaves_no_file_open(store: Store) -> None:
    stored = store.write(started(5))
    starts = [stored.start, store.read(5).start]
    assert all(start is not None for start in starts)
    assert open_files(store.folder) == []


# --- sketches beside the signatures --------------------------------------------------------------

WIDE = Layout(("weight", "bias"), ((90, 80), (90,)))


def sketching(folder: Path, distance: str = "per_tensor") -> Store:
    return Store(folder, WIDE, BUFFERS, plan(WIDE, distance))


def wide(session: int, signed: bool = True) -> PastSession:
    draw = torch.Generator().manual_seed(session)
    theta, signature = torch.randn(2, WIDE.total, generator=draw)
    return PastSession(session, ModelState(theta, torch.zeros(4)), signature if signed else None)


def test_a_sketch_lies_beside_its_signature(tmp_path: Path) -> None:
    store = sketching(tmp_path)
    signature = wide(5).signature
    assert signature is not None
    expected = sketch(signature, plan(WIDE, "per_tensor"))
    for stored in (store.write(wide(5)), store.read(5)):
        assert stored.sketch is not None
        assert same_bits(stored.sketch.values, expected.values)
        assert torch.equal(stored.sketch.norms, expected.norms)
        assert alike(stored, wide(5))
    with safe_open(tmp_path / FILE, "pt") as file:
        values = file.get_tensor("sketch/tensors-1/values")
        assert values.shape == (LIMIT - 1,)
        assert file.get_tensor("sketch/tensors-1/norms").shape == (1,)


def test_sketches_are_only_kept_of_signatures_and_where_asked_for(tmp_path: Path) -> None:
    assert sketching(tmp_path).write(wide(5, signed=False)).sketch is None
    plain = Store(tmp_path, WIDE, BUFFERS)
    plain.write(wide(6))
    with safe_open(tmp_path / "session-0006.safetensors", "pt") as file:
        assert not any(name.startswith("sketch/") for name in list(file.keys()))
    # A history that was made without them: they are made when they are needed.
    assert sketching(tmp_path).read(6).sketch is None


def test_a_sketch_for_another_distance_is_not_taken(tmp_path: Path) -> None:
    sketching(tmp_path).write(wide(5))
    assert sketching(tmp_path, "raw").read(5).sketch is None
    assert Store(tmp_path, WIDE, BUFFERS).read(5).sketch is None


def test_bounds_are_the_same_whether_sketches_were_kept_or_not(tmp_path: Path) -> None:
    signature = wide(9).signature
    assert signature is not None
    stores = [sketching(tmp_path / "with"), Store(tmp_path / "without", WIDE, BUFFERS)]
    entries = [[store.write(wide(session)) for session in (2, 3, 5)] for store in stores]
    entries.append([wide(session) for session in (2, 3, 5)])
    found = [
        SketchTable(plan(WIDE, "per_tensor")).lower_bounds(signature, kept) for kept in entries
    ]
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()


def test_nothing_in_the_package_reads_or_writes_a_pickle() -> None:
    package = Path(__file__).parents[2] / "src" / "ebbflow"
    # Ray sends objects between the processes of a run by cloudpickle, which never meets a file.
    forbidden = re.compile(
        r"import pickle|from pickle|(?<!cloud)pickle\.\w|torch\.load|torch\.save|allow_pickle=True"
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


# --- what was read lately ------------------------------------------------------------------------


def test_recent_vectors_stay_below_their_limit_and_the_oldest_go_first(tmp_path: Path) -> None:
    recent, read = history._Recent(1000), []

    def vector(name: str) -> torch.Tensor:
        path = tmp_path / name
        path.touch()

        def loaded() -> torch.Tensor:
            read.append(name)
            return torch.full((50,), float(ord(name)))  # 200 bytes

        return recent.get(history._File(path, "digest"), "theta", loaded)

    for name in "abcdefab":
        assert vector(name).tolist() == [ord(name)] * 50
    assert "".join(read) == "abcdefab"
    assert recent._held == 400  # a and b, which were read twice
    for name in "cdefabf":
        assert vector(name).tolist() == [ord(name)] * 50
    assert "".join(read[8:]) == "cdefa"  # room for five: a had gone
    assert recent._held == 1000
    vector("f").zero_()
    assert vector("f").tolist() == [ord("f")] * 50


def test_a_vector_that_is_large_is_not_remembered(tmp_path: Path) -> None:
    recent, times = history._Recent(1000), []
    (tmp_path / "file").touch()

    def loaded() -> torch.Tensor:
        times.append(1)
        return torch.zeros(100)

    for _ in range(3):
        recent.get(history._File(tmp_path / "file", "digest"), "theta", loaded)
    assert len(times) == 3


def test_vectors_of_a_deleted_session_are_let_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = history._Recent(10_000)
    monkeypatch.setattr(history, "_recent", recent)
    for session in range(1, 20):
        past = store.write(entry(session))
        assert torch.equal(past.model.theta, past.model.theta)  # reads it twice
        store.keep({session})
    assert {Path(path).name for path, _, _ in recent._vectors} == {"session-0019.safetensors"}
    assert recent._held == 4 * (LAYOUT.total + BUFFERS.total)


def test_a_store_that_goes_on_does_not_read_its_manifest_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []

    def counted(folder: Path) -> dict[str, dict[str, Any]]:
        times.append(folder)
        return read_manifest(folder)

    monkeypatch.setattr(history, "read_manifest", counted)
    for session in range(1, 6):
        store.write(entry(session))
        store.keep({session - 1, session})
    assert len(times) == 1
    assert set(read_manifest(store.folder)) == {
        "session-0004.safetensors",
        "session-0005.safetensors",
    }


def test_a_manifest_is_the_one_text_of_its_facts_whatever_came_before(store: Store) -> None:
    """Though each entry's text is made once: written again, replaced and dropped ones too."""
    for session in (3, 5, 4):
        store.write(entry(session), devices=session)
    store.write(entry(5), devices=9)
    store.keep([4, 5])
    files = read_manifest(store.folder)
    assert {name: facts["devices"] for name, facts in files.items()} == {
        "session-0004.safetensors": 4,
        "session-0005.safetensors": 9,
    }
    written = (store.folder / MANIFEST).read_bytes()
    write_sealed(store.folder / MANIFEST, {"files": files})
    assert (store.folder / MANIFEST).read_bytes() == written
