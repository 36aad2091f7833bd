"""Tries the engine of many machines: python -m benchmarks.cluster kills overhead memory scaling.

Nodes are those of a Ray cluster on this machine. What comes of each trial is kept in
benchmarks/cluster/results; --page writes docs/cluster.md from it.
"""

from __future__ import annotations

from benchmarks.cluster.kills import kills
from benchmarks.cluster.memory import memory
from benchmarks.cluster.overhead import overhead
from benchmarks.cluster.page import RESULTS, write
from benchmarks.cluster.scaling import scaling
from benchmarks.trials import run_trials

TRIALS = {"kills": kills, "overhead": overhead, "memory": memory, "scaling": scaling}

if __name__ == "__main__":
    run_trials("benchmarks.cluster", __doc__, TRIALS, RESULTS, write)
