"""Records a simulation in a run folder, and restores it from there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core import counters, sketch
from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.core.start import StartingPoint
from ebbflow.core.types import ModelState, Session, State
from ebbflow.runs import records
from ebbflow.runs.checkpoint import (
    Checkpoint,
    checkpoint_paths,
    prune,
    read_checkpoint,
    read_tensors,
    write_checkpoint,
)
from ebbflow.runs.configuration import check_unchanged
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.history import Store
from ebbflow.runs.plain import set_aside
from ebbflow.runs.records import RESTORE
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    RoundFinished,
    SessionFinished,
    SessionStarted,
)
from ebbflow.simulation.events import ENDED
from ebbflow.simulation.methods import Method, set_parameters
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


class Recorder(Callback):
    """The callback that writes a run folder.

    An entry of a history is deleted once neither its method nor one of the last two checkpoints
    needs it. If ``stop`` answers that the run is to stop, it is saved, and ``stopped`` is true.
    """

    def __init__(self, folder: RunFolder, stop: Callable[[], bool] = lambda: False) -> None:
        self.folder = folder
        self.stopped = False
        self._stop = stop
        # A run is saved after its first round: from then on it need not begin again.
        self._saved_at = -math.inf
        self._save_took = 0.0
        self._session_began = time.monotonic()
        self._needed: dict[Path, _Needed] = {}
        self._stores: dict[tuple[int, str, str], Store] = {}

    def resumed(self, world: World, tracks: Sequence[Track]) -> None:
        """Take note of what the checkpoint needs that these tracks have been restored from."""
        self._saved_at = time.monotonic()
        self._note(world, tracks, [_entries(track) for track in tracks])

    def session_started(self, event: SessionStarted) -> None:
        """Record where each method starts, and which past sessions it drew on."""
        self._session_began = time.monotonic()
        self.folder.append(records.EVENTS, event.recorded)

    def round_finished(self, event: RoundFinished) -> None:
        """Record a round, and save a checkpoint if one is due."""
        self.folder.append(records.METRICS, [r.line() for r in event.results])
        self.folder.append(records.EVENTS, event.recorded)
        wished = event.world.config.checkpoint
        wait = max(wished.seconds, self._save_took * (1 / wished.share - 1))
        due = time.monotonic() - self._saved_at >= wait
        stopping = self._stop()
        if event.round < event.session.rounds and (due or stopping):
            self._save_checkpoint(event.world, event.session, event.round, event.tracks)
            self.stopped = stopping

    def method_ended(self, event: MethodEnded) -> None:
        """Record why a method cannot go on."""
        self.folder.append(records.EVENTS, event.recorded)

    def session_finished(self, event: SessionFinished) -> None:
        """Save the session's models, then a checkpoint, then delete entries no longer kept."""
        world, session, tracks = event.world, event.session, event.tracks
        seconds = time.monotonic() - self._session_began
        over = {"event": "finished", "seed": world.seed, "session": session.index}
        self.folder.append(
            records.EVENTS, [*event.recorded, {**over, "seconds": round(seconds, 3)}]
        )
        for track in tracks:
            store = self._store(world, track.method)
            if session.index == world.rules.pilot_sessions and track.pilot is not None:
                store.write_pilot(track.pilot)
            # From now on the session is read from its file, so that a long past fits into memory.
            if track.past and track.past[-1].number == session.index:
                kept = store.write(track.past[-1], devices=len(session.devices))
                track.past = [*track.past[:-1], kept]
        self._save_checkpoint(world, session, 0, tracks)
        self.stopped = self._stop()

    def finish(self) -> None:
        """Prove the last checkpoint of a finished run by reading it, then delete the one before."""
        paths = checkpoint_paths(self.folder.path)
        if len(paths) > 1:
            last = read_checkpoint(paths[0])
            self.folder.check_lines(last.lines)
            read_tensors(last)
        prune(self.folder, 1)
        for needed in self._needed.values():
            needed.store.keep(needed.now)

    def _store(self, world: World, method: Method) -> Store:
        """Return the store of a method's history, the same one in every session."""
        key = world.seed, method.group, method.name
        if key not in self._stores:
            self._stores[key] = store_of(self.folder, world, method)
        return self._stores[key]

    def _note(
        self, world: World, tracks: Sequence[Track], entries: Sequence[Sequence[int]]
    ) -> None:
        here = {
            store.folder: (store, frozenset(numbers))
            for track, numbers in zip(tracks, entries, strict=True)
            for store in [self._store(world, track.method)]
        }
        for folder, needed in self._needed.items():  # of an earlier seed
            if folder not in here and needed.before != needed.now:
                here[folder] = needed.store, needed.now
        for folder, (store, now) in here.items():
            former = self._needed.get(folder)
            before = now if former is None else former.now
            self._needed[folder] = _Needed(store, before, now)
            store.keep(before | now)

    def _save_checkpoint(
        self, world: World, session: Session, t: int, tracks: Sequence[Track]
    ) -> None:
        began = time.monotonic()
        place = world.seed, session.index, t
        config = world.config.model_dump(mode="json")
        facts = [_facts(track, over=t == 0) for track in tracks]
        write_checkpoint(self.folder, place, config, facts, _packed(tracks))
        self._note(world, tracks, [each["entries"] for each in facts])
        self._saved_at = time.monotonic()
        self._save_took = self._saved_at - began


