"""What a round costs besides training, by the size of the model: here, on two nodes, in Flower.

The model is softmax regression with as many inputs as give the wanted number of parameters, and a
device trains on a single sample: what is left is the cost of sending models to and fro. All three
take turns, so that other work on the machine disturbs them alike.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.cluster.machines import nodes
from benchmarks.cluster.worlds import engine_on
from benchmarks.contenders import EngineRounds, fast_engine
from benchmarks.peer_runs import PeerProcess
from benchmarks.peers.install import QUIET
from benchmarks.trials import Say
from benchmarks.workloads import Workload, export, softmax_workload

SIZES = {"8 k": 784, "0.6 M": 60_000, "11 M": 1_100_000}
"""Inputs of softmax regression with ten classes, by the number of its parameters."""
DEVICES, ROUNDS = 20, 5
STORE = 2 * 2**30
ROOT = Path(__file__).parents[2]


def workload_of(inputs: int) -> Workload:
    """Return rounds of twenty devices with one sample each."""
    return softmax_workload(DEVICES, 1, 1, inputs=inputs)


def measured(name: str, inputs: int, say: Say) -> dict[str, Any]:
    """Return the seconds of a round of each contender, and check that results agree."""
    workload = workload_of(inputs)
    flower = {
        "python": sys.executable,
        "module": "benchmarks.peers.flower",
        "root": ROOT,
        "environment": dict(QUIET),
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eb-")))
        export(workload, folder / "workload")
        here = EngineRounds(workload, fast_engine(workload, workers=2))
        stack.callback(here.engine.close)
        two = stack.enter_context(nodes(2, store=STORE))
        there = EngineRounds(workload, stack.enter_context(engine_on(workload, two)))
        peer = PeerProcess("flower", flower, folder / "workload", folder)
        stack.callback(peer.stop)
        times: dict[str, list[float]] = {"here": [], "two nodes": [], "Flower": []}
        for _ in range(ROUNDS + 1):
            times["here"].append(_seconds(here))
            times["two nodes"].append(_seconds(there))
            times["Flower"].append(peer())
        assert torch.equal(here.models[0].theta, there.models[0].theta)
    found = {who: statistics.median(each[1:]) for who, each in times.items()}
    say(f"{name}: {found}")
    overhead = found["two nodes"] - found["here"]
    return {
        "model": name,
        "parameters": 10 * (inputs + 1),
        "devices": DEVICES,
        "rounds": ROUNDS,
        "seconds": {who: round(value, 4) for who, value in found.items()},
        "overhead": round(overhead, 4),
        "first round of Flower": round(times["Flower"][0], 2),
        "equal bits": True,
    }


def _seconds(rounds: EngineRounds) -> float:
    began = time.perf_counter()
    rounds()
    return time.perf_counter() - began


def overhead(say: Say) -> list[dict[str, Any]]:
    """Return the table, a row for each size."""
    return [measured(name, inputs, say) for name, inputs in SIZES.items()]
