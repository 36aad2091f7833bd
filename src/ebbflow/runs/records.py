"""The files of a run folder, read without importing torch.

Damage is noticed wherever it happens. JSON files are *sealed*: their last key is the digest of all
others. Every line of a line file ends with its own checksum. Tensor files have their digests in a
sealed file.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from pydantic import ConfigDict, TypeAdapter

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, sha256, write_atomically
from ebbflow.runs.plain import check_plain
from ebbflow.runs.schemas import Event, KeptFacts, RoundLine, checked

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
HISTORY = "history"
MANIFEST = "manifest.json"
LOCK = ".lock"
LOG = "run.log"
RESTORE = "restore the file, or start a new run"
VERSION = 2
"""Of the files of a run folder. Those of version 1 have neither seals nor checksums of lines."""
LARGEST_JSON = 2**30
LONGEST_LINE = 2**26
KEPT_NAME = re.compile(r"(?:session-\d{4,9}|pilot)\.safetensors")
"""The names of files in a history."""


def session_file(session: int) -> str:
    """Return the name of a past session's file in a history.

    >>> session_file(7)
    'session-0007.safetensors'
    """
    return f"session-{session:04d}.safetensors"


class Round(NamedTuple):
    """The result of one method in one round: one line of ``metrics.jsonl``.

    ``accuracy`` is in percent, over the session's test samples, after the round's aggregation. If
    the task or ``metrics`` name another measure, it is that one, and ``measures`` holds all of
    them. Rounds and sessions count from one.
    """

    algorithm: str
    method: str
    seed: int
    session: int
    round: int
    accuracy: float
    loss: float
    lr: float
    devices: int
    participants: int
    measures: dict[str, float] | None = None

    def line(self) -> dict[str, Any]:
        """Return what a line of ``metrics.jsonl`` says."""
        return {key: value for key, value in self._asdict().items() if value is not None}


def claim_folder(path: Path, config: dict[str, Any]) -> None:
    """Create a new run folder with its configuration; raise an error if it is in use."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise EbbflowError(f"the path {str(path)!r} is no text: choose another --out") from None
    if (path / CONFIG).exists():
        raise EbbflowError(
            f"{path} already holds a run: resume it with `ebbflow resume {path}`, or choose "
            "another --out"
        )
    if path.exists() and (not path.is_dir() or not _unused(path)):
        raise EbbflowError(f"{path} exists and is not an empty folder: choose another --out")
    for parent in path.absolute().parents:
        if (parent / CONFIG).exists() and (parent / ENVIRONMENT).exists():
            raise EbbflowError(f"{path} lies within the run {parent}: choose another --out")
    try:
        make_folder(path)
        write_config(path, config)
    except OSError as error:
        raise EbbflowError(
            f"the run folder {path} cannot be written ({error.strerror}): choose another --out"
        ) from None


def write_config(path: Path, config: dict[str, Any]) -> None:
    """Write the configuration of a run folder with its digest, atomically."""
    write_atomically(path / CONFIG, sealed_text(tomli_w.dumps(without_none(config))))


def sealed_text(text: str) -> bytes:
    """Return a text with its digest before it, for `is_sealed_text`."""
    return f"{_SEAL}{sha256(text.encode())}\n{text}".encode()


def _unused(path: Path) -> bool:
    """Whether a folder is empty, or holds only what a run left that was killed at once."""
    return all(_LEFT_OVER.fullmatch(entry.name) for entry in path.iterdir())


