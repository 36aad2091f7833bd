"""Small rounds on texts to put engines through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.local import Cohort, Engine, Recipe
from ebbflow.core.types import Examples, Indices, Model, ModelState
from ebbflow.data.batches import StepRule, local_batches
from ebbflow.engines import Sequential, WholeVectors
from ebbflow.engines.texts.packed_states import TextFeatures, TextSpan, entries, unpacked
from ebbflow.models import embedding
from ebbflow.starts.continuous import distilled
from tests.engines.rounds import Federation

WORDS, WIDTH, CLASSES, LENGTH, TEXTS = 60, 7, 4, 12, 200
MODEL = embedding((LENGTH,), CLASSES, vocabulary=WORDS, width=WIDTH)
assert MODEL.hints.bag_of_words is not None
BAG_OF_WORDS = MODEL.hints.bag_of_words
DEVICES = range(10, 17)
EXACT = 1e-12


def start(seed: int = 1, model: Model = MODEL) -> ModelState:
    return ModelState(*(t.double() for t in model.initial(torch.Generator().manual_seed(seed))))


def cast_to(model: ModelState, dtype: torch.dtype) -> ModelState:
    return ModelState(model.theta.to(dtype), model.buffers.to(dtype))


def texts(words: int = WORDS, count: int = TEXTS, seed: int = 4) -> Examples:
    """Return texts with padding anywhere, repeated words, one word only, and no word at all."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(1, words, (count, LENGTH), generator=draw)
    x[torch.rand(x.shape, generator=draw) < 0.3] = 0
    x[::7] = 0
    x[1::9] = 3
    return Examples(x, torch.randint(CLASSES, (count,), generator=draw))


DATA = texts()
SHARDS: dict[int, Indices] = {
    device: np.random.default_rng(device).permutation(TEXTS)[: 9 + 5 * (device - 10)]
    for device in DEVICES
}


def rounds(rule: StepRule | str, count: int = 4, batch: int = 8) -> list[Cohort]:
    """Return rounds with absentees, unequal steps and short last batches.

    "repeats" draws with replacement: a text may be twice in one mini-batch.
    """
    cohorts = []
    for t in range(1, count + 1):
        here = [device for device in DEVICES if (device + t) % 3]
        batches = []
        for device in here:
            draw, shard = np.random.default_rng([t, device]), SHARDS[device]
            steps = 1 + (device * t) % 4
            if rule == "repeats":
                batches.append(
                    tuple(shard[draw.integers(len(shard), size=batch)] for _ in range(steps))
                )
            else:
                kind: StepRule = "each_step" if rule == "each_step" else "one_pass"
                batches.append(local_batches(draw, shard, steps, batch, kind))
        shards = [SHARDS[device] for device in here]
        sizes = tuple(map(len, shards))
        cohorts.append(Cohort(1, t, tuple(here), batches, sizes, (7, "test"), shards))
    return cohorts


def taught(base: str, target: str = "teacher") -> Algorithm:
    kind = ALGORITHMS[base]()
    return distilled(kind, start(9), (0, 1), 0.5, 2.0, "mixed" if target == "mixed" else "teacher")


def by_features(state: Tensor, rows: Tensor) -> Tensor:
    return MODEL.forward(state, torch.zeros(0), DATA.x[rows], None, False)[0].features


def assert_same(ours: Federation, theirs: Federation, within: float = EXACT) -> None:
    """Compare the models, the servers' states, and what every device remembers."""
    torch.testing.assert_close(ours.model.theta, theirs.model.theta, rtol=0, atol=within)
    assert ours.server.keys() == theirs.server.keys()
    for name, value in theirs.server.items():
        torch.testing.assert_close(ours.server[name], value, rtol=within, atol=within, msg=name)
    assert ours.clients.keys() == theirs.clients.keys()
    for device, state in ours.clients.items():
        memory = unpacked(state)
        assert memory.keys() == theirs.clients[device].keys()
        for name, kept in memory.items():
            expected = theirs.clients[device][name]
            if isinstance(kept, TextFeatures):
                assert set(kept.rows.tolist()) == set(SHARDS[device].tolist())
                tail = expected[WORDS * WIDTH :]
                torch.testing.assert_close(kept.tail, tail, rtol=0, atol=within)
                value, expected = kept.features, by_features(expected, kept.rows)
            elif isinstance(kept, TextSpan):
                assert set(kept.rows.tolist()) <= set(SHARDS[device].tolist())
                value = entries(kept, BAG_OF_WORDS, DATA)
            else:
                value = kept
            torch.testing.assert_close(value, expected, rtol=0, atol=within, msg=name)


def reference(recipe: Recipe) -> Engine:
    """Return the reference engine, which reads packed states as well."""
    return WholeVectors(Sequential(MODEL, DATA, recipe), BAG_OF_WORDS, DATA)


def run(algorithm: Algorithm, train: Engine, cohorts: Sequence[Cohort]) -> Federation:
    federation = Federation(train, algorithm, start())
    for who in cohorts:
        federation.round(who, 0.3)
    return federation
