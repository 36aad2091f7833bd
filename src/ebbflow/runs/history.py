"""A method's past on disk: one safetensors file per session, and a manifest of checksums.

Nothing is pickled: opening a stranger's history runs none of their code.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ebbflow.core import sketch, vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_digested
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.core.types import Layout, ModelState, PastSession, Sketch
from ebbflow.runs.plain import set_aside
from ebbflow.runs.records import (
    KEPT_NAME,
    MANIFEST,
    RESTORE,
    ManifestText,
    manifest_entry,
    read_manifest,
    session_file,
)

PILOT = "pilot.safetensors"
MEMBERS = "members"  # the tensor that lists the devices of a session
STARTING = "start/"  # begins the names of the tensors of the model that a session began with


class _Tensors(Protocol):
    """The interface of an open safetensors file."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...
    def get_slice(self, name: str) -> Any: ...


class _File:
    """A file of a history: checked once, then mapped whenever part of it is read."""

    def __init__(self, path: Path, digest: str | None) -> None:
        self.path = path
        self.digest = digest
        self._checked = False

    def check(self) -> None:
        """Compare the file with its checksum, the first time only."""
        if self._checked:
            return
        try:
            with self.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            raise self._missing() from None
        if digest != self.digest:
            raise EbbflowError(
                f"the history entry {self.path} does not match its checksum in {MANIFEST}: it was "
                f"changed or damaged; {RESTORE}"
            )
        self._checked = True

    @contextmanager
    def tensors(self) -> Iterator[_Tensors]:
        """Give access to the tensors; only those that are accessed are read from disk."""
        self.check()
        try:
            with safe_open(self.path, framework="pt") as opened:
                yield opened
        except OSError:
            raise self._missing() from None
        except SafetensorError as error:
            raise EbbflowError(
                f"the history entry {self.path} holds no tensors ({error}): {RESTORE}"
            ) from None

    def _missing(self) -> EbbflowError:
        return EbbflowError(f"the history entry {self.path} is missing: {RESTORE}")


class _Recent:
    """Vectors that were read twice and lately, up to a limit in bytes; the oldest go first.

    A start that draws on all of a long past would otherwise open every file in every session. Of
    what is read once, as by a start that keeps stacks of its own, nothing but its name is kept.
    What is kept is never given away, only copies of it.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._held = limit, 0
        self._vectors: OrderedDict[tuple[str, str, str], Tensor | None] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: _File, what: str, read: Callable[[], Tensor]) -> Tensor:
        """Return a vector of a file, read if need be."""
        key = str(file.path), file.digest or "", what
        with self._lock:
            known = key in self._vectors
            kept = self._vectors.setdefault(key, None)
            self._vectors.move_to_end(key)
        if kept is not None:
            return kept.clone()
        vector = read()
        if not known or vector.nbytes > self._limit // 4:
            return vector
        with self._lock:
            self._held += vector.nbytes - _bytes_of(self._vectors.get(key))
            self._vectors[key] = vector
            while self._held > self._limit:
                _, old = self._vectors.popitem(last=False)
                self._held -= _bytes_of(old)
        return vector.clone()

    def forget(self, path: Path) -> None:
        """Let go of the vectors of a file that is deleted."""
        with self._lock:
            for key in [key for key in self._vectors if key[0] == str(path)]:
                self._held -= _bytes_of(self._vectors.pop(key))


def _bytes_of(kept: Tensor | None) -> int:
    return 0 if kept is None else kept.nbytes


_recent = _Recent(64 * 2**20)


class _Shape(NamedTuple):
    """The layouts and the sketch plan that all entries of a history share."""

    layout: Layout
    buffer_layout: Layout
    plan: sketch.SketchPlan | None


class StoredSession(PastSession):
    """A past session on disk, of which nothing is in memory.

    ``model``, ``signature``, ``sketch`` and ``devices`` map the file, read it and close it again,
    so that an entry may be deleted at any time. They return copies, because the tensors of a file
    are not in the order of a flat vector; a few MiB of copies of vectors are remembered.
    """

    # Attributes, which are asked for a thousand times in a session with a long past.
    __slots__ = ("number", "signed", "started")
    number: int
    signed: bool
    started: bool

    def __init__(
        self,
        number: int,
        file: _File,
        shape: _Shape,
        *,
        signed: bool,
        started: bool,
        members: tuple[int, ...] | None,
    ) -> None:
        object.__setattr__(self, "number", number)
        self._file, self._shape = file, shape
        self.signed, self.started = signed, started
        self._members = members  # None if they are in the file

    def __repr__(self) -> str:
        return f"StoredSession({self.number}, {str(self._file.path)!r})"

    @property
    def model(self) -> ModelState:
        """The final model w^(z,T+1)."""
        return self._model("")

    @property
    def start(self) -> ModelState | None:
        """The starting model w^(z,1), if it was kept."""
        if not self.started:
            return None
        return self._model(STARTING)

    @property
    def signature(self) -> Tensor | None:
        """The signature G_z, if the session was probed."""
        if not self.signed:
            return None
        return self._vector("signature", self._shape.layout)

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that were there, if they are known."""
        if self._members is not None:
            return self._members
        with self._file.tensors() as tensors:
            return tuple(tensors.get_tensor(MEMBERS).tolist())

    def _model(self, prefix: str) -> ModelState:
        return ModelState(
            self._vector(f"{prefix}theta", self._shape.layout),
            self._vector(f"{prefix}buffers", self._shape.buffer_layout),
        )

    def _vector(self, name: str, layout: Layout) -> Tensor:
        def read() -> Tensor:
            with self._file.tensors() as tensors:
                return _flat(tensors, layout, name)

        return _recent.get(self._file, name, read)

    @property
    def sketch(self) -> Sketch | None:
        """The signature's sketch, if one for the current plan was stored."""
        if self._shape.plan is None:
            return None
        names = _sketch_names(self._shape.plan)
        with self._file.tensors() as tensors:
            if not set(names) <= set(tensors.keys()):
                return None
            return Sketch(*(tensors.get_tensor(name).clone() for name in names))