class StopOnceTold(Callback):
    """The last of all callbacks: ends a run that is saved because it is to stop.

    By then the others have heard of the round or session after which the run goes on again.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def round_finished(self, event: RoundFinished) -> None:
        """Stop after a round."""
        self._stop()

    def session_finished(self, event: SessionFinished) -> None:
        """Stop after a session."""
        self._stop()

    def _stop(self) -> None:
        if self._recorder.stopped:
            raise RunStoppedError


class _Needed(NamedTuple):
    """The sessions of a history that the checkpoint before the last and the last one refer to."""

    store: Store
    before: frozenset[int]
    now: frozenset[int]


def store_of(folder: RunFolder, world: World, method: Method) -> Store:
    """Return the store of a method's history."""
    layout, distance = world.model.layout, method.start.sketch_distance
    plan = None if distance is None else sketch.plan(layout, distance)
    where = folder.history(method.group, method.name, world.seed)
    return Store(where, layout, world.model.buffer_layout, plan)


# --- resuming from a checkpoint ------------------------------------------------------------------


class Saved(NamedTuple):
    """A checkpoint with its tensors, and sentences on newer ones that could not be used."""

    checkpoint: Checkpoint
    tensors: dict[str, Tensor]
    damaged: tuple[str, ...] = ()


def rewind(folder: RunFolder, config: Config) -> Saved | None:
    """Truncate the line files to the last intact checkpoint and return it, if there is one yet.

    Raises an error if there are checkpoints, but none is intact.
    """
    saved = _last_intact(folder)
    if saved is not None:
        written = read_written(saved.checkpoint.config, str(saved.checkpoint.path))
        check_unchanged(written, config, folder.path, set_parameters)
    folder.cut_lines(saved.checkpoint.lines if saved else {})
    return saved


def _last_intact(folder: RunFolder) -> Saved | None:
    damaged: dict[Path, str] = {}
    for path in checkpoint_paths(folder.path):
        try:
            checkpoint = read_checkpoint(path)
            folder.check_lines(checkpoint.lines)
            saved = Saved(checkpoint, read_tensors(checkpoint))
        except EbbflowError as error:
            damaged[path] = str(error)
            continue
        for unusable in damaged:  # or it would count as one of the last two
            for part in (unusable, unusable.with_suffix(".safetensors")):
                set_aside(folder.path, part)
        at = f"went on from {path.name} ({checkpoint.place})"
        return saved._replace(damaged=tuple(f"{text}; {at}" for text in damaged.values()))
    if damaged:
        raise EbbflowError(next(iter(damaged.values())))
    return None


