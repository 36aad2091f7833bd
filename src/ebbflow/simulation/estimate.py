"""What a run will take, before it starts: memory, and room on the disk.

Sizes follow from the configuration: the files of a run folder have known contents, and a model is a
vector. They are estimates from above where they depend on chance. `ebbflow.simulation.ceilings`
compares them with what there is, and `ebbflow.simulation.timing` measures the time.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import sketch
from ebbflow.core.algorithm import Broadcast, Population
from ebbflow.core.evaluate import parts
from ebbflow.core.inputs import prepared
from ebbflow.core.mixtures import rows_at_once
from ebbflow.core.stacks import LONG, STACKED_BYTES
from ebbflow.core.tensor_files import stored_size
from ebbflow.core.types import Layout, Session, State
from ebbflow.data.schedule import drawn_count
from ebbflow.engines.leaves import LEAF
from ebbflow.engines.vectorised import BLOCK_BYTES, WINDOW_BYTES
from ebbflow.runs import records
from ebbflow.runs.records import Round
from ebbflow.simulation import text_estimate
from ebbflow.simulation.methods import Method
from ebbflow.simulation.text_estimate import FLOAT, SURVEY_PASSES, some_sessions, without_table
from ebbflow.simulation.world import World
from ebbflow.starts import STARTS

RECENT_BYTES = 64 * 2**20
"""What is remembered of histories on disk at most, besides what starts stack of a long past."""
LIBRARIES = 32 * 2**20
"""What torch and its threads set aside when they first train."""
MAPPED_VECTORS, LONE_VECTORS = 28, 10
"""Vectors of the model's size for each device in training, measured: model, gradient, momentum,
what is sent, temporary results, and what the allocator keeps of them; mapped together, or alone."""
MIXED_VECTORS = 5
"""Vectors that a mixture of models takes besides them: a sum and a product in double precision, and
the result."""
READ_VECTORS = 24
"""Vectors that a start reads from the past, mixes and sends at once, measured."""

Parts = dict[str, int]
"""Bytes by what they are for."""


class Estimate(NamedTuple):
    """What a run will take.

    Attributes:
        sessions: The sessions of one seed.
        devices: The devices in the largest session.
        rounds: The rounds of all sessions of one seed.
        runs: Methods times algorithms times seeds.
        parameters: The model's parameters.
        memory: Bytes that the run needs beyond the loaded data set.
        disk: Bytes of the finished run folder.
        second_checkpoint: Bytes of the other checkpoint that a running run keeps, and of a third
            while it is written.
        resident: Bytes of memory that the process has by now, with its libraries and the data.
        each_core: Bytes of the memory that each processor core adds.
    """

    sessions: int
    devices: int
    rounds: int
    runs: int
    parameters: int
    memory: Parts
    disk: Parts
    second_checkpoint: int
    resident: int = 0
    each_core: int = 0

    @property
    def most_disk(self) -> int:
        """The bytes of the run folder at any time."""
        return sum(self.disk.values()) + self.second_checkpoint

    @property
    def most_memory(self) -> int:
        """The bytes of memory of the whole process at any time."""
        return self.resident + sum(self.memory.values())


def estimate(world: World, methods: Sequence[Method], in_folder: bool = True) -> Estimate:
    """Estimate what the run of a configuration takes, from the first seed's world.

    Args:
        world: What all methods share.
        methods: The compared methods.
        in_folder: Whether the run is written to a folder; otherwise its history is in memory.
    """
    config = world.config
    layout = world.model.layout
    sessions = list(map(_Crowd.of, world.sessions))
    trained = _TrainedDevices(world, sessions)
    entries = [_kept_entries(world, method) for method in methods]
    history = _history(world, methods, entries)
    checkpoint = _checkpoint(world, methods, entries, trained)
    disk = {
        "history": len(config.seeds) * history,
        "checkpoint": checkpoint,
        "records": _records(world, methods, sessions),
    }
    return Estimate(
        len(sessions),
        max(crowd.devices for crowd in sessions),
        sum(crowd.rounds for crowd in sessions),
        len(methods) * len(config.seeds),
        layout.total,
        _memory(world, methods, trained, history, checkpoint, in_folder),
        disk if in_folder else {},
        2 * checkpoint if in_folder else 0,
        _resident(),
        _each_core(world, methods, trained.most),
    )


# --- devices -------------------------------------------------------------------------------------


class _Crowd(NamedTuple):
    """How many devices a session has, and how many rounds."""

    devices: int
    rounds: int

    @classmethod
    def of(cls, session: Session) -> _Crowd:
        return cls(len(session.devices), session.rounds)


def _drawn(world: World, present: int) -> int:
    """Return how many of the devices present train in a round."""
    return drawn_count(present, world.config.participation.share)


class _TrainedDevices:
    """How many devices have a state at the same time, on average over the draws."""

    def __init__(self, world: World, crowds: Sequence[_Crowd]) -> None:
        self.most = max(_drawn(world, crowd.devices) for crowd in crowds)
        if world.config.boundary.state == "keep":
            self.remembered = self._ever(world)
        else:
            self.remembered = max(
                crowd.devices * (1 - self._missed(world, crowd) ** crowd.rounds) for crowd in crowds
            )

    @staticmethod
    def _missed(world: World, crowd: _Crowd) -> float:
        """Return the chance that a device is not drawn for a round."""
        return 1 - _drawn(world, crowd.devices) / crowd.devices

    def _ever(self, world: World) -> float:
        """Return how many devices are ever drawn."""
        last = max(max(session.devices) for session in world.sessions)
        missed = np.ones(last + 1)
        for session in world.sessions:
            crowd = _Crowd.of(session)
            missed[list(session.devices)] *= self._missed(world, crowd) ** crowd.rounds
        return float((1 - missed).sum())


# --- the run folder ------------------------------------------------------------------------------


def _tensors(layout: Layout, prefix: str) -> dict[str, Tensor]:
    """Return the named tensors of a vector, without contents."""
    return {
        f"{prefix}/{name}": torch.empty(shape, device="meta")
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }


def _model(world: World, prefix: str = "") -> dict[str, Tensor]:
    theta = _tensors(world.model.layout, f"{prefix}theta")
    return theta | _tensors(world.model.buffer_layout, f"{prefix}buffers")


def _kept_entries(world: World, method: Method) -> int:
    """Return how many past sessions a method has kept in the end."""
    after_pilot = max(0, len(world.sessions) - world.rules.pilot_sessions)
    history = world.config.history
    return after_pilot if history.keep == "all" else min(after_pilot, history.size)


def _history(world: World, methods: Sequence[Method], entries: Sequence[int]) -> int:
    """Return the size of one seed's histories."""
    total = 0
    members = math.ceil(
        np.mean([len(session.devices) for session in some_sessions(world.sessions)])
    )
    for method, count in zip(methods, entries, strict=True):
        start = STARTS[method.name]
        tensors = _model(world)
        if "starts" in start.keeps:
            tensors |= _model(world, "start/")
            tensors["members"] = torch.empty(members, dtype=torch.int64, device="meta")
        if start.probes:
            tensors |= _tensors(world.model.layout, "signature")
            if method.start.sketch_distance is not None:
                plan = sketch.plan(world.model.layout, method.start.sketch_distance)
                shape = len(plan.parts)
                tensors[f"sketch/{plan.name}/values"] = torch.empty(plan.width, device="meta")
                tensors[f"sketch/{plan.name}/norms"] = torch.empty(
                    shape, dtype=torch.float64, device="meta"
                )
        listed = {"session": 1, "devices": members, "sha256": "0" * 64, "bytes": 10**6}
        manifest = len(json.dumps({records.session_file(1): listed}))
        total += count * (stored_size(tensors) + manifest) + stored_size(_model(world)) + 300
    return total