class Store:
    """The history of one method of one run, in its own folder.

    Parameters are stored by name (``theta/weight`` ...), so that any tool that reads safetensors
    can use a past model; ``start/theta/...`` holds the model that the session began with, if it is
    kept, and ``members`` its devices; ``signature/...`` holds the pseudo-gradient and, if there is
    a plan, ``sketch/...`` its sketch.
    """

    def __init__(
        self,
        folder: Path,
        layout: Layout,
        buffer_layout: Layout,
        plan: sketch.SketchPlan | None = None,
    ) -> None:
        self.folder = folder
        self._shape = _Shape(layout, buffer_layout, plan)
        self._listed: dict[str, dict[str, Any]] | None = None
        # Of a long past, nothing is made again for the sake of one more session: these are the
        # manifest's entries, its text, and the numbers of the sessions in it.
        self._entries: dict[str, bytes] = {}
        self._text = ManifestText()
        self._numbers: set[int] = set()

    def write(self, entry: PastSession, **facts: Any) -> PastSession:
        """Save one past session, with facts about it for the manifest.

        Returns the session as an entry on disk, which holds nothing in memory.
        """
        tensors = self._tensors(entry.model)
        if entry.start is not None:
            tensors |= self._tensors(entry.start, STARTING)
            # Not in the manifest, which is written anew for every session.
            tensors[MEMBERS] = torch.tensor(entry.devices, dtype=torch.int64)
        signature = entry.signature
        if signature is not None:
            tensors |= _named(signature, self._shape.layout, "signature")
            if self._shape.plan is not None:
                sketched = sketch.sketch(signature, self._shape.plan)
                tensors |= dict(zip(_sketch_names(self._shape.plan), sketched, strict=True))
        name = session_file(entry.number)
        digest = self._save(name, tensors, {"session": entry.number, **facts})
        return StoredSession(
            entry.number,
            _File(self.folder / name, digest),
            self._shape,
            signed=signature is not None,
            started=entry.start is not None,
            members=None if entry.start is not None else (),
        )

    def write_pilot(self, pilot: ModelState) -> None:
        """Save the pilot model."""
        self._save(PILOT, self._tensors(pilot), {})

    def write_pilot_anew(self, pilot: ModelState) -> None:
        """Save the pilot model again if its file was damaged; it is in every checkpoint, too."""
        try:
            self._file(PILOT, self._files()).check()
        except EbbflowError:
            self.write_pilot(pilot)

    def read(self, session: int) -> PastSession:
        """Return one past session, after checking its checksum and its shape."""
        (entry,) = self.read_all([session])
        return entry

    def read_all(self, sessions: Iterable[int]) -> list[PastSession]:
        """Return past sessions, after checking their checksums and shapes."""
        files = self._files()
        return [self._checked(session, files) for session in sessions]

    def keep(self, sessions: Collection[int]) -> None:
        """Delete the entries of all other sessions."""
        files = self._known_files()
        if self._numbers.issubset(sessions):
            return
        sessions = set(sessions)
        kept = {
            name: facts
            for name, facts in files.items()
            if "session" not in facts or facts["session"] in sessions
        }
        # The manifest first: an unlisted file is harmless, a listed one that is missing is not.
        self._write_manifest(kept)
        for name in files.keys() - kept.keys():
            (self.folder / name).unlink(missing_ok=True)
            _recent.forget(self.folder / name)

    def forget_after(self, session: int) -> None:
        """Delete the entries of all later sessions."""
        kept = [facts.get("session", 0) for facts in self._files().values()]
        self.keep([number for number in kept if number <= session])

    def give_up(self, session: int, run: Path) -> str:
        """Set a damaged entry aside, and take it off the manifest; return where it is now."""
        name = session_file(session)
        files = self._files()
        if files.pop(name, None) is not None:
            self._write_manifest(files)
        where = set_aside(run, self.folder / name, f"{'-'.join(self.folder.parts[-3:])}-{name}")
        return str(where.relative_to(run))

    def sweep(self) -> None:
        """Delete files that a crash has left here before, or after, the manifest listed them."""
        listed = self._files()
        for path in self.folder.glob("*.safetensors"):
            if KEPT_NAME.fullmatch(path.name) and path.name not in listed:
                path.unlink()

    def _checked(self, session: int, files: dict[str, dict[str, Any]]) -> PastSession:
        file = self._file(session_file(session), files)
        layout, buffer_layout, _ = self._shape
        with file.tensors() as tensors:
            signed = bool(_shapes(tensors, "signature"))
            started = bool(_shapes(tensors, f"{STARTING}theta"))
            for prefix in ["", STARTING] if started else [""]:
                _check_shapes(tensors, layout, f"{prefix}theta")
                _check_shapes(tensors, buffer_layout, f"{prefix}buffers")
            if signed:
                _check_shapes(tensors, layout, "signature")
            listed = MEMBERS in list(tensors.keys())
        # Earlier versions listed the devices in the manifest.
        members = None if listed else tuple(files.get(file.path.name, {}).get("members", ()))
        return StoredSession(
            session, file, self._shape, signed=signed, started=started, members=members
        )

    def _file(self, name: str, files: dict[str, dict[str, Any]]) -> _File:
        return _File(self.folder / name, files.get(name, {}).get("sha256"))

    def _tensors(self, model: ModelState, prefix: str = "") -> dict[str, Tensor]:
        theta = _named(model.theta, self._shape.layout, f"{prefix}theta")
        return theta | _named(model.buffers, self._shape.buffer_layout, f"{prefix}buffers")

    def _save(self, name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
        make_folder(self.folder)
        digest = write_digested(self.folder / name, as_safetensors(tensors))
        about = {**facts, "sha256": digest, "bytes": (self.folder / name).stat().st_size}
        files = self._known_files()
        grows = len(self._entries) == len(files) > 0 and name > next(reversed(files))
        if not grows:
            self._entries.pop(name, None)
            self._write_manifest(files | {name: about})
            return digest
        # At its end, as usual.
        files[name] = about
        self._entries[name] = manifest_entry(name, about)
        self._numbers |= _numbers_of(about)
        self._text.add(self._entries[name])
        self._text.write(self.folder)
        return digest

    def _files(self) -> dict[str, dict[str, Any]]:
        files = read_manifest(self.folder)
        self._list(files)
        self._entries = {}
        return dict(files)

    def _known_files(self) -> dict[str, dict[str, Any]]:
        """Return the manifest as this store has read or written it last.

        Nobody else writes to the folder of a run that is under way, and reading a long manifest
        back after every session would take longer from session to session.
        """
        return self._files() if self._listed is None else self._listed

    def _write_manifest(self, files: dict[str, dict[str, Any]]) -> None:
        files, entries = dict(sorted(files.items())), self._entries
        self._entries = {n: entries.get(n) or manifest_entry(n, files[n]) for n in files}
        self._text = ManifestText(self._entries.values())
        self._text.write(self.folder)
        self._list(files)

    def _list(self, files: dict[str, dict[str, Any]]) -> None:
        """Take note of what the manifest lists."""
        self._listed, self._numbers = files, set().union(*map(_numbers_of, files.values()))


def _numbers_of(facts: Mapping[str, Any]) -> set[int]:
    """Return the number of the session that a file of a manifest holds, if it holds one."""
    return {facts["session"]} if "session" in facts else set()


def _sketch_names(plan: sketch.SketchPlan) -> tuple[str, str]:
    return f"sketch/{plan.name}/values", f"sketch/{plan.name}/norms"


def _named(flat: Tensor, layout: Layout, prefix: str) -> dict[str, Tensor]:
    parts = vector.unflatten(flat.detach().cpu(), layout).items()
    return {f"{prefix}/{name}": tensor for name, tensor in parts}


def _flat(tensors: _Tensors, layout: Layout, prefix: str) -> Tensor:
    _check_shapes(tensors, layout, prefix)
    # Views of the mapped file; flattening copies them.
    return vector.flatten({n: tensors.get_tensor(f"{prefix}/{n}") for n in layout.names}, layout)


def _check_shapes(tensors: _Tensors, layout: Layout, prefix: str) -> None:
    wanted = {f"{prefix}/{n}": shape for n, shape in zip(layout.names, layout.shapes, strict=True)}
    shapes = _shapes(tensors, prefix)
    if shapes != wanted:
        raise EbbflowError(
            f"a history entry holds {shapes} where {wanted} is expected: it belongs to another "
            "model"
        )


def _shapes(tensors: _Tensors, prefix: str) -> dict[str, tuple[int, ...]]:
    names = [name for name in list(tensors.keys()) if name.startswith(f"{prefix}/")]
    return {name: tuple(tensors.get_slice(name).get_shape()) for name in names}
