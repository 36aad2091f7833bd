"""The run folder: a run that explains itself and survives a crash.

Nothing is lost but the rounds since the last checkpoint, and those come out the same again, bit by
bit, because every draw is a function of names. The order of writing makes it so: history entries
first, then the checkpoint that refers to them (with the lengths of the line files at that moment),
and only then are entries deleted that the checkpoint no longer needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout
from pydantic import ValidationError
from safetensors.torch import load
from torch import Tensor

from ebbflow import accounting, records
from ebbflow.config import Config
from ebbflow.core import sketch
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256, write_atomically
from ebbflow.core.tensor_files import as_safetensors
from ebbflow.core.types import ModelState, Session, Start, State
from ebbflow.history.store import Store
from ebbflow.initialisers import SKETCHED
from ebbflow.records import RESTORE, Round
from ebbflow.simulate import Method, Track, cost_events
from ebbflow.world import World

CHECKPOINT = "checkpoint.json"


class RunFolder:
    """A folder that a run is written to; also the watcher that writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / ".lock")
        self._lines: dict[str, IO[bytes]] = {}
        self._saved_at = time.monotonic()
        self._session_began = time.monotonic()

    # --- making, opening, closing ---------------------------------------------------------------

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder to start its run or to go on with it."""
        records.check_run(path)
        folder = cls(path)
        folder._acquire()
        return folder

    def _acquire(self) -> None:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise EbbflowError(
                f"another process is writing to {self.path}: wait for it, or stop it first"
            ) from None

    def close(self) -> None:
        """Close the line files and let others write."""
        for file in self._lines.values():
            file.close()
        self._lines.clear()
        self._lock.release()

    def discard(self) -> None:
        """Remove a folder in which nothing was computed."""
        self.close()
        for name in (records.CONFIG, records.ENVIRONMENT, ".lock"):
            (self.path / name).unlink(missing_ok=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def warn(self, text: str) -> None:
        """Record a warning that concerns the run as a whole."""
        self._append(records.EVENTS, [{"event": "warning", "text": text}])

    # --- watching -------------------------------------------------------------------------------

    def started(self, world: World, session: Session, events: Sequence[dict[str, Any]]) -> None:
        """Record where each method starts, and which past sessions it drew on."""
        self._session_began = time.monotonic()
        self._append(records.EVENTS, events)

    def advanced(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        """Record a round, and save everything now and then."""
        self._append(records.METRICS, [r._asdict() for r in rounds])
        due = time.monotonic() - self._saved_at >= world.config.checkpoint.seconds
        if due and rounds[0].round < session.rounds:
            self._save_checkpoint(world, session, rounds[0].round, tracks)

    def finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        """Save the session's models, then the checkpoint, then drop what is no longer kept."""
        seconds = time.monotonic() - self._session_began
        event = {"event": "finished", "seed": world.seed, "session": session.index}
        costs = cost_events(world, session, tracks)
        self._append(records.EVENTS, [*costs, {**event, "seconds": round(seconds, 3)}])
        for track in tracks:
            store = self.store(world, track.method)
            if session.index == world.config.pilot.sessions and track.pilot is not None:
                store.write_pilot(track.pilot)
            start = track.start.weights if track.start else {}
            drawn = {str(z): weight for z, weight in start.items() if weight > 0}
            # From here on the session is read from its file: a long past does not fill the memory.
            track.entries = [
                store.write(entry, devices=len(session.devices), drew_on=drawn)
                if entry.session == session.index
                else entry
                for entry in track.entries
            ]
        self._save_checkpoint(world, session, 0, tracks)
        for track in tracks:
            self.store(world, track.method).keep([entry.session for entry in track.entries])

    def store(self, world: World, method: Method) -> Store:
        """Return where a method's history lies."""
        where = self.path / records.HISTORY / method.group / method.name / f"seed-{world.seed}"
        layout, choice = world.model.layout, world.config.warm_start
        sketched = choice.signature == "sketch" and method.name in SKETCHED
        plan = sketch.plan(layout, choice.distance) if sketched else None
        return Store(where, layout, world.model.buffer_layout, plan)

    def _append(self, name: str, objects: Sequence[dict[str, Any]]) -> None:
        if name not in self._lines:
            self._lines[name] = (self.path / name).open("ab")
        lines = "".join(json.dumps(o) + "\n" for o in objects)
        self._lines[name].write(lines.encode())
        self._lines[name].flush()

    # --- checkpoints ----------------------------------------------------------------------------

    def _save_checkpoint(
        self, world: World, session: Session, t: int, tracks: Sequence[Track]
    ) -> None:
        for file in self._lines.values():
            os.fsync(file.fileno())
        # From the disk: after a resume a file may not have been written to yet.
        paths = [self.path / name for name in (records.METRICS, records.EVENTS)]
        lengths = {path.name: path.stat().st_size for path in paths if path.exists()}
        name = f"checkpoint-{world.seed}-{session.index}-{t}.safetensors"
        digest = write_atomically(self.path / name, as_safetensors(_pack(tracks)))
        records.write_json(
            self.path / CHECKPOINT,
            {
                "version": 1,
                "config": world.config.model_dump(mode="json"),
                "seed": world.seed,
                "session": session.index,
                "round": t,
                "lengths": lengths,
                "tensors": name,
                "sha256": digest,
                "tracks": [_facts(track) for track in tracks],
            },
        )
        for old in self.path.glob("checkpoint-*.safetensors"):
            if old.name != name:
                old.unlink()
        self._saved_at = time.monotonic()

    def rewind(self, config: Config) -> dict[str, Any] | None:
        """Cut the line files back to the last checkpoint and return it; None if there is none."""
        path = self.path / CHECKPOINT
        checkpoint = records.read_json(path) if path.exists() else None
        if checkpoint is not None:
            if checkpoint.get("version") != 1:
                raise EbbflowError(f"{path} is no checkpoint of this version: {RESTORE}")
            _check_unchanged(checkpoint["config"], config.model_dump(mode="json"), self.path)
        for name in (records.METRICS, records.EVENTS):
            lines = self.path / name
            kept = checkpoint["lengths"].get(name, 0) if checkpoint else 0
            found = lines.stat().st_size if lines.exists() else 0
            if found < kept:
                raise EbbflowError(
                    f"{lines} is shorter than when the run was last saved: {RESTORE}"
                )
            if found > kept:
                os.truncate(lines, kept)
        records.read_rounds(self.path)  # a damaged line is better found now than at the end
        return checkpoint

    def restore(self, checkpoint: dict[str, Any], world: World, tracks: Sequence[Track]) -> None:
        """Bring fresh tracks to where the checkpoint left them."""
        path = self.path / checkpoint["tensors"]
        try:
            content = path.read_bytes()
        except OSError:
            raise EbbflowError(f"the checkpoint {path} is missing: {RESTORE}") from None
        if sha256(content) != checkpoint["sha256"]:
            raise EbbflowError(f"the checkpoint {path} does not match its checksum: {RESTORE}")
        tensors = load(content)
        for i, (track, facts) in enumerate(zip(tracks, checkpoint["tracks"], strict=True)):
            _unpack(track, facts, tensors, f"{i}/", world.config.device)
            store = self.store(world, track.method)
            # What a crash left behind: entries that were about to be deleted or to be written anew.
            store.keep(facts["entries"])
            track.entries = store.read_all(facts["entries"])


