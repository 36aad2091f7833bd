"""Run folders from somebody who means harm, sealed as if they were ours.

Nothing outside of the folder may be read, written or deleted, no command may hang or end with a
traceback, and no control character may reach the terminal.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.chaos.damage import READING, Damage, asked, stop_half_way
from benchmarks.chaos.kinds import copied
from benchmarks.chaos.limits import HANG, limited
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths

Change = Callable[[dict[str, Any]], object]
Variant = tuple[str, Callable[[Path, Path], object]]
TEXTS = (
    "../../../../outside/victim",
    "/etc/passwd",
    "\x1b]0;owned\x07",
    "[bold red]x[/]",
    "[/nope]",
    "a\nb",
    "\u202e",
    "x" * 100_000,
    "",
    "..",
    "\x00",
    "%s%n",
)
NUMBERS: tuple[Any, ...] = (-1, 0, 2**63, 10**30, 1.5, float("nan"), None, "7", [], {}, True)
COMMANDS = (*READING, ("resume",), ("repair",), ("bound",))
SECONDS = 20


def variants() -> Iterator[Variant]:
    """Yield ways to make a run folder hostile."""
    for name, text in product(("method", "algorithm"), TEXTS):
        yield f"{name} {text[:12]!r} in the metrics", _lines(records.METRICS, {name: text})
        yield f"{name} {text[:12]!r} in the events", _lines(records.EVENTS, {name: text})
    for name, number in product(("session", "round", "seed", "accuracy"), NUMBERS):
        yield f"{name} = {number!r} in the metrics", _lines(records.METRICS, {name: number})
    for name, number in product(("seed", "session", "round"), NUMBERS):
        yield f"{name} = {number!r} in checkpoints", _checkpoints(_setting(name, number))
    for text in TEXTS:
        yield f"tensors {text[:12]!r}", _checkpoints(_setting("tensors", text))
        yield f"a file {text[:12]!r} in manifests", _manifests(text)
        yield f"text {text[:12]!r} of a warning", _warning(text)
    for name in (records.METRICS, records.EVENTS, records.SUMMARY, "accuracy.png", ".lock"):
        yield f"a link to a file instead of {name}", _linked(name, "victim")
        yield f"a link to a folder instead of {name}", _linked(name, "")
        yield f"a FIFO instead of {name}", _fifo(name)
        yield f"a link to a device instead of {name}", _device(name)
    yield "a linked history", _linked(records.HISTORY, "")
    yield "a linked manifest", _linked_below(records.MANIFEST)
    yield "a linked session", _linked_below("session-0002.safetensors")
    for content in (
        b"",
        b"\xff" * 100,
        b"[" * 100_000,
        b"{" * 3,
        b'{"a": ' * 50_000,
        b"9" * 10_000,
    ):
        for name in (records.METRICS, records.EVENTS, records.SUMMARY, records.ENVIRONMENT):
            yield f"{len(content)} odd bytes in {name}", _content(name, content)
        yield f"{len(content)} odd bytes in {records.CONFIG}", _content(records.CONFIG, content)


def _lines(name: str, values: dict[str, Any]) -> Callable[[Path, Path], None]:
    def change(run: Path, outside: Path) -> None:
        path = run / name
        lines = [{**line, **values} for line in records.read_lines(path)]
        path.write_bytes(b"".join(map(records.line_of, lines)))
        for checkpoint in checkpoint_paths(run):
            content = records.read_sealed(checkpoint)
            content["lines"] = {}
            records.write_sealed(checkpoint, content)

    return change


def _setting(name: str, value: Any) -> Change:
    return lambda content: content.update({name: value})


def _checkpoints(change: Change) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        for path in checkpoint_paths(run):
            content = records.read_sealed(path)
            change(content)
            records.write_sealed(path, content)

    return changed


def _manifests(name: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        for path in run.rglob(records.MANIFEST):
            content = records.read_sealed(path)
            facts = next(iter(content["files"].values()))
            content["files"][name] = {**facts, "session": 99}
            records.write_sealed(path, content)

    return changed


def _warning(text: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        line = records.line_of({"event": "warning", "text": text})
        with (run / records.EVENTS).open("ab") as file:
            file.write(line)

    return changed


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _linked(name: str, target: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        _remove(run / name)
        (run / name).symlink_to(outside / target)

    return changed


def _linked_below(name: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        path = next(run.rglob(name))
        path.unlink()
        path.symlink_to(outside / "victim")

    return changed


def _fifo(name: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        _remove(run / name)
        os.mkfifo(run / name)

    return changed


def _device(name: str) -> Callable[[Path, Path], None]:
    def changed(run: Path, outside: Path) -> None:
        _remove(run / name)
        (run / name).symlink_to("/dev/zero")

    return changed


def _content(name: str, content: bytes) -> Callable[[Path, Path], object]:
    return lambda run, outside: (run / name).write_bytes(content)


def _snapshot(folder: Path) -> str:
    found = {
        str(path): path.read_bytes().hex() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return json.dumps(found)


def attack(scratch: Path, every: int = 1) -> Damage:
    """Try every so-manieth variant with every command."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    half, run, outside = scratch / "half", scratch / "run", scratch / "outside"
    stop_half_way("learned start", half)
    outside.mkdir()
    (outside / "victim").write_text("precious", encoding="utf-8")
    before = _snapshot(outside)
    refused = harmless = trials = 0
    wrong: list[str] = []
    for name, change in list(variants())[::every]:
        trials += 1
        codes = []
        for command in COMMANDS:
            copied(half, run)
            change(run, outside)
            with limited(SECONDS):
                answer = asked(command, run)
            codes.append(answer.code)
            problem = _problem(answer.crash, answer.out)
            if _snapshot(outside) != before:
                problem = "something outside was changed"
            if problem:
                wrong.append(f"{name}, {' '.join(command)}: {problem}")
        refused += any(codes)
        harmless += not any(codes)
    return Damage("hostile folders", trials, refused, harmless, tuple(wrong))


def _problem(crash: str, out: str) -> str:
    if crash:
        return "a hang" if HANG in crash else crash.strip().splitlines()[-1]
    harmful = harmful_characters(out)
    return f"control characters {harmful}" if harmful else ""


def harmful_characters(out: str) -> list[str]:
    """Return what could do something to a terminal."""
    return sorted({c for c in out if ord(c) < 32 and c != "\n"} | ({"\u202e"} & set(out)))
