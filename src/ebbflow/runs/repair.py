"""Repairs a run folder: rebuilds what can be rebuilt, and moves the rest out of the way.

Nothing is deleted but files that a process was writing when it died. What is replaced goes to the
folder ``damaged`` within the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import TEMPORARY, file_state, sha256, write_atomically
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths, read_checkpoint
from ebbflow.runs.configuration import read_config
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.plain import QUARANTINE, set_aside
from ebbflow.runs.summary import summary_rows
from ebbflow.runs.verify import Finding, verify

LARGEST_HEALED = 2**16
"""Bytes up to which a single flipped bit is searched for: every bit costs a digest."""


class Repair(NamedTuple):
    """What was done about a finding; ``done`` is False if nothing could be."""

    path: str
    done: bool
    text: str


def repair(folder: Path) -> list[Repair]:
    """Repair what can be repaired, until nothing more can be; return what was done."""
    run = RunFolder.open(folder)
    try:
        repairs: list[Repair] = []
        tried: set[str] = set()
        while True:
            findings = [f for f in verify(folder) if f.path not in tried]
            if not findings:
                return repairs
            finding = findings[0]
            tried.add(finding.path)
            repairs.append(_repaired(folder, finding))
            if repairs[-1].done:  # what others complained of may be mended now
                tried -= {repair.path for repair in repairs if not repair.done}
    finally:
        run.close()


def _repaired(folder: Path, finding: Finding) -> Repair:
    path = folder / finding.path
    if finding.state == "litter":
        if not TEMPORARY.fullmatch(path.name):
            return _moved(folder, path)
        path.unlink()
        return Repair(finding.path, True, "deleted")
    if path.exists() and _healed(folder, path):
        return Repair(finding.path, True, "a flipped bit was set right")
    mend = _REBUILT.get(path.name, _hopeless)
    if path.suffix == ".safetensors":
        mend = _entry
    if path.parent == folder and path.name.startswith("checkpoint-"):
        mend = _checkpoint
    return mend(folder, path)


def _hopeless(folder: Path, path: Path) -> Repair:
    name = str(path.relative_to(folder))
    return Repair(name, False, f"cannot be repaired: {records.RESTORE}")


def _moved(folder: Path, path: Path) -> Repair:
    target = set_aside(folder, path)
    return Repair(str(path.relative_to(folder)), True, f"moved to {target.relative_to(folder)}")


# --- flipped bits --------------------------------------------------------------------------------


def _healed(folder: Path, path: Path) -> bool:
    """Set a single flipped bit right, if the file's digest or a line's checksum tells which."""
    content = path.read_bytes()
    if path.suffix == ".jsonl":
        mended = _healed_lines(content)
    elif path.suffix == ".json":
        mended = _without_flip(content, _is_sealed)
    elif path.name == records.CONFIG:
        mended = _without_flip(content, records.is_sealed_text)
    else:
        digest = _digest_elsewhere(folder, path)
        mended = None if digest is None else _without_flip(content, lambda c: sha256(c) == digest)
    if mended is None:
        return False
    write_atomically(path, mended)
    return True


def _without_flip(content: bytes, right: Callable[[bytes], bool]) -> bytes | None:
    if len(content) > LARGEST_HEALED:
        return None
    changed = bytearray(content)
    for place in range(len(changed)):
        for bit in range(8):
            changed[place] ^= 1 << bit
            if right(bytes(changed)):
                return bytes(changed)
            changed[place] ^= 1 << bit
    return None


def _is_sealed(content: bytes) -> bool:
    try:
        return records.is_sealed(records.object_of(content, ""))
    except EbbflowError:
        return False


def _healed_lines(content: bytes) -> bytes | None:
    """Mend every place that a single flipped bit has spoilt: within a line, or at its end.

    A last line that a crash cut short is left as it is.
    """
    lines = content.split(b"\n")
    mended: list[bytes] = []
    while lines:
        if not _is_wrong(lines[0], last=len(lines) == 1):
            mended.append(lines.pop(0))
            continue
        for count in (1, 2):  # a flipped bit in the middle of a line may have split it
            healed = _without_flip(b"\n".join(lines[:count]), _are_right)
            if healed is not None:
                break
        if healed is None and len(lines) > 1:
            return None
        mended.append(lines[0] if healed is None else healed)
        del lines[: 1 if healed is None else count]
    whole = b"\n".join(mended)
    return None if whole == content else whole


def _is_wrong(line: bytes, *, last: bool) -> bool:
    return not _is_right(line) if line else not last


def _are_right(lines: bytes) -> bool:
    return all(_is_right(line) for line in lines.removesuffix(b"\n").split(b"\n"))


def _is_right(line: bytes) -> bool:
    text, checksum = records.split_line(line)
    return checksum is not None and zlib.crc32(text) == checksum


def _digest_elsewhere(folder: Path, path: Path) -> str | None:
    """Return the digest that a manifest or checkpoint has of a tensor file."""
    with suppress(EbbflowError):
        if path.parent != folder:
            return str(records.read_manifest(path.parent)[path.name]["sha256"])
        return read_checkpoint(path.with_suffix(".json")).sha256
    return None


# --- files that can be made again ----------------------------------------------------------------


def _summary(folder: Path, path: Path) -> Repair:
    try:
        config, rounds = read_config(folder), records.read_rounds(folder)
        setting = _setting_of(path)
    except EbbflowError as error:
        return Repair(records.SUMMARY, False, f"cannot be rebuilt ({error})")
    moved = _moved(folder, path) if path.exists() else None
    if setting is None:
        return Repair(records.SUMMARY, True, f"{moved.text if moved else ''}; resume rebuilds it")
    rows = summary_rows(rounds, windows=config.window, pilot=config.pilot.sessions, setting=setting)
    content = {"config": config.model_dump(mode="json"), "rows": rows}
    records.write_sealed(path, content, indent=1)
    return Repair(records.SUMMARY, True, "rebuilt from the metrics")


def _setting_of(path: Path) -> dict[str, Any] | None:
    """Return what all rows of a summary share, if the damaged file still tells."""
    try:
        rows = records.read_json(path)["rows"]
        return {key: rows[0][key] for key in ("dataset", "partition", "overlap", "alpha")}
    except (EbbflowError, KeyError, IndexError, TypeError):
        return None


def _environment(folder: Path, path: Path) -> Repair:
    if path.exists():
        moved = _moved(folder, path)
        return moved._replace(text=f"{moved.text}; resume writes it anew, for the data of today")
    return Repair(records.ENVIRONMENT, True, "resume writes it anew, for the data of today")


def _manifest(folder: Path, path: Path) -> Repair:
    """Make a manifest anew from the files that are there and the events that tell of them."""
    set_aside(folder, path)
    algorithm, method, seed = path.parts[-4:-1]
    members = {}
    with suppress(EbbflowError):
        members = {
            event["session"]: event["devices"]
            for event in records.read_events(folder)
            if event["event"] == "start"
            and (event["algorithm"], event["method"]) == (algorithm, method)
            and f"seed-{event['seed']}" == seed
        }
    files = {}
    for kept in sorted(path.parent.glob("*.safetensors")):
        if records.KEPT_NAME.fullmatch(kept.name):
            content = kept.read_bytes()
            facts: dict[str, Any] = {"sha256": sha256(content), "bytes": len(content)}
            if kept.name.startswith("session-"):
                session = int(kept.stem.removeprefix("session-"))
                present = members.get(session, [])
                facts |= {"session": session, "devices": len(present)}
                if b"start/theta" in content[:10_000]:
                    facts["members"] = present
            files[kept.name] = facts
    records.write_sealed(path, {"files": files})
    name = str(path.relative_to(folder))
    return Repair(name, True, f"rebuilt from {len(files)} files, which are trusted as they are")


_REBUILT: dict[str, Callable[[Path, Path], Repair]] = {
    records.SUMMARY: _summary,
    records.ENVIRONMENT: _environment,
    records.MANIFEST: _manifest,
}


def _checkpoint(folder: Path, path: Path) -> Repair:
    """Move a damaged checkpoint away, if there is another one to go on from."""
    others = [other for other in checkpoint_paths(folder) if other.stem != path.stem]
    for other in others:
        with suppress(EbbflowError):
            checkpoint = read_checkpoint(other)
            if file_state(folder / checkpoint.tensors, checkpoint.sha256) == "ok":
                for suffix in (".json", ".safetensors"):
                    set_aside(folder, path.with_suffix(suffix))
                text = f"moved to {QUARANTINE}; the run goes on from {other.name}"
                return Repair(path.name, True, text)
    return Repair(path.name, False, f"cannot be repaired, and there is no other: {records.RESTORE}")


def _entry(folder: Path, path: Path) -> Repair:
    """Move a damaged session of a history away."""
    with suppress(EbbflowError):
        files = records.read_manifest(path.parent)
        if files.pop(path.name, None) is not None:
            records.write_sealed(path.parent / records.MANIFEST, {"files": files})
    done = _moved(folder, path) if path.exists() else Repair("", True, "taken off the manifest")
    name = str(path.relative_to(folder))
    if path.name == "pilot.safetensors":
        return Repair(name, True, f"{done.text}; resume writes it anew")
    text = f'{done.text}; to go on without it, set history.on_damage = "skip"'
    return Repair(name, True, text)
