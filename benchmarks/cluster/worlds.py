"""Worlds and engines for measurements: a workload's model and data, here and on nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from benchmarks.cluster.machines import Nodes
from benchmarks.workloads import Workload
from ebbflow.cluster.engine import RayEngine, ray_engine
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.types import Dataset, Examples
from ebbflow.simulation.building import build_world
from ebbflow.simulation.world import World


def config_of(keys: dict[str, Any]) -> Config:
    """Return a resolved configuration."""
    layers = Layers()
    for key, value in keys.items():
        layers.add_key(key, value, "benchmarks.cluster")
    return layers.config()


def dataset_of(workload: Workload) -> Dataset:
    """Return a workload's data; a few of them stand for the test set."""
    few = Examples(workload.examples.x[:8], workload.examples.y[:8])
    classes = workload.model.layout.shapes[-1][0]
    return Dataset(workload.name, workload.examples, few, classes)


def world_of(workload: Workload, at: Nodes) -> World:
    """Return a world that has a workload's model and data, on nodes."""
    keys = {
        "dataset": workload.name,
        "model.kind": workload.model.name,
        "algorithm": ["fedavg"],
        "methods": ["previous"],
        "lr.initial": workload.lr,
        "partition.kind": "pool",
        "partition.devices": 4,
        "partition.samples": 1,
        "evaluation": "all",
        "seeds": [0],
        "engine.kind": "ray",
        "engine.address": at.address,
    }
    return build_world(config_of(keys), dataset_of(workload), 0)


@contextmanager
def engine_on(workload: Workload, at: Nodes) -> Iterator[RayEngine]:
    """Return the engine of many machines for a workload."""
    with closing(ray_engine(world_of(workload, at))) as engine:
        yield engine
