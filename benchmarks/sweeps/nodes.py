"""Computes a sweep on two Ray nodes of this machine, one of which is killed half-way."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.sweeps.cells import SingleRuns, outcome, planned, single_runs
from benchmarks.trials import Say
from ebbflow.sweeps.display import SweepDisplay
from ebbflow.sweeps.folder import SweepFolder
from ebbflow.sweeps.on_ray import run_on_ray
from ebbflow.sweeps.starting import prepared
from ebbflow.sweeps.status import StatusReader


def lost_node(say: Say) -> list[dict[str, Any]]:
    """Kill one of two nodes when half of the cells are done."""
    with tempfile.TemporaryDirectory(prefix="ebbflow-ray-") as parent:
        sweep = planned(Path(parent) / "sweep")
        single = single_runs(sweep.plan(), Path(parent) / "single", say)
        row = on_two_nodes(sweep, single, say)
        say(str(row))
    return [row]


def on_two_nodes(sweep: SweepFolder, single: SingleRuns, say: Say) -> dict[str, Any]:
    """Compute a sweep on two nodes of one core each; one is lost half-way."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "300"}
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - for this trial alone

    cluster: Any = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        victim = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        ended = threading.Event()

        def disturb() -> None:
            reader = StatusReader(sweep)
            while reader.read().counts["done"] < len(single.lines) // 2:
                if ended.wait(0.2):
                    return
            # As a machine that loses its power: nothing on it is told.
            cluster.remove_node(victim, allow_graceful=False)
            say("killed a node")
            killed.append(reader.read().counts["done"])

        killed: list[int] = []
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
            **outcome(sweep, single),
        }
    finally:
        cluster.shutdown()