_SEAL = "# digest of what follows: "
_LEFT_OVER = re.compile(r"\.lock|\.config\.toml\.[0-9]+-[0-9a-f]+\.tmp")


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    """Return settings as TOML can hold them.

    It has no null: values left out are filled in with the defaults again on reading.
    """
    return {
        key: without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def check_run(folder: Path) -> None:
    """Raise an error unless this is a run folder."""
    if not (folder / CONFIG).is_file():
        raise EbbflowError(f"{folder} holds no ebbflow run ({CONFIG} is missing): check the path")
    check_plain(folder)


def sealed_config(folder: Path) -> bool:
    """Whether the configuration is as it was written when the run began.

    Runs of earlier versions have no digest, and are taken to be.
    """
    content = (folder / CONFIG).read_bytes()
    former = b"# digest" not in content[:200] and b"\nrounds" in content
    return former or is_sealed_text(content)


def is_sealed_text(content: bytes) -> bool:
    """Whether a text begins with the digest of what follows, and it is right."""
    seal = re.match(re.escape(_SEAL).encode() + rb"([0-9a-f]{64})\n", content)
    return seal is not None and sha256(content[seal.end() :]) == seal[1].decode()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as indented JSON, atomically."""
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


@dataclass(frozen=True)
class RunRecords:
    """The outcome of an experiment.

    ``rounds`` holds every round of every method, ``rows`` the window accuracies as in
    ``summary.json``, ``events`` everything else (each session's start with the past sessions it
    drew on, costs, warnings); ``folder`` is the run folder, if there is one.
    """

    config: dict[str, Any]
    rounds: list[Round] = field(repr=False)
    rows: list[dict[str, Any]] = field(repr=False)
    events: list[dict[str, Any]] = field(repr=False)
    folder: Path | None = None


# --- lines ---------------------------------------------------------------------------------------

# It writes numbers six times as fast as json does, and a session may draw on a thousand others.
_ANYTHING = TypeAdapter[Any](Any, config=ConfigDict(ser_json_inf_nan="constants"))
_CHECKSUM = re.compile(rb', "crc": "([0-9a-f]{8})"\}')


def line_of(content: Mapping[str, Any]) -> bytes:
    """Return an object as a line of JSON that ends with its own checksum."""
    try:
        text = _ANYTHING.dump_json(content)
    except ValueError:  # half a character, as in the name of a file: JSON can only hold it escaped
        text = json.dumps(content).encode()
    return text[:-1] + b', "crc": "%08x"}\n' % zlib.crc32(text)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file, except a last line that a crash cut short."""
    if not path.exists():
        return
    with path.open("rb") as file:
        number, checked = 0, True
        while line := file.readline(LONGEST_LINE):
            number += 1
            where = f"{path}, line {number}"
            if not line.endswith(b"\n"):
                if len(line) == LONGEST_LINE:
                    raise EbbflowError(f"{where} is longer than any line of a run: {RESTORE}")
                return
            # A file of version 1 has no checksums at all.
            checked = checked if number > 1 else split_line(line)[1] is not None
            yield object_of_line(line, where, checked=checked)


def object_of_line(line: bytes, where: str, *, checked: bool) -> dict[str, Any]:
    """Return the object of a line; ``checked`` says whether it has to match a checksum."""
    text, checksum = split_line(line)
    if checked and (checksum is None or zlib.crc32(text) != checksum):
        raise EbbflowError(f"{where} does not match its checksum: {RESTORE}")
    return object_of(text, where)


def split_line(line: bytes) -> tuple[bytes, int | None]:
    """Return a line's content, and its checksum if it has one."""
    line = line.rstrip(b"\n")
    found = _CHECKSUM.fullmatch(line[-20:])
    return (line, None) if found is None else (line[:-20] + b"}", int(found[1], 16))


# --- JSON ----------------------------------------------------------------------------------------


def read_json(path: Path, remedy: str = RESTORE) -> dict[str, Any]:
    """Return the object in a JSON file; if it is damaged, an error says what to do about it."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise EbbflowError(f"{path} is larger than any file of a run: {remedy}")
        return object_of(path.read_bytes(), str(path), remedy)
    except OSError as error:
        reason = error.strerror or error
        raise EbbflowError(f"{path} cannot be read ({reason}): {remedy}") from None


def write_sealed(path: Path, content: dict[str, Any], *, indent: int | None = None) -> None:
    """Write an object as JSON with its digest, atomically.

    Indented it is easier on the eyes, and takes twenty times as long to write.
    """
    content = {"version": VERSION, **content}
    text = canonical(content)
    if indent is not None:
        text = json.dumps({**content, "digest": sha256(text.encode())}, indent=indent)
        write_atomically(path, f"{text}\n".encode())
    else:
        text = f'{text[:-1]},"digest":"{sha256(text.encode())}"}}'
        write_atomically(path, f"{text}\n".encode())


def read_sealed(path: Path, remedy: str = RESTORE) -> dict[str, Any]:
    """Return the object in a sealed file, without version and digest, after checking it."""
    content = read_json(path, remedy)
    version = content.get("version", 1)
    if not is_sealed(content) and ("digest" in content or version != 1):
        raise EbbflowError(f"{path} does not match its digest: {remedy}")
    if version not in (1, VERSION):
        raise EbbflowError(f"{path} is of version {version!r}, which this ebbflow does not know")
    return {key: value for key, value in content.items() if key not in ("version", "digest")}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether an object has a digest, and it is right."""
    others = {key: value for key, value in content.items() if key != "digest"}
    return "digest" in content and content["digest"] == _digest(others)


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(canonical(content).encode())


def canonical(content: Mapping[str, Any]) -> str:
    """Return the one text in JSON that equal objects have in common."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def object_of(text: bytes, where: str, remedy: str = RESTORE) -> dict[str, Any]:
    """Return the object that a text holds as JSON."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # not UTF-8, no JSON, or nested too deeply
        content = None
    if not isinstance(content, dict):
        raise EbbflowError(f"{where} is no JSON object: {remedy}")
    return content


# --- what is in them -----------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the facts and the checksum of each file in a history folder."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    files = read_sealed(path).get("files")
    if not isinstance(files, dict) or not all(map(KEPT_NAME.fullmatch, files)):
        raise EbbflowError(f"{path} is no manifest of a history: {RESTORE}")
    return {
        name: checked(KeptFacts, facts, f"{path}, {name}", RESTORE) for name, facts in files.items()
    }


def manifest_entry(name: str, facts: Mapping[str, Any]) -> bytes:
    """Return the text of one file in a manifest."""
    return f'"{name}":{canonical(facts)}'.encode()


class ManifestText:
    """The text of a manifest, to which entries are added in the order of their names.

    A manifest is written after every session, with all of a past that may be long: what has been
    joined and digested before is not formed anew.
    """

    def __init__(self, entries: Iterable[bytes] = ()) -> None:
        self._text = bytearray(b'{"files":{' + b",".join(entries))
        self._digest = hashlib.sha256(self._text)

    def add(self, entry: bytes) -> None:
        """Add another entry at the end."""
        entry = entry if self._text.endswith(b"{") else b"," + entry
        self._text += entry
        self._digest.update(entry)

    def write(self, folder: Path) -> None:
        """Write the manifest with its digest, atomically."""
        end, digest = f'}},"version":{VERSION}'.encode(), self._digest.copy()
        digest.update(end + b"}")
        sealed = f',"digest":"{digest.hexdigest()}"}}\n'.encode()
        write_atomically(folder / MANIFEST, (memoryview(self._text), end, sealed))


def read_rounds(folder: Path) -> list[Round]:
    """Return every round in a run folder."""
    path = folder / METRICS
    lines = enumerate(read_lines(path), start=1)
    return [
        Round(**checked(RoundLine, line, f"{path}, line {number}", RESTORE))
        for number, line in lines
    ]


def read_events(folder: Path) -> list[dict[str, Any]]:
    """Return every event in a run folder."""
    path = folder / EVENTS
    lines = enumerate(read_lines(path), start=1)
    return [checked(Event, line, f"{path}, line {number}", RESTORE) for number, line in lines]


def read_records(folder: Path) -> RunRecords:
    """Return the records of a finished run."""
    summary = read_sealed(folder / SUMMARY)
    if not isinstance(summary.get("config"), dict) or not isinstance(summary.get("rows"), list):
        raise EbbflowError(f"{folder / SUMMARY} is no summary of a run: {RESTORE}")
    return RunRecords(
        summary["config"], read_rounds(folder), summary["rows"], read_events(folder), folder
    )
