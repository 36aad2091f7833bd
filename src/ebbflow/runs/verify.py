"""Verifies a run folder: digests, lines, references, and what should not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import TEMPORARY, file_state
from ebbflow.runs import records
from ebbflow.runs.checkpoint import Checkpoint, checkpoint_paths, orphans, read_checkpoint
from ebbflow.runs.configuration import read_config
from ebbflow.runs.folder import LINE_FILES, RunFolder, digest_of
from ebbflow.runs.plain import check_plain

Content = TypeVar("Content")
State = Literal["damaged", "missing", "litter"]


class Finding(NamedTuple):
    """Something that is wrong with a file, relative to the run folder."""

    path: str
    state: State
    text: str


def verify(folder: Path) -> list[Finding]:
    """Return everything that is wrong with a run folder; nothing is changed."""
    if not (folder / records.CONFIG).is_file():
        records.check_run(folder)
    check_plain(folder)
    findings: list[Finding] = []
    for check in (_config, _sealed, _lines, _checkpoints, _histories, _litter):
        findings += check(folder)
    return findings


def _read(
    folder: Path, path: Path, read: Callable[[], Content]
) -> tuple[Content | None, list[Finding]]:
    """Return what can be read, or what is wrong with it."""
    try:
        return read(), []
    except EbbflowError as error:
        text = str(error).removeprefix(f"{path}").removeprefix(str(folder)).strip(" :,")
        return None, [Finding(_name(folder, path), "damaged" if path.exists() else "missing", text)]


def _name(folder: Path, path: Path) -> str:
    return str(path.relative_to(folder))


def _config(folder: Path) -> list[Finding]:
    return _read(folder, folder / records.CONFIG, lambda: read_config(folder))[1]


def _sealed(folder: Path) -> list[Finding]:
    environment, summary = folder / records.ENVIRONMENT, folder / records.SUMMARY
    findings: list[Finding] = []
    if environment.exists() or (folder / records.METRICS).exists():
        findings += _read(folder, environment, lambda: records.read_sealed(environment))[1]
    if summary.exists():
        findings += _read(folder, summary, lambda: records.read_sealed(summary))[1]
    return findings


def _lines(folder: Path) -> list[Finding]:
    _, metrics = _read(folder, folder / records.METRICS, lambda: records.read_rounds(folder))
    _, events = _read(folder, folder / records.EVENTS, lambda: records.read_events(folder))
    return [*metrics, *events]


def _checkpoints(folder: Path) -> Iterator[Finding]:
    for path in checkpoint_paths(folder):
        checkpoint, findings = _read(folder, path, partial(read_checkpoint, path))
        yield from findings
        if checkpoint is not None:
            yield from _of_checkpoint(folder, checkpoint)


def _of_checkpoint(folder: Path, checkpoint: Checkpoint) -> Iterator[Finding]:
    refers = f"{checkpoint.path.name} refers to it"
    yield from _by_digest(folder, folder / checkpoint.tensors, checkpoint.sha256, refers)
    for name in LINE_FILES:
        state, path = checkpoint.lines.get(name), folder / name
        if state is None:
            continue
        size = path.stat().st_size if path.exists() else 0
        if size < state["bytes"]:
            yield Finding(name, "missing" if not path.exists() else "damaged", "is too short")
        elif state["sha256"] not in ("", digest_of(path, state["bytes"]).hexdigest()):
            yield Finding(name, "damaged", f"is not as {checkpoint.path.name} left it")
    for track in checkpoint.tracks:
        method = track["algorithm"], track["method"]
        below = RunFolder(folder).history(*method, checkpoint.seed)
        for session in track["entries"]:
            path = below / records.session_file(session)
            if not path.exists():
                yield Finding(_name(folder, path), "missing", refers)


def _by_digest(folder: Path, path: Path, digest: str, refers: str) -> Iterator[Finding]:
    """Yield what is wrong with a file that something refers to."""
    state = file_state(path, digest)
    if state == "missing":
        yield Finding(_name(folder, path), "missing", refers)
    elif state == "damaged":
        yield Finding(_name(folder, path), "damaged", "does not match its digest")


def _histories(folder: Path) -> Iterator[Finding]:
    for below in sorted((folder / records.HISTORY).glob("*/*/seed-*")):
        path = below / records.MANIFEST
        listed, findings = _read(folder, path, partial(records.read_manifest, below))
        yield from findings
        files = listed or {}
        for name, facts in files.items():
            lists = f"{records.MANIFEST} lists it"
            yield from _by_digest(folder, below / name, facts["sha256"], lists)
        if not path.exists() and any(below.iterdir()):
            yield Finding(_name(folder, path), "missing", "there are files that it would list")
        elif files:
            for kept in sorted(below.glob("*.safetensors")):
                if records.KEPT_NAME.fullmatch(kept.name) and kept.name not in files:
                    yield Finding(_name(folder, kept), "litter", "is in no manifest")


def _litter(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.rglob(".*.tmp")):
        if TEMPORARY.fullmatch(path.name):
            yield Finding(_name(folder, path), "litter", "was being written when a process died")
    for path in orphans(folder):
        yield Finding(path.name, "litter", "belongs to no checkpoint")