def without_ended(folder: RunFolder, seed: int, tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks of the methods that have not ended under a seed."""
    ended = {
        (event["algorithm"], event["method"])
        for event in records.read_events(folder.path)
        if event["event"] == ENDED and event["seed"] == seed
    }
    return [track for track in tracks if (track.method.group, track.method.name) not in ended]


def restore(
    folder: RunFolder, saved: Saved, world: World, tracks: Sequence[Track]
) -> list[dict[str, Any]]:
    """Bring fresh tracks to where the checkpoint left them.

    Returns warnings about past sessions that a method goes on without, as events.
    """
    checkpoint = saved.checkpoint
    if checkpoint.session > len(world.sessions):
        raise EbbflowError(f"{checkpoint.path} is of a longer run than this one: {RESTORE}")
    session = world.sessions[checkpoint.session - 1]
    # Earlier versions did not record the teacher's labels: the previous session's were used.
    usual = {"teacher_labels": list(world.labels_before(session))}
    if [(t.method.group, t.method.name) for t in tracks] != [
        (facts["algorithm"], facts["method"]) for facts in checkpoint.tracks
    ]:
        raise EbbflowError(f"{checkpoint.path} is of other methods than the run: {RESTORE}")
    warnings: list[dict[str, Any]] = []
    for i, (track, written) in enumerate(zip(tracks, checkpoint.tracks, strict=True)):
        facts = usual | written
        try:
            _unpack(track, facts, saved.tensors, f"{i}/", world)
        except (KeyError, ValueError) as error:
            raise EbbflowError(
                f"{checkpoint.path} lacks the tensor {error}, or it has another shape: {RESTORE}"
            ) from None
        store = store_of(folder, world, track.method)
        # Delete what a crash left behind: entries of sessions that are about to be computed again.
        store.forget_after(checkpoint.session if checkpoint.round == 0 else checkpoint.session - 1)
        track.past = []
        for number in facts["entries"]:
            try:
                track.past.append(store.read(number))
            except EbbflowError as error:
                if world.config.history.on_damage == "stop":
                    raise EbbflowError(f'{error}; or set history.on_damage = "skip"') from None
                where = store.give_up(number, folder.path)
                text = f"{error}; went on without session {number}, and moved it to {where}"
                warnings.append(_warning(world, track, session, text))
        store.sweep()
        if track.pilot is not None:
            store.write_pilot_anew(track.pilot)
        track.devices = session.devices
    _trim_former(folder, world, checkpoint)
    return warnings


def _trim_former(folder: RunFolder, world: World, checkpoint: Checkpoint) -> None:
    """Delete what is no longer kept of methods that only the checkpoint before knows.

    They belong to the seed before, or have ended. A crash may have come before the deletion.
    """
    here = {(checkpoint.seed, facts["algorithm"], facts["method"]) for facts in checkpoint.tracks}
    for path in checkpoint_paths(folder.path)[1:2]:  # a third may not have been deleted yet
        with suppress(EbbflowError):  # `ebbflow verify` tells of damage that no round depends on
            former = read_checkpoint(path)
            for facts in former.tracks:
                method = facts["algorithm"], facts["method"]
                if (former.seed, *method) not in here:
                    where = folder.history(*method, former.seed)
                    store = Store(where, world.model.layout, world.model.buffer_layout)
                    store.keep(facts["entries"])
                    store.sweep()


def _warning(world: World, track: Track, session: Session, text: str) -> dict[str, Any]:
    return {
        "event": "warning",
        "algorithm": track.method.group,
        "method": track.method.name,
        "seed": world.seed,
        "session": session.index,
        "text": text,
    }


def _packed(tracks: Sequence[Track]) -> dict[str, Tensor]:
    """Return every tensor of the tracks under a unique name."""
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
        if track.start is not None and track.start.kept is not None:
            models.append(("kept", track.start.kept))
        for name, model in models:
            named |= {f"{name}/theta": model.theta, f"{name}/buffers": model.buffers}
        tensors |= {f"{i}/{name}": value for name, value in named.items()}
    return tensors


def _entries(track: Track) -> list[int]:
    """Return the numbers of the past sessions that a method has kept."""
    return [session.number for session in track.past]


def _facts(track: Track, over: bool) -> dict[str, Any]:
    start = track.start
    # Where a session that is over began is in the events, and nothing depends on it any more: of a
    # long past, these would be thousands of numbers.
    drawn_on = None if over else start
    return {
        "algorithm": track.method.group,
        "method": track.method.name,
        "server": list(track.server),
        "clients": {str(device): list(state) for device, state in track.clients.items()},
        "pilot": track.pilot is not None,
        "pilots": len(track.pilots),
        "teacher": start is not None and start.teacher is not None,
        "teacher_labels": list(start.teacher_labels) if start else [],
        "kept": start is not None and start.kept is not None,
        "entries": _entries(track),
        "weights": {str(z): w for z, w in drawn_on.weights.items()} if drawn_on else {},
        "distances": {str(z): d for z, d in drawn_on.distances.items()} if drawn_on else {},
        "costs": counters.written(track.costs),
        "abandoned": track.abandoned,
    }


def _unpack(
    track: Track, facts: dict[str, Any], tensors: dict[str, Tensor], prefix: str, world: World
) -> None:
    device = world.config.device
    sizes = world.model.layout.total, world.model.buffer_layout.total

    def model(name: str) -> ModelState:
        state = ModelState(tensors[f"{prefix}{name}theta"], tensors[f"{prefix}{name}buffers"])
        if (tuple(state.theta.shape), tuple(state.buffers.shape)) != ((sizes[0],), (sizes[1],)):
            raise ValueError(f"{prefix}{name}theta")
        return state

    def state(where: str, names: Sequence[str]) -> State:
        return {name: tensors[f"{prefix}{where}{name}"].to(device) for name in names}

    current = model("")
    track.model = ModelState(current.theta.to(device), current.buffers.to(device))
    track.server = state("server/", facts["server"])
    track.clients = {
        int(device_number): state(f"clients/{device_number}/", names)
        for device_number, names in facts["clients"].items()
    }
    track.pilot = model("pilot/") if facts["pilot"] else None
    track.pilots = [model(f"pilots/{n}/") for n in range(facts["pilots"])]
    track.start = StartingPoint(
        current,
        {int(z): weight for z, weight in facts["weights"].items()},
        {int(z): distance for z, distance in facts["distances"].items()},
        tensors.get(f"{prefix}signature"),
        model("teacher/") if facts["teacher"] else None,
        tuple(facts["teacher_labels"]),
        kept=model("kept/") if facts.get("kept") else None,
    )
    track.costs = counters.read(facts.get("costs", {}))
    track.abandoned = facts.get("abandoned", 0)
