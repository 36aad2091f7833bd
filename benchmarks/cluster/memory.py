"""Memory of a round of many devices with the CNN: that of the driver and of its workers."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import Any

import psutil

from benchmarks.cluster.cells import pictures
from benchmarks.cluster.machines import nodes
from benchmarks.cluster.worlds import config_of
from benchmarks.memory import status
from benchmarks.sampling import PeriodicSampler
from benchmarks.trials import Say
from ebbflow.cluster.engine import ray_engine
from ebbflow.core.algorithm import Broadcast
from ebbflow.core.local import Lane
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.world import draw_round

DEVICES = (1_000, 10_000)
SIDE = 8
STORE = 512 * 2**20


class _Peaks(PeriodicSampler):
    """The most memory that the driver and any one worker have had."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.driver = self.worker = self.store = 0

    def _sample(self) -> None:
        """Look at the processes once."""
        self.driver = max(self.driver, status(os.getpid(), "RssAnon"))
        self.store = max(self.store, status(os.getpid(), "RssShmem"))
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name().startswith("ray::WorkerHost"):
                    self.worker = max(self.worker, status(process.pid, "RssAnon"))
            except psutil.NoSuchProcess:
                continue


def measured(devices: int, say: Say) -> dict[str, Any]:
    """Return the peaks of one round, after a round of a few devices."""
    data = pictures("noise", 2_000, (3, SIDE, SIDE), tests=64)
    with nodes(2, store=STORE) as two:
        keys = {
            "dataset": "noise",
            "model.kind": "cnn",
            "parameters.cnn.dropout": 0.0,
            "algorithm": ["fedavg"],
            "methods": ["previous"],
            "lr.initial": 0.01,
            "partition.kind": "pool",
            "partition.devices": devices,
            "partition.samples": 2,
            "local.steps": 1,
            "local.batch": 2,
            "sessions": 2,
            "pilot.sessions": 1,
            "seeds": [0],
            "engine.kind": "ray",
            "engine.address": two.address,
        }
        world = build_world(config_of(keys), data, 0)
        (method,) = methods_of(world)
        shared = Broadcast(world.initial.theta, world.initial.buffers, {})
        lane = Lane(method.algorithm, shared, 0.01, {})
        cohort = draw_round(world, world.sessions[0], 1)
        with closing(ray_engine(world)) as engine:
            engine([lane], cohort.only(range(40)))
            with _Peaks() as peaks:
                began = time.perf_counter()
                engine([lane], cohort)
                seconds = time.perf_counter() - began
    row = {
        "devices": devices,
        "parameters": world.model.layout.total,
        "driver": peaks.driver,
        "worker": peaks.worker,
        "sums held by the driver": peaks.store,
        "seconds": round(seconds, 1),
    }
    say(str(row))
    return row


def memory(say: Say) -> list[dict[str, Any]]:
    """Return the peaks by the number of devices."""
    return [measured(devices, say) for devices in DEVICES]
