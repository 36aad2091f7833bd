"""Runs every data set with every algorithm and every start at a small scale, and writes a table.

    EBBFLOW_DATA=... python -m benchmarks.pages combinations

Seven data sets with their own models, the paper's algorithms, four starts: 10 devices, 5 sessions
of 3 rounds, 2 steps of 16 samples (1 for the ResNets), 200 test samples. The table shows that every
combination runs, not how well it does.
"""

from __future__ import annotations

import math
import os
import platform
import time
from pathlib import Path

import ebbflow

DATASETS = ("mnist", "fmnist", "svhn", "cifar10", "cifar100", "tinyimagenet", "agnews")
RESNETS = ("cifar10", "cifar100", "tinyimagenet")
ALGORITHMS = ("fedavg", "fedprox", "scaffold", "moon", "fedacg")
METHODS = ("warm_start", "previous", "average", "continuous")
RATES = {("tinyimagenet", "scaffold"): 0.2}  # see the page's text
HEAD = """# Every data set, every algorithm, every start

Written by `python -m benchmarks.pages combinations`: 10 devices, 5 sessions of 3 rounds, 2 steps
of 16 samples (1 for the ResNets: CIFAR and TinyImageNet), 200 test samples, seed 100. Accuracy in
percent over the 3 rounds of session 5 (transition 2). At this scale models hardly learn; the table
shows that every combination runs and stays finite.

The learning rates are the published ones except for SCAFFOLD on TinyImageNet: the published 0.5 is
the rate of the variant that the authors' code calls SCAFFOLD. SCAFFOLD itself diverges with it from
random weights (the run stops with a message), and has 0.2 here, the rate of the other algorithms.
"""


def write_page(page: Path) -> None:
    """Write the page, one row per data set and algorithm; rows that it already has are kept."""
    rows = _rows(page)
    for dataset in DATASETS:
        for algorithm in ALGORITHMS:
            if (dataset, algorithm) not in rows:
                rows[dataset, algorithm] = _row(dataset, algorithm)
                print(rows[dataset, algorithm], flush=True)
                _write(page, rows)


def _row(dataset: str, algorithm: str) -> str:
    start = time.monotonic()
    settings: dict[str, float] = {
        "local.steps": 1 if dataset in RESNETS else 2,
        "local.batch": 16,
        "data.limit_test": 200,
    }
    if (dataset, algorithm) in RATES:
        settings["lr.initial"] = RATES[dataset, algorithm]
    records = ebbflow.compare(
        dataset,
        algorithm=algorithm,
        methods=list(METHODS),
        devices=10,
        sessions=5,
        rounds=3,
        window=[3],
        seeds=[100],
        settings=settings,
    )
    if not all(math.isfinite(r.loss) for r in records.rounds):
        raise ebbflow.EbbflowError(f"{dataset}, {algorithm}: a loss is not finite")
    accuracy = {row["method"]: row["accuracy"] for row in records.rows if row["transition"] == 2}
    cells = " | ".join(f"{accuracy[method]:.2f}" for method in METHODS)
    return f"| {dataset} | {algorithm} | {cells} | {time.monotonic() - start:.0f} |"


def _rows(page: Path) -> dict[tuple[str, str], str]:
    """Return the rows of an unfinished page, so that nothing is lost when writing it is stopped."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| data set")]
    return {(row.split(" | ")[0][2:], row.split(" | ")[1]): row for row in rows}


def _write(page: Path, rows: dict[tuple[str, str], str]) -> None:
    seconds = sum(int(row.split(" | ")[-1].rstrip(" |")) for row in rows.values())
    lines = [
        HEAD,
        "| data set | algorithm | " + " | ".join(METHODS) + " | seconds |",
        "|---|---|" + "---|" * (len(METHODS) + 1),
        *rows.values(),
        "",
        f"{len(rows)} combinations in {seconds / 60:.1f} minutes, on "
        f"{len(os.sched_getaffinity(0))} cores ({platform.machine()}).",
    ]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
