"""The experiments that are tried on nodes: an MLP, a CNN and texts, each with three algorithms."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import torch

from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.rng import torch_generator
from ebbflow.core.types import Dataset, Examples
from ebbflow.experiment import engine_of, prepared
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionFinished
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.tracks import new_tracks

ALGORITHMS = ["fedavg", "scaffold", "moon"]
CLASSES = 10
VOCABULARY = 10_000
USUAL: dict[str, Any] = {
    "algorithm": ALGORITHMS,
    "methods": ["previous"],
    "sessions": 2,
    "rounds": 2,
    "pilot.sessions": 1,
    "pilot.rounds": 1,
    "partition.devices": 24,
    "seeds": [7],
    "local.steps": 5,
}


class TrialCell(NamedTuple):
    """An experiment: its settings, and data that are made up where it matters not what they say."""

    name: str
    keys: dict[str, Any]
    data: Dataset | None = None

    def config(self, **more: Any) -> Config:
        """Return the resolved configuration, with more settings."""
        layers = Layers()
        for key, value in {**USUAL, **self.keys, **more}.items():
            layers.add_key(key, value, "benchmarks.cluster")
        return layers.config()


def pictures(
    name: str, samples: int, shape: Sequence[int] = (3, 32, 32), tests: int = 1000
) -> Dataset:
    """Return pictures of noise, with labels that have something to do with them."""
    draw = torch_generator(0, "cluster", name)
    y = torch.randint(0, CLASSES, (samples + tests,), generator=draw)
    x = torch.randn(samples + tests, *shape, generator=draw) + 0.2 * y.view(-1, 1, 1, 1)
    train, test = Examples(x[:samples], y[:samples]), Examples(x[samples:], y[samples:])
    return Dataset(name, train, test, CLASSES)


def texts(samples: int = 3000, vocabulary: int = VOCABULARY, length: int = 40) -> Dataset:
    """Return texts whose words depend on their labels, frequent words first."""
    draw = torch_generator(0, "cluster", "texts")
    y = torch.randint(0, 4, (samples,), generator=draw)
    rank = torch.rand(samples, length, generator=draw).pow(3) * (vocabulary - 5)
    x = 1 + (rank.long() + y.view(-1, 1)) % (vocabulary - 1)
    cut = samples * 5 // 6
    return Dataset("texts", Examples(x[:cut], y[:cut]), Examples(x[cut:], y[cut:]), 4)


def cells() -> list[TrialCell]:
    """Return the three experiments of the trials."""
    often = {"local.rule": "each_step", "local.steps": 15}
    # Large enough that a round takes a while: a node is killed while it is at a task.
    mlp = {"model.kind": "mlp", "dataset": "rows", "parameters.mlp.hidden": 1000, **often}
    cnn = {
        "model.kind": "cnn",
        "dataset": "pictures",
        "local.steps": 3,
        "local.batch": 8,
        "lr.initial": 0.01,
        "partition.devices": 12,
    }
    text = {
        "model.kind": "embedding",
        "dataset": "texts",
        "parameters.embedding.vocabulary": VOCABULARY,
        "parameters.embedding.width": 64,
        "partition.devices": 40,
        "lr.initial": 0.1,
        **often,
    }
    return [
        TrialCell("mlp", mlp, pictures("rows", 6000, (1, 28, 28))),
        TrialCell("cnn", cnn, pictures("pictures", 1200, (3, 16, 16), tests=200)),
        TrialCell("texts", text, texts()),
    ]


class TrialOutcome(NamedTuple):
    """What a run came to: digests of the final models and device states, and the costs."""

    models: list[str]
    costs: list[Any]
    seconds: float
    recomputed: int = 0


class Kept(Callback):
    """Keeps digests and costs at the ends of sessions; ``after_round`` is called after rounds."""

    def __init__(self, after_round: Any = None) -> None:
        self.models: list[str] = []
        self.costs: list[Any] = []
        self.after_round = after_round

    def round_finished(self, event: RoundFinished) -> None:
        if self.after_round is not None:
            self.after_round()

    def session_finished(self, event: SessionFinished) -> None:
        self.costs += event.recorded
        for track in event.tracks:
            digest = hashlib.sha256()
            for tensor in (*track.model, *_states(track.clients)):
                digest.update(tensor.contiguous().numpy().tobytes())
            self.models.append(digest.hexdigest())


def _states(clients: dict[int, dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    return [v for _, state in sorted(clients.items()) for _, v in sorted(state.items())]


def outcome(cell: TrialCell, config: Config, after_round: Any = None) -> TrialOutcome:
    """Run an experiment by the engine that its configuration names."""
    data = prepared(config, cell.data)
    world = build_world(config, data, config.seeds[0])
    kept = Kept(after_round)
    with closing(engine_of(world)) as engine:
        began = time.perf_counter()
        simulate(world, new_tracks(world, methods_of(world)), engine, [kept])
        seconds = time.perf_counter() - began
        recomputed = getattr(engine, "recomputed", 0)
    return TrialOutcome(kept.models, kept.costs, seconds, recomputed)