def _checkpoint(
    world: World, methods: Sequence[Method], entries: Sequence[int], trained: _TrainedDevices
) -> int:
    """Return the size of a checkpoint late in the run."""
    whole = torch.empty(world.model.layout.total, device="meta")
    rest = torch.empty(world.model.buffer_layout.total, device="meta")
    tensors: dict[str, Tensor] = {}
    text = len(json.dumps(world.config.model_dump(mode="json"))) + 500
    for place, (method, kept) in enumerate(zip(methods, entries, strict=True)):
        start = STARTS[method.name]
        server, client = _states(world, method)[0], _client_state(world, method)
        named = {f"server/{name}": value for name, value in server.items()}
        for device in range(round(trained.remembered) if client else 0):
            named |= {f"clients/{device}/{name}": value for name, value in client.items()}
        models = ["", "pilot/"]
        models += ["kept/"] if "starts" in start.keeps else []
        models += ["teacher/"] if "teacher" in start.keeps else []
        for model in models:
            named |= {f"{model}theta": whole, f"{model}buffers": rest}
        if start.probes:
            named["signature"] = whole
        tensors |= {f"{place}/{name}": value for name, value in named.items()}
        listed = len(json.dumps({str(10**5): list(client)})) * round(trained.remembered)
        text += 700 + listed + kept * (5 + 28 * _numbers_a_session(method))
    return stored_size(tensors) + text


