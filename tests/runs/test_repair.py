"""verify finds what is wrong, repair mends what can be mended, and nothing useful is deleted."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths
from ebbflow.runs.repair import repair
from ebbflow.runs.verify import verify
from tests.run_folders import copied, files_of, flipped, made_old, same_results
from tests.test_cli import ebbflow, tree


def below(run: Path, method: str = "warm_start") -> Path:
    return run / records.HISTORY / "fedavg" / method / "seed-1"


# --- verify --------------------------------------------------------------------------------------


def test_an_intact_run_has_no_findings(whole: Path, half: Path, tmp_path: Path) -> None:
    assert verify(whole) == [] == verify(half)
    answer = ebbflow("verify", str(whole))
    assert (answer.code, answer.out) == (0, "every file is intact\n")
    assert json.loads(ebbflow("verify", str(half), "--json").out) == {
        "intact": True,
        "findings": [],
    }
    old = copied(whole, tmp_path)
    made_old(old)
    assert verify(old) == []


@pytest.mark.filterwarnings("ignore::ebbflow.core.errors.EbbflowWarning")
def test_every_flipped_bit_in_every_file_is_found(half: Path, tmp_path: Path) -> None:
    draw = random.Random(1)
    run = copied(half, tmp_path)
    before = tree(run)
    for path in files_of(run):
        if path.name == ".lock":
            continue
        content = path.read_bytes()
        for _ in range(6):
            flipped(path, draw.randrange(8 * len(content)))
            found = verify(run)
            name = str(path.relative_to(run))
            assert name in [finding.path for finding in found] or _is_harmless(path, content), name
            path.write_bytes(content)
    assert tree(run) == before


def _is_harmless(path: Path, before: bytes) -> bool:
    """Whether white space of JSON was changed, or a comment of the configuration."""
    if path.suffix == ".json":
        try:
            return bool(json.loads(path.read_bytes()) == json.loads(before))
        except ValueError:
            return False
    return path.name == records.CONFIG


def test_a_finding_names_the_file_and_what_is_wrong(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    flipped(below(run) / "session-0003.safetensors", 1000)
    (below(run, "previous") / "session-0003.safetensors").unlink()
    (run / ".metrics.jsonl.7-01234567.tmp").touch()
    answer = ebbflow("verify", str(run))
    assert answer.code == 1
    *found, remedy = answer.out.splitlines()
    name = "session-0003.safetensors"
    assert found == [
        *(
            f"missing  history/fedavg/previous/seed-1/{name}: {path.name} refers to it"
            for path in checkpoint_paths(run)
        ),
        f"missing  history/fedavg/previous/seed-1/{name}: manifest.json lists it",
        f"damaged  history/fedavg/warm_start/seed-1/{name}: does not match its digest",
        "litter   .metrics.jsonl.7-01234567.tmp: was being written when a process died",
    ]
    assert remedy == f"mend it by `ebbflow repair {run}`"


# --- repair --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ebbflow.core.errors.EbbflowWarning")  # of a changed setting
@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_single_flipped_bit_in_a_small_file_is_set_right(
    half: Path, whole: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    run = copied(half, tmp_path)
    before = tree(run)
    for path in draw.sample([p for p in files_of(run) if p.name != ".lock"], 5):
        flipped(path, draw.randrange(8 * path.stat().st_size))
        if verify(run):
            assert all(done.done for done in repair(run)), path
        else:
            path.write_bytes(before[str(path.relative_to(run))])
        after = {name: content for name, content in tree(run).items() if name != ".lock"}
        assert after == {name: content for name, content in before.items() if name != ".lock"}
    experiment.resume(run)
    assert same_results(run, whole)


def test_a_line_end_that_was_flipped_is_set_right(whole: Path, tmp_path: Path) -> None:
    for name in (records.METRICS, records.EVENTS):
        content = (whole / name).read_bytes()
        ends = [place for place, byte in enumerate(content) if byte == 10]
        for place in (ends[0], ends[3], ends[-1]):
            run = copied(whole, tmp_path / f"{name}-{place}")
            flipped(run / name, 8 * place + 2)
            assert [finding.path for finding in verify(run)][:1] == [name]
            assert all(done.done for done in repair(run))
            assert (run / name).read_bytes() == content


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "summary": (lambda run: os.truncate(run / records.SUMMARY, 500), records.SUMMARY),
    "manifest": (lambda run: os.truncate(below(run) / records.MANIFEST, 20), records.MANIFEST),
    "no manifest": (lambda run: (below(run) / records.MANIFEST).unlink(), records.MANIFEST),
    "pilot": (lambda run: os.truncate(below(run) / "pilot.safetensors", 20), "pilot"),
    "environment": (lambda run: os.truncate(run / records.ENVIRONMENT, 20), records.ENVIRONMENT),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_can_be_made_again_is(whole: Path, tmp_path: Path, harm: str) -> None:
    run = copied(whole, tmp_path)
    change, name = HARMS[harm]
    change(run)
    assert any(name in finding.path for finding in verify(run))
    repairs = repair(run)
    assert all(done.done for done in repairs)
    assert any(name in done.path for done in repairs)
    experiment.resume(run)
    assert verify(run) == []
    assert (run / records.METRICS).read_bytes() == (whole / records.METRICS).read_bytes()
    assert records.read_records(run).rows == records.read_records(whole).rows


def test_a_damaged_checkpoint_is_moved_away_and_the_other_goes_on(
    half: Path, whole: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    newest, older = checkpoint_paths(run)
    os.truncate(newest, 50)
    (done,) = repair(run)
    assert done.done and f"goes on from {older.name}" in done.text
    assert checkpoint_paths(run) == [older]
    assert (run / "damaged" / newest.name).exists()
    experiment.resume(run)
    assert same_results(run, whole)


def test_if_both_checkpoints_are_damaged_nothing_is_touched(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    for path in checkpoint_paths(run):
        os.truncate(path, 50)
    before = tree(run)
    repairs = repair(run)
    assert repairs and not any(done.done for done in repairs)
    assert ebbflow("repair", str(run)).code == 1
    assert tree(run) == before


def spoil(path: Path) -> None:
    """Spoil more than one bit."""
    content = bytearray(path.read_bytes())
    content[-8:] = bytes(8)
    content[-30:-20] = b"x" * 10
    path.write_bytes(content)


def test_a_damaged_past_session_stops_a_run_or_is_skipped_as_the_settings_say(
    half: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    spoil(below(run) / "session-0003.safetensors")
    with pytest.raises(EbbflowError, match=r'session-0003.*or set history\.on_damage = "skip"'):
        experiment.resume(run)
    config = run / records.CONFIG
    config.write_text(config.read_text().replace('on_damage = "stop"', 'on_damage = "skip"'))
    rounds = experiment.resume(run).rounds
    assert len(rounds) == 2 * 4 * 3
    told = [e for e in records.read_events(run) if e["event"] == "warning"]
    assert [e["method"] for e in told if "went on without session 3" in e["text"]] == ["warm_start"]
    (moved,) = (run / "damaged").iterdir()
    assert moved.name == "fedavg-warm_start-seed-1-session-0003.safetensors"
    assert verify(run) == []


def test_a_repaired_history_can_be_skipped(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    spoil(below(run) / "session-0003.safetensors")
    repairs = repair(run)
    assert any("history.on_damage" in done.text for done in repairs)
    config = run / records.CONFIG
    config.write_text(config.read_text().replace('on_damage = "stop"', 'on_damage = "skip"'))
    assert len(experiment.resume(run).rounds) == 2 * 4 * 3


def test_litter_is_deleted_only_if_it_is_known_to_be(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    (run / ".x.7-01234567.tmp").touch()
    orphan = below(run) / "session-0077.safetensors"
    orphan.write_bytes(b"a model, perhaps")
    (run / "notes.txt").write_text("mine")
    repair(run)
    assert not (run / ".x.7-01234567.tmp").exists()
    assert not orphan.exists()
    (moved,) = (run / "damaged").iterdir()
    assert moved.read_bytes() == b"a model, perhaps"
    assert (run / "notes.txt").exists()
    assert verify(run) == []


def test_lines_that_are_lost_are_said_to_be(whole: Path, tmp_path: Path) -> None:
    run = copied(whole, tmp_path)
    os.truncate(run / records.METRICS, 300)
    answer = ebbflow("repair", str(run), "--json")
    content: dict[str, Any] = json.loads(answer.out)
    assert answer.code == 1 and content["repaired"] is False
    assert "metrics.jsonl" in [entry["path"] for entry in content["repairs"]]
