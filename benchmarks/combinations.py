"""Run every data set with every algorithm and every start at a small scale, and write a table.

    EBBFLOW_DATA=... python benchmarks/combinations.py [PAGE]

Seven data sets with their own models, the paper's algorithms, four starts: 10 devices, 5 sessions
of 3 rounds, 2 steps of 16 samples (1 for the ResNets), 200 test samples. It shows that every path
runs, not how good anything is.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import ebbflow

DATASETS = ("mnist", "fmnist", "svhn", "cifar10", "cifar100", "tinyimagenet", "agnews")
RESNETS = ("cifar10", "cifar100", "tinyimagenet")
ALGORITHMS = ("fedavg", "fedprox", "scaffold", "moon", "fedacg")
METHODS = ("warm_start", "previous", "average", "continuous")
HEAD = """# Every data set, every algorithm, every start

Written by `python benchmarks/combinations.py`: 10 devices, 5 sessions of 3 rounds, 2 steps of 16
samples (1 for the ResNets: CIFAR and TinyImageNet), 200 test samples, seed 100. Accuracy in percent
over the 3 rounds of session 5 (transition 2). At this scale models hardly learn: the table shows
that every combination runs and stays finite.
"""


def main() -> None:
    """Write the page, a row per data set and algorithm."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/combinations.md")
    began = time.monotonic()
    lines = [
        HEAD,
        "| data set | algorithm | " + " | ".join(METHODS) + " | seconds |",
        "|---|---|" + "---|" * (len(METHODS) + 1),
    ]
    for dataset in DATASETS:
        for algorithm in ALGORITHMS:
            start = time.monotonic()
            found = ebbflow.compare(
                dataset,
                algorithm=algorithm,
                methods=list(METHODS),
                devices=10,
                sessions=5,
                rounds=3,
                window=[3],
                seeds=[100],
                settings={
                    "local.steps": 1 if dataset in RESNETS else 2,
                    "local.batch": 16,
                    "data.limit_test": 200,
                },
            )
            if not all(math.isfinite(r.loss) for r in found.rounds):
                raise SystemExit(f"{dataset}, {algorithm}: a loss is not finite")
            rows = {row["method"]: row["accuracy"] for row in found.rows if row["transition"] == 2}
            cells = " | ".join(f"{rows[method]:.2f}" for method in METHODS)
            seconds = time.monotonic() - start
            lines.append(f"| {dataset} | {algorithm} | {cells} | {seconds:.0f} |")
            print(lines[-1], flush=True)
    count = len(DATASETS) * len(ALGORITHMS)
    lines += ["", f"{count} combinations in {(time.monotonic() - began) / 60:.1f} minutes."]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(lines[-1])


if __name__ == "__main__":
    main()
