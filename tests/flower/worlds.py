"""The same devices twice: in the simulator with its reference engine, and as real nodes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

import ebbflow
from ebbflow.core.types import Examples
from ebbflow.core.vector import flatten, unflatten
from ebbflow.flower import AskingTerms, Local, Probe, Sessions, Training, after_rounds, client_app
from ebbflow.flower.crowd import key_of
from ebbflow.flower.local import Node, local_key
from ebbflow.flower.wire import tensors, vectors
from ebbflow.simulation.callbacks import SessionFinished
from ebbflow.simulation.world import World
from tests.flower.watched import WatchedGrid

SEED, ROUNDS = 7, 3
GROUPS = ((0, 1, 2), (2, 3, 4))
"""Who is there in odd and in even sessions; device 2 always is."""


def wards(samples: int = 500) -> tuple[Any, Any, list[str]]:
    """Return samples of five wards, the first two of which follow another rule than the others."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(samples, 8)).astype("float32")
    ward = np.sort(draw.integers(0, 5, samples))
    second = np.where(ward < 2, x[:, 1], -x[:, 1])
    y = (x[:, 0] + second > 0).astype(int) + (x[:, 2] > 0.5)
    return x, y, [str(each) for each in ward]


def trace(path: Path, sessions: int) -> Path:
    """Write who joins and leaves when, ten units of time apart."""
    lines, here = ["time,device,event"], set[int]()
    for s in range(sessions):
        wanted = set(GROUPS[s % 2])
        lines += [f"{10 * s},{d},leave" for d in sorted(here - wanted)]
        lines += [f"{10 * s},{d},join" for d in sorted(wanted - here)]
        here = wanted
    path.write_text("\n".join([*lines, f"{10 * sessions},2,leave", ""]))
    return path


@dataclass
class Simulated:
    """What a simulation came to: its world, and the final model of every session."""

    world: World
    finals: dict[int, Tensor]


def simulated(
    folder: Path, algorithm: str, start: str, sessions: int = 4, **settings: Any
) -> Simulated:
    """Simulate the devices, one after another."""
    finals: dict[int, Tensor] = {}
    worlds: list[World] = []

    class Follower(ebbflow.Callback):
        def session_finished(self, event: SessionFinished) -> None:
            (track,) = event.tracks
            finals[event.session.index] = track.model.theta.clone()
            worlds.append(event.world)

    ebbflow.compare(
        wards(),
        test_split=0.2,
        methods=[start],
        algorithm=algorithm,
        sessions=sessions,
        rounds=ROUNDS,
        pilot=1,
        seeds=[SEED],
        callbacks=[Follower()],
        settings={
            "engine.kind": "sequential",
            "schedule.kind": "trace",
            "schedule.file": str(trace(folder / "trace.csv", sessions)),
            "schedule.interval": 10,
            "model.kind": "softmax",
            "local.batch": 16,
            "local.steps": 4,
            "pilot.rounds": ROUNDS,
            **settings,
        },
    )
    return Simulated(worlds[0], finals)


@dataclass
class Federated:
    """The same devices as nodes in this process."""

    world: World
    folder: Path
    nodes: dict[int, Node]
    grid: WatchedGrid

    def sessions(self, algorithm: str, start: str, sessions: int = 4, **named: Any) -> Sessions:
        """Return the sessions to run."""
        return Sessions(
            training_of(self.world, algorithm),
            self.folder / "history",
            **{
                "trigger": after_rounds(ROUNDS),
                "start": start,
                "sessions": sessions,
                "seed": SEED,
                "keys": [key_of(local_key(node_of(d)), 0) for d in range(5)],
                "terms": AskingTerms(gather=self.gather),
                "tell": lambda sentence: None,
                **named,
            },
        )

    def gather(self, session: int, devices: frozenset[int]) -> bool:
        """Let nodes leave and come, and begin when the right ones are there."""
        wanted = set(GROUPS[(session - 1) % 2])
        for device in range(5):
            self.nodes[node_of(device)].online = device in wanted
        return devices == wanted

    @property
    def initial(self) -> ArrayRecord:
        """The initial model."""
        return vectors(unflatten(self.world.initial.theta, self.world.model.layout))

    def theta(self, arrays: ArrayRecord) -> Tensor:
        """Return a model as a vector."""
        return flatten(tensors(arrays), self.world.model.layout)


def node_of(device: int) -> int:
    """Return the id of a device's node; their order is the reverse."""
    return 100 - device


def federated(world: World, folder: Path) -> Federated:
    """Return the devices of a world as nodes."""
    shards = {d: rows for s in list(world.sessions)[:2] for d, rows in s.shards.items()}
    nodes = {}
    for device in range(5):
        rows, train = torch.from_numpy(shards[device]), world.dataset.train
        app = client_app(
            world.model, Examples(train.x[rows], train.y[rows]), folder=folder / f"node{device}"
        )
        nodes[node_of(device)] = Node(app, {})
    return Federated(world, folder, nodes, WatchedGrid(nodes))


def training_of(world: World, algorithm: str) -> Training:
    """Return how the simulator trains, as a federation is told."""
    config = world.config
    rate, local, probe = config.lr.algorithms[algorithm], config.local, config.probe
    return Training(
        algorithm,
        config.parameters.get(algorithm, {}),
        Local(
            rounds=ROUNDS,
            lr=rate.initial,
            floor=rate.floor,
            power=config.lr.power,
            steps=_steps(local.steps),
            batch=local.batch,
            rule=local.rule,
            momentum=local.momentum,
            radius=local.radius,
            share=config.participation.share,
        ),
        Probe(probe.rounds, probe.share, _steps(probe.steps), probe.batch, probe.lr),
        states=config.boundary.state,
    )


def _steps(steps: Any) -> Any:
    """Return a range of steps as a pair, and anything else as it is."""
    return tuple(steps) if isinstance(steps, list) else steps


def digest(theta: Tensor) -> str:
    """Return the SHA-256 digest of a vector's bytes."""
    return hashlib.sha256(theta.contiguous().numpy().tobytes()).hexdigest()
