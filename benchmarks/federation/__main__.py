"""Tries real federations: python -m benchmarks.federation bits server-kills link-kill node-kills.

Each trial's rows are kept in benchmarks/federation/results. With --page FILE the page is written
from what is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.federation.trials import TRIALS

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run trials, and keep what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federation", description=__doc__)
    parser.add_argument("trials", nargs="*", choices=[[], *TRIALS], metavar="TRIAL")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in options.trials:
        rows = TRIALS[name](lambda sentence: print(sentence, file=sys.stderr, flush=True))
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