def _check_unchanged(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with other settings than those so far; how the work is done may change."""
    free = {"engine", "checkpoint", "device", "window"}
    with contextlib.suppress(ValidationError):
        # A run of an earlier version does not name what has been added since.
        before = Config.model_validate(before).model_dump(mode="json")
    before, now = _without_signature(before), _without_signature(now)
    for key in before.keys() | now.keys():
        if key not in free and before.get(key) != now.get(key):
            raise EbbflowError(
                f"{folder / records.CONFIG}: {key} is {now.get(key)} and was {before.get(key)} "
                "when the run was last saved: change it back, or start a new run"
            )


def _without_signature(config: dict[str, Any]) -> dict[str, Any]:
    # Sketches leave the weights as they are, within what a mixture is rounded by.
    found = config.get("warm_start", {})
    choice = {key: value for key, value in found.items() if key != "signature"}
    return {**config, "warm_start": choice}


def _pack(tracks: Sequence[Track]) -> dict[str, Tensor]:
    """Return every tensor of the tracks under a name of its own."""
    tensors: dict[str, Tensor] = {}
    for i, track in enumerate(tracks):
        named = {"theta": track.model.theta, "buffers": track.model.buffers}
        named |= {f"server/{name}": value for name, value in track.server.items()}
        for device, state in track.clients.items():
            named |= {f"clients/{device}/{name}": value for name, value in state.items()}
        models = [("pilot", track.pilot)] if track.pilot is not None else []
        models += [(f"pilots/{n}", model) for n, model in enumerate(track.pilots)]
        if track.start is not None and track.start.signature is not None:
            named["signature"] = track.start.signature
        if track.start is not None and track.start.teacher is not None:
            models.append(("teacher", track.start.teacher))
        for name, model in models:
            named |= {f"{name}/theta": model.theta, f"{name}/buffers": model.buffers}
        tensors |= {f"{i}/{name}": value for name, value in named.items()}
    return tensors


def _facts(track: Track) -> dict[str, Any]:
    start = track.start
    return {
        "algorithm": track.method.group,
        "method": track.method.name,
        "server": list(track.server),
        "clients": {str(device): list(state) for device, state in track.clients.items()},
        "pilot": track.pilot is not None,
        "pilots": len(track.pilots),
        "teacher": start is not None and start.teacher is not None,
        "entries": [entry.session for entry in track.entries],
        "weights": {str(z): w for z, w in start.weights.items()} if start else {},
        "distances": {str(z): d for z, d in start.distances.items()} if start else {},
        "costs": accounting.written(track.costs),
    }


def _unpack(
    track: Track, facts: dict[str, Any], tensors: dict[str, Tensor], prefix: str, device: str
) -> None:
    def model(name: str) -> ModelState:
        return ModelState(tensors[f"{prefix}{name}theta"], tensors[f"{prefix}{name}buffers"])

    def state(where: str, names: Sequence[str]) -> State:
        return {name: tensors[f"{prefix}{where}{name}"].to(device) for name in names}

    here = model("")
    track.model = ModelState(here.theta.to(device), here.buffers.to(device))
    track.server = state("server/", facts["server"])
    track.clients = {
        int(device_number): state(f"clients/{device_number}/", names)
        for device_number, names in facts["clients"].items()
    }
    track.pilot = model("pilot/") if facts["pilot"] else None
    track.pilots = [model(f"pilots/{n}/") for n in range(facts["pilots"])]
    track.start = Start(
        here,
        {int(z): weight for z, weight in facts["weights"].items()},
        {int(z): distance for z, distance in facts["distances"].items()},
        tensors.get(f"{prefix}signature"),
        model("teacher/") if facts["teacher"] else None,
    )
    track.costs = accounting.read(facts.get("costs", {}))
