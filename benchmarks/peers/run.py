"""Measure every peer and ebbflow on W1 and W2 in one run, and write the numbers.

    python benchmarks/peers/run.py [--peers DIR] [--out PAGE] [--repeats 7] [W1] [W2]

Environments that are missing are made first. The numbers go to ``results.json`` in the folder of
the environments, and into a page if one is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.page import write_page
from benchmarks.peer_runs import PEERS
from benchmarks.results import read_results, write_results
from benchmarks.run import chosen, measure

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [W1] [W2]")
    parser.add_argument("names", nargs="*", default=["W1", "W2"])
    parser.add_argument("--peers", type=Path, default=Path("build/peers"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    if not (given.peers / PEERS).exists():
        subprocess.run([sys.executable, str(HERE / "install.py"), str(given.peers)], check=True)
    numbers = given.peers / "results.json"
    for name in chosen(given.names):
        suite = measure(name, given.repeats, given.peers)
        write_results(numbers, read_results(numbers).updated([suite]))
        if given.out is not None:
            write_page(given.out, [suite])
        for row in suite.rows:
            median = f"{row.median:9.4f} s" if row.seconds else "          -"
            apart = "" if row.difference is None else f"{row.difference:.1e}"
            print(f"{suite.name}  {row.name:36} {median}  {apart:8} {row.note}", flush=True)
        for check in suite.checks:
            said = "holds" if check.met else "does not hold"
            print(f"{suite.name}  {check.what}: {check.found:.2f} ({said})", flush=True)
    print(numbers)


if __name__ == "__main__":
    main()
