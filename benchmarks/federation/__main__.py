"""Tries real federations: python -m benchmarks.federation bits server-kills link-kill node-kills.

What comes of each trial is kept in benchmarks/federation/results; --page writes docs/federation.md
from it.
"""

from __future__ import annotations

from benchmarks.federation.page import RESULTS, write
from benchmarks.federation.trials import TRIALS
from benchmarks.trials import run_trials

if __name__ == "__main__":
    run_trials("benchmarks.federation", __doc__, TRIALS, RESULTS, write)