def _states(world: World, method: Method) -> tuple[State, State]:
    """Return what a server and a device remember under a method's algorithm, without contents."""
    theta = torch.empty(world.model.layout.total, device="meta")
    buffers = torch.empty(world.model.buffer_layout.total, device="meta")
    algorithm = method.algorithm
    try:
        server = algorithm.init_server(theta, Population(1, 1))
        return server, algorithm.init_client(Broadcast(theta, buffers, {}))
    except Exception:  # a hook that needs numbers, or fails: the run says where
        return {}, {}


def _records(world: World, methods: Sequence[Method], crowds: Sequence[_Crowd]) -> int:
    """Return the size of metrics, events, the summary and what describes the run."""
    config, seeds = world.config, len(world.config.seeds)
    rounds = sum(crowd.rounds for crowd in crowds)
    total = 0
    for method in methods:
        line = Round(
            algorithm=method.group,
            method=method.name,
            seed=world.seed,
            session=10,
            round=10,
            accuracy=200 / 3,
            loss=4 / 3,
            lr=0.008659616000000001,
            devices=crowds[0].devices,
            participants=_drawn(world, crowds[0].devices),
        )
        total += seeds * rounds * len(records.line_of(line.line()))
        events = [_events(world, method, session) for session in some_sessions(world.sessions)]
        total += math.ceil(seeds * len(crowds) * np.mean(events))
        total += seeds * len(crowds) * 260 * len(config.window)  # the summary's rows
    described = len(json.dumps(config.model_dump(mode="json"), indent=1))
    return total + seeds * len(crowds) * 90 + 2 * described + 700


def _events(world: World, method: Method, session: Session) -> int:
    """Return the size of what is written about a session's start and its costs."""
    past = max(0, session.index - 1 - world.rules.pilot_sessions)
    if world.config.history.keep != "all":
        past = min(past, world.config.history.size)
    numbers = past * _numbers_a_session(method)
    start: dict[str, Any] = {
        "event": "start",
        "algorithm": method.group,
        "method": method.name,
        "seed": world.seed,
        "session": session.index,
        "devices": list(session.devices),
        "samples": [session.samples(device) for device in session.devices],
        "smallest_batch": 1,
        "labels": list(session.labels),
        "rounds": session.rounds,
        "accuracy": 200 / 3,
        "loss": 4 / 3,
        "weights": {},
        "distances": {},
        "probe_rounds": 0,
        "path": "mapped blocks",
        "path_reason": "",
    }
    if "starts" in STARTS[method.name].keeps:
        start["mixture"] = {f"final {number}": 0.1234567890123456 for number in range(10, 16)}
        start["asked"] = list(session.devices[:20])
    costs = 400 + 130 * (STARTS[method.name].probes or "starts" in STARTS[method.name].keeps)
    return len(records.line_of(start)) + 28 * numbers + costs


