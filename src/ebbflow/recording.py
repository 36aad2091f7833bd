"""Records a simulation in a run folder, and restores it from there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core import counters, sketch
from ebbflow.core.errors import EbbflowError
from ebbflow.core.start import StartingPoint
from ebbflow.core.types import ModelState, Session, State
from ebbflow.runs import records
from ebbflow.runs.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    read_checkpoint,
    read_tensors,
    write_checkpoint,
)
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.history import Store
from ebbflow.runs.records import Round
from ebbflow.simulation.callbacks import Callback
from ebbflow.simulation.events import cost_events
from ebbflow.simulation.methods import Method, set_parameters
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


class Recorder(Callback):
    """The callback that writes a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._saved_at = time.monotonic()
        self._session_began = time.monotonic()

    def session_started(
        self, world: World, session: Session, events: Sequence[dict[str, Any]]
    ) -> None:
        """Record where each method starts, and which past sessions it drew on."""
        self._session_began = time.monotonic()
        self.folder.append(records.EVENTS, events)

    def round_finished(
        self, world: World, session: Session, tracks: Sequence[Track], rounds: Sequence[Round]
    ) -> None:
        """Record a round, and save a checkpoint if one is due."""
        self.folder.append(records.METRICS, [r._asdict() for r in rounds])
        due = time.monotonic() - self._saved_at >= world.config.checkpoint.seconds
        if due and rounds[0].round < session.rounds:
            self._save_checkpoint(world, session, rounds[0].round, tracks)

    def session_finished(self, world: World, session: Session, tracks: Sequence[Track]) -> None:
        """Save the session's models, then a checkpoint, then delete entries no longer kept."""
        seconds = time.monotonic() - self._session_began
        event = {"event": "finished", "seed": world.seed, "session": session.index}
        costs = cost_events(world, session, tracks)
        self.folder.append(records.EVENTS, [*costs, {**event, "seconds": round(seconds, 3)}])
        for track in tracks:
            store = store_of(self.folder, world, track.method)
            if session.index == world.rules.pilot_sessions and track.pilot is not None:
                store.write_pilot(track.pilot)
            weights = track.start.weights if track.start else {}
            drawn = {str(z): weight for z, weight in weights.items() if weight > 0}
            # From now on the session is read from its file, so that a long past fits into memory.
            track.past = [
                store.write(past, devices=len(session.devices), drew_on=drawn)
                if past.number == session.index
                else past
                for past in track.past
            ]
        self._save_checkpoint(world, session, 0, tracks)
        for track in tracks:
            store = store_of(self.folder, world, track.method)
            store.keep([past.number for past in track.past])

    def _save_checkpoint(
        self, world: World, session: Session, t: int, tracks: Sequence[Track]
    ) -> None:
        place = world.seed, session.index, t
        config = world.config.model_dump(mode="json")
        facts = [_facts(track) for track in tracks]
        write_checkpoint(self.folder, place, config, facts, _packed(tracks))
        self._saved_at = time.monotonic()


def store_of(folder: RunFolder, world: World, method: Method) -> Store:
    """Return the store of a method's history."""
    layout, distance = world.model.layout, method.start.sketch_distance
    plan = None if distance is None else sketch.plan(layout, distance)
    where = folder.history(method.group, method.name, world.seed)
    return Store(where, layout, world.model.buffer_layout, plan)


# --- resuming from a checkpoint ------------------------------------------------------------------


def rewind(folder: RunFolder, config: Config) -> Checkpoint | None:
    """Truncate the line files to the last checkpoint and return it, or None if there is none."""
    checkpoint = read_checkpoint(folder)
    if checkpoint is not None:
        _check_unchanged(checkpoint.config, config, folder)
    folder.cut_lines(checkpoint.lengths if checkpoint else {})
    return checkpoint


def restore(
    folder: RunFolder, checkpoint: Checkpoint, world: World, tracks: Sequence[Track]
) -> None:
    """Bring fresh tracks to where the checkpoint left them."""
    tensors = read_tensors(folder, checkpoint)
    session = world.sessions[checkpoint.session - 1]
    # Earlier versions did not record the teacher's labels: the previous session's were used.
    usual = {"teacher_labels": list(world.labels_before(session))}
    for i, (track, written) in enumerate(zip(tracks, checkpoint.tracks, strict=True)):
        facts = usual | written
        _unpack(track, facts, tensors, f"{i}/", world.config.device)
        store = store_of(folder, world, track.method)
        # Delete what a crash left behind: entries about to be deleted or rewritten.
        store.keep(facts["entries"])
        track.past = store.read_all(facts["entries"])
        track.devices = session.devices


def _check_unchanged(before: dict[str, Any], config: Config, folder: RunFolder) -> None:
    """Raise an error if settings have changed; how the work is done may change."""
    free = {"engine", "checkpoint", "device", "window"}
    earlier = read_written(before, str(folder.path / CHECKPOINT))
    then, now = _comparable(earlier), _comparable(config)
    for key in then.keys() | now.keys():
        if key not in free and then.get(key) != now.get(key):
            raise EbbflowError(
                f"{folder.path / records.CONFIG}: {key} is {now.get(key)} and was {then.get(key)} "
                "when the run was last saved: change it back, or start a new run"
            )


def _comparable(config: Config) -> dict[str, Any]:
    parameters = set_parameters(config)
    # The warm start's sketches do not change the weights by more than a mixture's rounding.
    warm_start = parameters.pop("warm_start", {})
    warm_start.pop("signature", None)
    if warm_start:
        parameters["warm_start"] = warm_start
    return {**config.model_dump(mode="json"), "parameters": parameters}


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
        "teacher_labels": list(start.teacher_labels) if start else [],
        "kept": start is not None and start.kept is not None,
        "entries": [past.number for past in track.past],
        "weights": {str(z): w for z, w in start.weights.items()} if start else {},
        "distances": {str(z): d for z, d in start.distances.items()} if start else {},
        "costs": counters.written(track.costs),
    }


def _unpack(
    track: Track, facts: dict[str, Any], tensors: dict[str, Tensor], prefix: str, device: str
) -> None:
    def model(name: str) -> ModelState:
        return ModelState(tensors[f"{prefix}{name}theta"], tensors[f"{prefix}{name}buffers"])

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
