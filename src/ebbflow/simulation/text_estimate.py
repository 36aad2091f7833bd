"""What a run on texts needs of memory, whose devices train without a copy of the word vectors.

`ebbflow.simulation.estimate` asks for it; `ebbflow.engines.texts` says how such models are trained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ebbflow.core.algorithm import Broadcast, Population
from ebbflow.core.local import Lane
from ebbflow.core.mixtures import rows_at_once
from ebbflow.core.types import BagOfWords, Session, State
from ebbflow.engines import SampleSpace, fast_engine
from ebbflow.simulation.methods import Method
from ebbflow.simulation.world import World, draw_round
from ebbflow.starts import STARTS

FLOAT = 4
LOOKED_AT = 20
"""Sessions that are looked at; the others are taken to be like them."""
TEXT_VECTORS = 4
"""Vectors of a text model's size that sums of uploads take in each lane, measured."""
TEXT_COEFFICIENTS = 8
"""Numbers for each of a device's texts and each feature while it is trained on coefficients."""
KEPT_BYTES, KEPT_UP_TO = 512 * 2**20, 2
"""Bytes of Gram matrices that the engine keeps at most, each of at most so many times the texts of
a round."""
SURVEY_PASSES = 3
"""Times its activations that a sample's derivative takes for every model of a survey, measured."""


def without_table(world: World, method: Method) -> bool:
    """Whether devices train a text model under a method without a copy of its table."""
    if world.model.hints.bag_of_words is None or world.config.engine.kind == "sequential":
        return False
    algorithm = method.algorithm
    engine = fast_engine(world.model, world.dataset.train, world.recipe, workers=1)
    try:
        small = torch.zeros(3)  # what the way depends on are the hooks, not how long vectors are
        theta, extras = algorithm.broadcast(small, algorithm.init_server(small, Population(1, 1)))
        lane = Lane(algorithm, Broadcast(theta, torch.zeros(0), extras), 1.0, {})
        cohort = draw_round(world, world.sessions[0], 1)
        return engine.route(lane, cohort).path != "whole vectors"
    except Exception:  # a hook fails: the run says where
        return False
    finally:
        engine.close()


def training(world: World, bag: BagOfWords, lanes: int, devices: int, workers: int) -> int:
    """Return the bytes of a round of a text model whose devices train without a copy of its table.

    Only the sums of what they send have its size. A device has numbers for each of its texts, and
    their Gram matrix, which is kept where it serves again.
    """
    held = _shard_sizes(world)
    texts = min(world.config.local.batch * most_steps(world), max(held))
    coefficients = FLOAT * texts * bag.width
    each = TEXT_COEFFICIENTS * coefficients + 2 * FLOAT * texts**2
    waiting = 2 * lanes * min(devices, max(SampleSpace.leaf, workers)) * coefficients
    kept = sum(FLOAT * count**2 for count in held if count <= KEPT_UP_TO * texts)
    sums = TEXT_VECTORS * lanes * FLOAT * world.model.layout.total
    words = 2 * FLOAT * world.dataset.train.x.numel()  # the words of all texts, and their weights
    return workers * each + waiting + min(KEPT_BYTES, kept) + sums + words


def packed_state(world: World, bag: BagOfWords, client: State) -> State:
    """Return what a device keeps of its state: vectors by coefficients or features of its texts."""
    texts, tail = math.ceil(np.mean(_shard_sizes(world))), sum(world.model.layout.sizes[1:])
    state: State = {}
    for name, value in client.items():
        if value.shape != (world.model.layout.total,):
            state[name] = value
            continue
        state[f"{name}/rows"] = torch.empty(texts, dtype=torch.int64, device="meta")
        state[f"{name}/coefficients"] = torch.empty(texts, bag.width, device="meta")
        state[f"{name}/tail"] = torch.empty(tail, device="meta")
    return state


def survey(world: World, bag: BagOfWords, asking: Sequence[Method], models: int) -> int:
    """Return the bytes that questions about mixtures of text models take.

    Each group of devices has the models' rows for the words of its own texts, in two halves. For a
    derivative the vectors of all words of all texts are made, of the mixture and of every model.
    """
    plans = [_asked(world, method) for method in asking]
    crowd = max(len(session.devices) for session in some_sessions(world.sessions))
    x, total = world.dataset.train.x, 0
    for devices, samples, groups in plans:
        present = min(devices, crowd)
        parts = min(groups, present)
        texts = -(-present // parts) * samples
        words = torch.unique(x[:texts]).numel()
        rows = min(texts, rows_at_once(x[:1]))
        held = (2 * parts + 3) * models * words
        passed = SURVEY_PASSES * (1 + models) * rows * x[0].numel()
        total = max(total, FLOAT * bag.width * (held + passed))
    return total


def _asked(world: World, method: Method) -> tuple[int, int, int]:
    """Return how many devices a method's start asks at most, samples of each half, and groups."""
    given = world.config.parameters.get(method.name, {})
    known = STARTS[method.name].defaults
    devices, samples, groups = (
        int(given.get(name) or known.get(name, usual))
        for name, usual in (("devices", 20), ("samples", 32), ("groups", 5))
    )
    return devices, samples, groups


def _shard_sizes(world: World) -> list[int]:
    """Return how many samples each device of some sessions has."""
    return [
        session.samples(device)
        for session in some_sessions(world.sessions)
        for device in session.devices
    ]


def most_steps(world: World) -> int:
    """Return the most local steps that a device takes in a round."""
    steps = world.config.local.steps
    return steps if isinstance(steps, int) else max(steps)


def some_sessions(sessions: Sequence[Session]) -> list[Session]:
    """Return some sessions, at equal steps from the first to the last."""
    places = np.linspace(0, len(sessions) - 1, min(LOOKED_AT, len(sessions)))
    return [sessions[place] for place in places.round().astype(int).tolist()]