def _numbers_a_session(method: Method) -> int:
    """Return how many numbers about each past session a start records."""
    keeps = STARTS[method.name].keeps
    if "signatures" in keeps:
        return 2  # a weight and a distance
    return int("models" in keeps and "starts" not in keeps)


# --- memory --------------------------------------------------------------------------------------


def _memory(
    world: World,
    methods: Sequence[Method],
    trained: _TrainedDevices,
    history: int,
    checkpoint: int,
    in_folder: bool,
) -> Parts:
    """Return the bytes that the run needs beyond those of the loaded data."""
    model, config = world.model, world.config
    vector = FLOAT * (model.layout.total + model.buffer_layout.total)
    states = [_states(world, method) for method in methods]
    servers = [sum(map(_bytes, server.values())) for server, _ in states]
    clients = [sum(map(_bytes, _client_state(world, method).values())) for method in methods]
    limit = config.engine.state_memory * 2**20
    test = world.dataset.test
    shown = 2 * test.x.numel() * test.x.element_size()  # the labels of two sessions
    on_cpu = config.device == "cpu"
    training = _training(world, methods, trained.most, _workers(world)) if on_cpu else 0
    return {
        "libraries": LIBRARIES,
        # The model, its copy for the report, where it started, its signature, the pilot, and one
        # more while a session ends.
        "methods": sum((6 + config.pilot.sessions) * vector + 2 * server for server in servers),
        # Those before a round and those after it.
        "device states": sum(2 * min(limit, round(size * trained.remembered)) for size in clients),
        "history": _read_vectors(world, methods) * vector
        + (_remembered(vector, history) if in_folder else history)
        + (min(STACKED_BYTES, 2 * history) if len(world.sessions) > LONG else 0),
        "checkpoint": _checkpoint_read(world, checkpoint, training) if in_folder else 0,
        "training": training,
        "survey": _survey(world, methods) if on_cpu else 0,
        "evaluation": shown + _evaluation(world, _workers(world)) if on_cpu else 0,
    }


