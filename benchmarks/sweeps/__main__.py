"""Tries sweeps: python -m benchmarks.sweeps kills ray estimates.

What comes of each trial is kept in benchmarks/sweeps/results; --page writes docs/cluster.md from
it.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.sweeps.estimates import estimates
from benchmarks.sweeps.kills import kills
from benchmarks.sweeps.nodes import lost_node
from benchmarks.sweeps.page import RESULTS, write

TRIALS = {"kills": kills, "ray": lost_node, "estimates": estimates}


def main() -> None:
    """Run trials, and keep what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description=__doc__)
    parser.add_argument("trials", nargs="*", choices=[[], *TRIALS], metavar="TRIAL")
    parser.add_argument("--page", action="store_true", help="write the page")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in options.trials:
        rows = TRIALS[name](lambda sentence: print(sentence, file=sys.stderr, flush=True))
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(rows, indent=1))
    if options.page:
        write()


if __name__ == "__main__":
    main()
