"""Run folders from strangers and from bad disks: nothing gets out, nothing wrong gets in."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.names import is_name, printable
from ebbflow.core.registry import Registered, Registry
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths
from ebbflow.runs.kept_files import kept_files
from ebbflow.runs.plain import DEEPEST
from ebbflow.runs.verify import verify
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import (
    SMALL,
    copied,
    files_of,
    flipped,
    last_checkpoint,
    made_old,
    resealed,
    same_results,
)
from tests.test_cli import Answer, ebbflow, tree

READING = (("metrics",), ("cost",), ("history", "ls"), ("history", "show"))


def asked(command: tuple[str, ...], folder: Path) -> Answer:
    more = ("4",) if command == ("history", "show") else ()
    return ebbflow(*command, str(folder), *more)


def is_refused(answer: Answer) -> bool:
    """Whether a command ended with one sentence and code 2, as a traceback never would."""
    return answer.code == 2 and answer.err.startswith("ebbflow: ") and answer.err.count("\n") == 1


# --- names ---------------------------------------------------------------------------------------

NAMES = ["../victim", "/tmp/victim", "a/b", "victim", "session-1.safetensors", ".", "", "\x1b[31m"]


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_with_other_names_is_refused_and_deletes_nothing(
    half: Path, tmp_path: Path, name: str
) -> None:
    run = copied(half, tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    below = run / records.HISTORY / "fedavg" / "warm_start" / "seed-1"
    target = str(victim) if name.startswith("/") else name.replace("..", "../../../../..")

    def hostile(manifest: dict[str, Any]) -> None:
        facts = next(iter(manifest["files"].values()))
        manifest["files"][target] = {**facts, "session": 99}

    resealed(below / records.MANIFEST, hostile)
    for command in (("resume",), ("history", "ls")):
        answer = asked(command, run)
        assert is_refused(answer)
        assert "no manifest of a history" in answer.err
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["../../victim", "/etc/hostname", "checkpoint.safetensors/../x"])
def test_a_checkpoint_that_names_another_file_is_not_used(
    half: Path, tmp_path: Path, name: str
) -> None:
    run = copied(half, tmp_path)
    for path in checkpoint_paths(run):
        resealed(path, lambda content: content.update(tensors=name))
    answer = asked(("resume",), run)
    assert is_refused(answer)
    assert "tensors is refused" in answer.err


@pytest.mark.parametrize("name", ["a/b", "[/nope]", "", "x" * 65, "\x1b[2J", "..", ".hidden", "ä"])
def test_a_name_that_is_no_name_cannot_be_registered(name: str) -> None:
    assert not is_name(name)
    registry: Registry[Registered[int]] = Registry("start")
    with pytest.raises(EbbflowError, match="a start cannot be called"):
        registry.register(Registered(name, lambda: 1))


@pytest.mark.parametrize("folder", ["seed-x", "seed-", "seed-1\n", "seed--1", "seed-" + "9" * 30])
def test_a_folder_that_is_no_history_is_named(whole: Path, tmp_path: Path, folder: str) -> None:
    run = copied(whole, tmp_path)
    below = run / records.HISTORY / "fedavg" / "warm_start"
    (below / "seed-1").rename(below / folder)
    assert is_refused(asked(("history", "ls"), run))


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "[/nope]", "[red]x[/red]", "a\nb", "\u202e"])
def test_names_in_lines_can_do_nothing_to_a_terminal(
    whole: Path, tmp_path: Path, text: str
) -> None:
    run = copied(whole, tmp_path)
    path = run / records.METRICS
    lines = [{**line, "method": text} for line in records.read_lines(path)]
    path.write_bytes(b"".join(map(records.line_of, lines)))
    for checkpoint in checkpoint_paths(run):  # which knows how long the file was
        checkpoint.unlink()
    for command in (("metrics",), ("cost",)):
        answer = asked(command, run)
        assert answer.code == 2
        assert "method is refused" in answer.err
        assert not {"\x1b", "\x07", "\u202e"} & set(answer.err + answer.out)


def test_text_is_printed_without_control_characters() -> None:
    assert printable("plain äöü [x] 漢字") == "plain äöü [x] 漢字"
    assert printable("\x1b[31m\x00\x7f\u202e\ud800\n") == "\\x1b[31m\\x00\\x7f\\u202e\\ud800\\n"


def test_an_error_shows_an_escape_sequence_as_text(tmp_path: Path) -> None:
    answer = ebbflow("metrics", str(tmp_path / "\x1b[31mred"))
    assert answer.code == 2
    assert "\x1b" not in answer.err and "\\x1b[31mred" in answer.err


# --- links, pipes and devices --------------------------------------------------------------------


def linked(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


ODD: dict[str, Callable[[Path, Path], object]] = {
    "a link instead of the metrics": lambda run, out: linked(run / records.METRICS, out / "x"),
    "a link instead of the picture": lambda run, out: linked(run / "accuracy.png", out / "x"),
    "a link instead of the summary": lambda run, out: linked(run / records.SUMMARY, out / "x"),
    "a link that leads nowhere": lambda run, out: linked(run / "nowhere", out / "none"),
    "a link to a device": lambda run, out: linked(run / records.EVENTS, Path("/dev/zero")),
    "a linked folder": lambda run, out: linked(
        run / records.HISTORY, Path(shutil.move(run / records.HISTORY, out / "history"))
    ),
    "a pipe": lambda run, out: os.mkfifo(run / "pipe"),
    "a pipe in the history": lambda run, out: os.mkfifo(
        run / records.HISTORY / "fedavg" / "previous" / "seed-1" / "pipe"
    ),
    "folders without end": lambda run, out: (run / "/".join("d" * (DEEPEST + 2))).mkdir(
        parents=True
    ),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("command", [("resume",), *READING, ("bound",)], ids=" ".join)
def test_a_folder_with_anything_but_plain_files_is_refused(
    whole: Path, tmp_path: Path, odd: str, command: tuple[str, ...]
) -> None:
    run = copied(whole, tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("precious")
    ODD[odd](run, outside)
    answer = asked(command, run)
    assert is_refused(answer), answer
    assert "a run folder holds only plain files" in answer.err
    assert (outside / "x").read_text() == "precious"


def test_a_hard_link_from_elsewhere_is_left_as_it_was(half: Path, tmp_path: Path) -> None:
    """Some backups are hard links, and a line file is changed in place."""
    run = copied(half, tmp_path)
    backup = tmp_path / "backup"
    os.link(run / records.METRICS, backup)
    before = backup.read_bytes()
    experiment.resume(run)
    assert backup.read_bytes() == before


# --- damage --------------------------------------------------------------------------------------


def is_known_to_be_damaged(run: Path) -> bool:
    """Whether a file that nobody had a use for is listed as damaged, and all else is right."""
    return any(kept.state != "ok" for kept in kept_files(run))


def flipped_somewhere(path: Path, draw: random.Random) -> None:
    flipped(path, draw.randrange(8 * path.stat().st_size))


def cut_somewhere(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size))


def assert_noticed_or_harmless(
    run: Path, whole: Path, harm: Callable[[Path, random.Random], None], draw: random.Random
) -> None:
    """Harm a file of a run and resume it."""
    path = draw.choice(files_of(run))
    harm(path, draw)
    with warnings.catch_warnings(record=True) as told:
        try:
            experiment.resume(run)
        except EbbflowError:
            return
    assert same_results(run, whole) or told or is_known_to_be_damaged(run), path


@pytest.mark.parametrize("seed", range(3))
def test_a_flipped_bit_is_noticed_or_does_no_harm(
    half: Path, whole: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    for n in range(25):
        run = copied(half, tmp_path / str(n))
        assert_noticed_or_harmless(run, whole, flipped_somewhere, draw)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_does_not_change_what_is_shown(
    whole: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    shown = {command: asked(command, whole).out for command in READING}
    for n in range(12):
        run = copied(whole, tmp_path / str(n))
        path = draw.choice(files_of(run))
        flipped_somewhere(path, draw)
        for command in READING:
            answer = asked(command, run)
            ours = answer.out.replace(str(run), str(whole))
            told = "damaged" in answer.out or "was changed" in answer.err
            assert is_refused(answer) or ours == shown[command] or told, path


@pytest.mark.parametrize("seed", range(2))
def test_a_file_cut_short_is_noticed_or_does_no_harm(
    half: Path, whole: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    for n in range(20):
        run = copied(half, tmp_path / str(n))
        assert_noticed_or_harmless(run, whole, cut_somewhere, draw)


def test_a_finished_runs_lines_cut_at_a_line_are_noticed(whole: Path, tmp_path: Path) -> None:
    for name in (records.METRICS, records.EVENTS):
        run = copied(whole, tmp_path / name)
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[: content[:-1].rindex(b"\n") + 1])
        for command in (("metrics",), ("cost",)):
            assert is_refused(asked(command, run)), (name, command)


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"9" * 5000 + b"\n"])
def test_lines_that_are_no_json_are_named(whole: Path, tmp_path: Path, content: bytes) -> None:
    run = copied(whole, tmp_path)
    with (run / records.METRICS).open("ab") as file:
        file.write(content)
    for command in (("metrics",), ("cost",)):
        answer = asked(command, run)
        assert is_refused(answer)
        assert "line 25" in answer.err


@pytest.mark.parametrize("text", ["", "rounds = 3\n", "seeds = [1, 1"])
def test_a_configuration_that_was_changed_is_compared_with_what_was_saved(
    half: Path, tmp_path: Path, text: str
) -> None:
    run = copied(half, tmp_path)
    (run / records.CONFIG).write_text(text)
    for command in (("resume",), ("metrics",), ("cost",)):
        assert is_refused(asked(command, run))


def test_a_configuration_may_be_changed_where_that_changes_no_result(
    half: Path, whole: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    path = run / records.CONFIG
    path.write_text(path.read_text().replace("state_memory = 256", "state_memory = 200"))
    assert not records.sealed_config(run)
    with pytest.warns(EbbflowWarning, match="engine was changed since the run was last saved"):
        experiment.resume(run)
    assert (run / records.METRICS).read_bytes() == (whole / records.METRICS).read_bytes()


def test_a_changed_configuration_of_a_run_that_saved_nothing_is_refused(tmp_path: Path) -> None:
    config = with_keys(SMALL, {})
    records.claim_folder(tmp_path / "run", config.model_dump())
    path = tmp_path / "run" / records.CONFIG
    path.write_text(path.read_text().replace("sessions = 4", "sessions = 5"))
    with pytest.raises(EbbflowError, match="saved nothing yet to compare it with"):
        experiment.resume(tmp_path / "run")


# --- two checkpoints -----------------------------------------------------------------------------

HARMS: dict[str, Callable[[Path], object]] = {
    "json flipped": lambda path: flipped(path, 8 * 200),
    "json cut short": lambda path: os.truncate(path, 40),
    "json empty": lambda path: os.truncate(path, 0),
    "json gone": Path.unlink,
    "tensors flipped": lambda path: flipped(path.with_suffix(".safetensors"), 4000),
    "tensors cut short": lambda path: os.truncate(path.with_suffix(".safetensors"), 100),
    "tensors gone": lambda path: path.with_suffix(".safetensors").unlink(),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    half: Path, whole: Path, tmp_path: Path, harm: str
) -> None:
    run = copied(half, tmp_path)
    newest, older = checkpoint_paths(run)
    HARMS[harm](newest)
    experiment.resume(run)
    assert same_results(run, whole)
    told = [e["text"] for e in records.read_events(run) if e["event"] == "warning"]
    said = [text for text in told if f"went on from {older.name} (seed 1, session 4" in text]
    assert len(said) == (0 if harm == "json gone" else 1)


def test_after_falling_back_the_last_two_checkpoints_are_intact_again(
    half: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    newest, older = checkpoint_paths(run)
    os.truncate(newest, 40)
    with pytest.raises(Stopped):
        experiment.resume(run, callbacks=[StopAfter(1)])
    now = checkpoint_paths(run)
    assert len(now) == 2 and older in now
    assert verify(run) == []
    assert (run / "damaged" / newest.name).stat().st_size == 40


def test_lines_damaged_since_the_older_checkpoint_are_computed_again(
    half: Path, whole: Path, tmp_path: Path
) -> None:
    run = copied(half, tmp_path)
    newest, older = (records.read_sealed(path)["lines"] for path in checkpoint_paths(run))
    at = older[records.METRICS]["bytes"]
    assert newest[records.METRICS]["bytes"] > at
    flipped(run / records.METRICS, 8 * (at + 30))
    experiment.resume(run)
    assert same_results(run, whole)


def test_a_finished_run_has_one_checkpoint_and_what_it_keeps(whole: Path) -> None:
    (path,) = checkpoint_paths(whole)
    assert [p.name for p in whole.glob("*.safetensors")] == [path.with_suffix(".safetensors").name]
    for method in ("warm_start", "previous"):
        below = whole / records.HISTORY / "fedavg" / method / "seed-1"
        kept = {p.name for p in below.glob("session-*")}
        assert kept == {"session-0003.safetensors", "session-0004.safetensors"}


def test_while_a_run_goes_on_the_older_checkpoints_sessions_are_kept(tmp_path: Path) -> None:
    settings = {"checkpoint.seconds": 1e9}  # only at the end of a session
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL, settings), tmp_path / "run", callbacks=[StopAfter(10)])
    below = tmp_path / "run" / records.HISTORY / "fedavg" / "previous" / "seed-1"
    paths = checkpoint_paths(tmp_path / "run")
    entries = [records.read_sealed(path)["tracks"][1]["entries"] for path in paths]
    assert entries == [[2, 3], [2]]
    assert {p.name for p in below.glob("session-*")} == {
        "session-0002.safetensors",
        "session-0003.safetensors",
    }


OUTSIDE = {"../x.jsonl": {"bytes": 1, "sha256": "0" * 64}}
HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no entries": lambda c: c["tracks"][0].update(entries=[]),
    "an unknown key": lambda c: c.update(surprise=1),
    "a missing key": lambda c: c.pop("seed"),
    "a seed of another run": lambda c: c.update(seed=77),
    "a session that is not there": lambda c: c.update(session=99),
    "another method": lambda c: c["tracks"][0].update(method="average"),
    "a track less": lambda c: c["tracks"].pop(),
    "a state that is not there": lambda c: c["tracks"][0].update(server=["momentum"]),
    "a file that grows": lambda c: c["lines"].update(OUTSIDE),
    "a number for a list": lambda c: c["tracks"][0].update(clients=3),
    "costs of nothing": lambda c: c["tracks"][0].update(costs={"main": {"nothing": -1}}),
}


@pytest.mark.parametrize("change", HOSTILE)
def test_a_checkpoint_that_says_something_else_is_refused_in_a_sentence(
    half: Path, tmp_path: Path, change: str
) -> None:
    """Sealed again, as an attacker would; nothing it keeps is deleted."""
    run = copied(half, tmp_path)
    history = tree(run / records.HISTORY)
    for path in checkpoint_paths(run):
        resealed(path, HOSTILE[change])
    answer = asked(("resume",), run)
    if change == "no entries":  # is what a method with a short memory would say
        assert answer.code in (0, 2)
        return
    assert is_refused(answer), answer
    assert tree(run / records.HISTORY) == history


# --- earlier versions ----------------------------------------------------------------------------


def test_a_run_of_version_1_is_read_and_goes_on(half: Path, whole: Path, tmp_path: Path) -> None:
    read = copied(whole, tmp_path / "read")
    made_old(read)
    for command in (("metrics",), ("cost",), ("history", "ls")):
        assert asked(command, read).out == asked(command, whole).out
    old = copied(half, tmp_path / "old")
    made_old(old)
    rows = experiment.resume(old).rows
    assert rows == records.read_records(whole).rows
    assert [path.suffix for path in checkpoint_paths(old)] == [".json"]
    assert last_checkpoint(old).name != "checkpoint.json"


def test_a_later_version_is_not_guessed_at(half: Path, tmp_path: Path) -> None:
    run = copied(half, tmp_path)
    for path in checkpoint_paths(run):
        content = json.loads(path.read_text())
        del content["digest"]
        content["version"] = 3
        content["digest"] = records._digest(content)
        path.write_text(json.dumps(content))
    answer = asked(("resume",), run)
    assert is_refused(answer)
    assert "version 3" in answer.err