def _resident() -> int:
    """Return the bytes of memory that this process has, if the system says so."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _workers(world: World) -> int:
    return world.config.engine.workers or len(os.sched_getaffinity(0))


def _each_core(world: World, methods: Sequence[Method], devices: int) -> int:
    """Return the bytes that each core adds, if the engine has a worker on each."""
    if world.config.engine.workers or world.config.device != "cpu":
        return 0
    one, two = (
        _training(world, methods, devices, workers) + _evaluation(world, workers)
        for workers in (1, 2)
    )
    return two - one


def _training(world: World, methods: Sequence[Method], devices: int, workers: int) -> int:
    """Return the bytes that the engine's workers use while a round is trained."""
    config, model, lanes = world.config, world.model, len(methods)
    bag = model.hints.bag_of_words
    if bag is not None and all(without_table(world, method) for method in methods):
        return text_estimate.training(world, bag, lanes, devices, workers)
    steps = text_estimate.most_steps(world)
    x = world.dataset.train.x
    sample = x[0].numel() * max(FLOAT, x.element_size())
    batch, theta = config.local.batch, FLOAT * model.layout.total
    together, waiting, vectors = 1, min(devices, 16), LONE_VECTORS
    if config.engine.kind == "sequential" and bag is not None:
        workers, waiting = 1, min(devices, 2)  # one device at a time, whose upload is added at once
    elif config.engine.kind != "sequential":
        waiting = min(devices, max(16, WINDOW_BYTES // (theta * lanes)))
        if model.hints.linear and config.engine.fused:
            together, vectors, waiting = LEAF, 4, LEAF
        elif model.hints.dense is not None:
            vectors = 3  # a local model, its velocity, and what a mini-batch leaves behind
        elif model.hints.maps(on_gpu=False):
            fitting = max(1, BLOCK_BYTES // (batch * sample + 4 * theta))
            together, vectors = min(devices, config.engine.block or fitting), MAPPED_VECTORS
    device = batch * (steps * sample + _activations(world)) + vectors * theta
    return workers * together * device + lanes * waiting * theta


def _client_state(world: World, method: Method) -> State:
    """Return what a device remembers under a method's algorithm, without contents."""
    _, client = _states(world, method)
    bag = world.model.hints.bag_of_words
    if bag is None or not client or not without_table(world, method):
        return client
    return text_estimate.packed_state(world, bag, client)


def _read_vectors(world: World, methods: Sequence[Method]) -> int:
    """Return how many vectors the start that needs most reads from the past, mixes and sends.

    Nothing of a text model's size is rounded, stacked or differentiated: there are the models that
    are read, and their mixture.
    """
    if world.model.hints.bag_of_words is None:
        return READ_VECTORS
    past, most = max(0, len(world.sessions) - world.rules.pilot_sessions - 1), 0
    for method in methods:
        keeps = STARTS[method.name].keeps
        if "starts" in keeps:
            most = max(most, min(_models_asked_about(world, method), 2 * past) + MIXED_VECTORS)
        elif keeps - {"pilot"}:
            most = max(most, past + MIXED_VECTORS)
    return min(READ_VECTORS, most)


def _remembered(vector: int, history: int) -> int:
    """Return the bytes of vectors that are remembered of a history on disk: no large ones are."""
    return 0 if vector > RECENT_BYTES // 4 else min(RECENT_BYTES, history)


def _checkpoint_read(world: World, checkpoint: int, training: int) -> int:
    """Return the bytes that the last checkpoint adds, which is read when the run has finished.

    Of a text model it has the room that the rounds' sums have left.
    """
    free = 0 if world.model.hints.bag_of_words is None else training
    return max(0, 2 * checkpoint - free)


def _models_asked_about(world: World, method: Method) -> int:
    """Return the most models that a survey of a method's start asks about."""
    given = world.config.parameters.get(method.name, {}).get("models")
    return int(given or STARTS[method.name].defaults.get("models", 2))


def _survey(world: World, methods: Sequence[Method]) -> int:
    """Return the bytes that derivatives in a mixture's weights take, which devices are asked for.

    Logits that are linear in the parameters need none.
    """
    model = world.model
    asking = [method for method in methods if "starts" in STARTS[method.name].keeps]
    if model.hints.linear or not asking:
        return 0
    most = max(_models_asked_about(world, method) for method in asking)
    past = max(0, len(world.sessions) - world.rules.pilot_sessions - 1)
    if model.hints.bag_of_words is not None:
        bag = model.hints.bag_of_words
        return text_estimate.survey(world, bag, asking, min(most, 2 + 2 * past))
    rows = rows_at_once(world.dataset.train.x[:1])
    return rows * _activations(world) * SURVEY_PASSES * min(most, 2 * past)


def _evaluation(world: World, workers: int) -> int:
    test = world.dataset.test
    rows = max((len(part) for part in parts(test)), default=0)
    sample = FLOAT * test.x[0].numel()
    return workers * rows * (sample + _activations(world) // 2)


def _activations(world: World) -> int:
    """Return the bytes that one sample leaves behind on its way forward, for the way back."""
    train = world.dataset.train
    x = prepared(train.x[:2], train.pixels)
    theta = world.initial.theta.detach().clone().requires_grad_()
    noise = None if world.model.noise is None else torch.zeros(len(x), *world.model.noise).to(x)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    try:
        with (
            torch.random.fork_rng(devices=[]),  # a model's layers may draw numbers
            torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        ):
            world.model.forward(theta, world.initial.buffers, x, noise, True)
    except Exception:  # the run names the device and the step where a model fails
        return 0
    kept.pop(theta.untyped_storage().data_ptr(), None)
    kept.pop(x.untyped_storage().data_ptr(), None)
    return sum(kept.values()) // len(x)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
