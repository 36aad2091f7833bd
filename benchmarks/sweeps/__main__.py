"""Tries sweeps: python -m benchmarks.sweeps kills ray estimates.

What comes of each trial is kept in benchmarks/sweeps/results; --page writes docs/cluster.md from
it.
"""

from __future__ import annotations

from benchmarks.sweeps.estimates import estimates
from benchmarks.sweeps.kills import kills
from benchmarks.sweeps.nodes import lost_node
from benchmarks.sweeps.page import RESULTS, write
from benchmarks.trials import run_trials

TRIALS = {"kills": kills, "ray": lost_node, "estimates": estimates}

if __name__ == "__main__":
    run_trials("benchmarks.sweeps", __doc__, TRIALS, RESULTS, write)
