"""What more workers would give for a large network: measured parts, put together by a model.

This machine has few cores. So the model (`model`) is checked with workers that wait instead of
computing, of which one, two and four fit here, and then asked about as many as nobody has at hand.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.cluster.cells import pictures
from benchmarks.cluster.machines import nodes
from benchmarks.cluster.model import Costs, simulated
from benchmarks.cluster.worlds import config_of
from benchmarks.trials import Say
from benchmarks.workloads import resnet_workload
from ebbflow.cluster import wire
from ebbflow.cluster.engine import ray_engine
from ebbflow.core.algorithm import Affine, Broadcast, Upload, add_up
from ebbflow.core.evaluate import count
from ebbflow.core.local import Lane
from ebbflow.core.rng import generator
from ebbflow.engines import fast_engine
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.world import World, draw_round

WORKERS_HERE, WORKERS_THERE = (1, 2, 4), (1, 4, 16, 64, 256)
CHECKED_DEVICES, WAIT = 32, 0.5
DEVICES, STEPS, TESTS, SIDE = 100, 4, 10_000, 64
"""TinyImageNet in the paper: 100 devices of 500 pictures of 64 x 64, which are 4 steps of 128."""
CORES = 4
"""Of each of the workers that are asked about: a leaf has four devices."""
LINKS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}
SLOWER = 0.15
"""Standard deviation of the logarithm of workers' speeds."""


class Waiting(Affine):
    """FedAvg's direction, on a device that takes its time."""

    def __call__(self, gradient: Tensor, *others: object) -> Tensor:
        """Wait, and return the gradient."""
        time.sleep(WAIT)
        return gradient


def _world(address: str) -> World:
    keys = {
        "dataset": "noise",
        "model.kind": "cnn",
        "parameters.cnn.dropout": 0.0,
        "algorithm": ["fedavg"],
        "methods": ["previous"],
        "lr.initial": 0.01,
        "partition.devices": CHECKED_DEVICES,
        "local.steps": 1,
        "local.batch": 4,
        "sessions": 2,
        "pilot.sessions": 1,
        "seeds": [0],
        "engine.kind": "ray",
        "engine.workers": 1,
        "engine.address": address,
    }
    data = pictures("noise", 40 * CHECKED_DEVICES, (3, 8, 8), tests=64)
    return build_world(config_of(keys), data, 0)


def checked(workers: int, rounds: int = 3) -> tuple[float, World]:
    """Return the seconds of a round on so many workers that wait, and its world."""
    with nodes(workers) as several:
        world = _world(several.address)
        (method,) = methods_of(world)
        algorithm = method.algorithm._replace(direction=Waiting())
        shared = Broadcast(world.initial.theta, world.initial.buffers, {})
        cohort = draw_round(world, world.sessions[0], 1)
        engine = ray_engine(world)
        try:
            times = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                engine([Lane(algorithm, shared, 0.01, {})], cohort)
                times.append(time.perf_counter() - began)
        finally:
            engine.close()
    return statistics.median(times[1:]), world


def driver_costs(entries: int, bandwidth: float, latency: float) -> Costs:
    """Return what a vector of so many entries costs the driver and a worker, in processor time."""
    theta = torch.rand(entries)
    upload = Upload(theta, theta[:0], theta[0], theta[0], {})
    packed = wire.packed(upload)
    total = add_up(None, upload)
    pack = _processor_seconds(lambda: wire.unpacked(wire.packed(theta.clone())))
    receive = _processor_seconds(lambda: add_up(total, wire.unpacked(packed)))
    unpack = _processor_seconds(lambda: wire.unpacked(packed))
    return Costs(0.0, 0.0, 4 * entries, bandwidth, latency, pack, receive, unpack, pack, 1e-3)


def _processor_seconds(action: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        began = time.process_time()
        action()
        found.append(time.process_time() - began)
    return statistics.median(found)


def resnet_costs() -> tuple[float, float, int]:
    """Return the processor time of a step and of a tested picture of ResNet-18, and its entries."""
    workload = resnet_workload(128, SIDE)
    engine = fast_engine(workload.model, workload.examples, workload.recipe, workers=1)
    algorithm_free = Lane(
        methods_of(_world("auto"))[0].algorithm, Broadcast(*workload.initial, {}), 0.01, {}
    )
    engine([algorithm_free], workload.cohort(0))
    began = time.process_time()
    engine([algorithm_free], workload.cohort(1))
    step = time.process_time() - began
    engine.close()
    began = time.process_time()
    count(workload.model, workload.initial, workload.examples, range(128))
    return step, (time.process_time() - began) / 128, workload.model.layout.total


def speeds(workers: int) -> list[float]:
    """Return how fast each worker is, compared with the machine that was measured."""
    draw = generator(0, "speeds")
    return [float(s) for s in draw.lognormal(0.0, SLOWER, workers)] if workers > 1 else [1.0]


def check_of(measured: Mapping[int, float], entries: int) -> list[dict[str, Any]]:
    """Return what the model makes of other numbers of workers, once it knows about one.

    How long a device takes is taken from the run with one worker: it waits, and also computes a
    little, which takes longer on a busy machine.
    """
    local = driver_costs(entries, 2e9, 2e-4)
    besides = simulated(local, CHECKED_DEVICES, [1.0]).seconds
    device = (measured[1] - besides) / CHECKED_DEVICES
    rows = []
    for workers, seconds in measured.items():
        guess = simulated(replace(local, device=device), CHECKED_DEVICES, [1.0] * workers).seconds
        rows.append(
            {
                "workers": workers,
                "measured": round(seconds, 2),
                "predicted": round(guess, 2),
                "ratio": round(guess / seconds, 2),
            }
        )
    return rows


def predicted(parts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the model makes of these costs, with each link and number of workers."""
    rows = []
    for link, bandwidth in LINKS.items():
        costs = Costs(**parts, bandwidth=bandwidth)
        alone = simulated(costs, DEVICES, [1.0], CORES).seconds
        for workers in WORKERS_THERE:
            even = simulated(costs, DEVICES, [1.0] * workers, CORES)
            uneven = simulated(costs, DEVICES, speeds(workers), CORES)
            rows.append(
                {
                    "link": link,
                    "workers": workers,
                    "seconds": round(even.seconds, 1),
                    "times as fast": round(alone / even.seconds, 1),
                    "uneven": round(alone / uneven.seconds, 1),
                    "link busy": round(even.link_busy, 3),
                    "driver busy": round(even.driver / even.seconds, 3),
                    "training": round(even.busiest / even.seconds, 3),
                }
            )
    return rows


def scaling(say: Say) -> dict[str, Any]:
    """Return the check of the model, its parts, and what it predicts."""
    measured = {}
    for workers in WORKERS_HERE:
        measured[workers], world = checked(workers)
        say(f"{workers} workers: {measured[workers]:.2f} s")
    check = check_of(measured, world.model.layout.total)
    say(str(check))
    step, picture, entries = resnet_costs()
    say(f"a step of ResNet-18 takes {step:.1f} s, a tested picture {1000 * picture:.1f} ms")
    costs = replace(driver_costs(entries, 0.0, 5e-4), device=STEPS * step, test=TESTS * picture)
    parts = {name: value for name, value in asdict(costs).items() if name != "bandwidth"}
    rows = predicted(parts)
    say(str(rows))
    facts = {"cores": CORES, "wait": WAIT, "devices": CHECKED_DEVICES, "step": step}
    return {"check": check, "parts": parts, "rows": rows, **facts}
