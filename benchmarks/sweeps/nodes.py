"""Computes a sweep on two Ray nodes of this machine, one of which is killed half-way."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from benchmarks.cluster import machines
from benchmarks.sweeps.cells import (
    Interruption,
    SingleRuns,
    interruption,
    outcome,
    planned,
    single_runs,
)
from benchmarks.trials import Say
from ebbflow.runs.records import SUMMARY
from ebbflow.sweeps.claims import Claims, readable_attempts
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.on_ray import run_on_ray
from ebbflow.sweeps.starting import prepared
from ebbflow.sweeps.status import StatusReader

INTERVAL = 0.05
"""Seconds between two looks at what the node that is to be killed computes."""


def lost_node(say: Say) -> list[dict[str, Any]]:
    """Kill one of two nodes in the middle of a cell, when half of the cells are done."""
    with tempfile.TemporaryDirectory(prefix="ebbflow-ray-") as parent:
        sweep = planned(Path(parent) / "sweep")
        single = single_runs(sweep.plan(), Path(parent) / "single", say)
        row = on_two_nodes(sweep, single, say)
        say(str(row))
    return [row]


def on_two_nodes(sweep: SweepFolder, single: SingleRuns, say: Say) -> dict[str, Any]:
    """Compute a sweep on two nodes of one core each; one is lost half-way."""
    with machines.nodes(2) as cluster:
        ended = threading.Event()
        killed: list[int] = []
        interruptions: list[Interruption] = []

        def disturb() -> None:
            reader = StatusReader(sweep)
            while not interruptions:
                if ended.wait(INTERVAL):
                    return
                if reader.read().counts["done"] >= len(single.lines) // 2:
                    interruptions.extend(caught(sweep, cluster))
            cluster.kill()  # as a machine that loses its power: nothing on it is told
            say("killed a node")
            killed.append(reader.read().counts["done"])

        other = threading.Thread(target=disturb, daemon=True)
        began = time.monotonic()
        other.start()
        ready = prepared(sweep.plan(), sweep, 2)
        stopped = run_on_ray(ready, cluster.address, SweepDisplay(Console(quiet=True)))
        ended.set()
        other.join()
        return {
            "nodes": 2,
            "done when a node was killed": killed[0] if killed else None,
            "stopped by": stopped,
            "seconds": round(time.monotonic() - began),
            **outcome(sweep, single, interruptions),
        }


def caught(sweep: SweepFolder, cluster: machines.Nodes) -> Iterator[Interruption]:
    """Stop the cell that the latest node computes, if it is saved and not done, and yield it."""
    processes = {process.pid: process for process in cluster.of_latest()}
    claims = Claims(sweep.path)
    for cell in sweep.plan().cells:
        attempt = next(reversed(readable_attempts(claims, cell.name)), None)
        if attempt is None or attempt["state"] != "running" or attempt["pid"] not in processes:
            continue
        with suppress(psutil.NoSuchProcess):
            process = processes[attempt["pid"]]
            process.suspend()  # or it might be done before it is killed
            found = interruption(sweep, [process.pid])
            if found and found.checkpoint and not (sweep.run_folder(cell.name) / SUMMARY).exists():
                yield found
                return
            process.resume()
