"""Tries the engine of many machines: python -m benchmarks.cluster kills overhead memory scaling.

Nodes are those of a Ray cluster on this machine. What comes of each trial is kept in
benchmarks/cluster/results; --page writes docs/cluster.md from it.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.cluster.kills import kills
from benchmarks.cluster.memory import memory
from benchmarks.cluster.overhead import overhead
from benchmarks.cluster.page import RESULTS, write
from benchmarks.cluster.scaling import scaling

TRIALS = {"kills": kills, "overhead": overhead, "memory": memory, "scaling": scaling}


def main() -> None:
    """Run trials, and keep what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("trials", nargs="*", choices=[[], *TRIALS], metavar="TRIAL")
    parser.add_argument("--page", action="store_true", help="write the page")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in options.trials:
        found = TRIALS[name](lambda sentence: print(sentence, file=sys.stderr, flush=True))
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps(found, indent=1))
    if options.page:
        write()


if __name__ == "__main__":
    main()
