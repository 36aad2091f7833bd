"""Compares bfloat16 with float32 on SVHN and its convolutional network: accuracy and speed.

    EBBFLOW_DATA=... python -m benchmarks.pages precision

20 devices that hold all ten labels in unequal shares, 5 steps of 32 samples, 100 rounds, 2 seeds.
Accuracy is the mean of the last 10 rounds. The page has one row per seed with the seconds per round
in either precision; the runs alternate, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import platform
import statistics
import time
from pathlib import Path

import torch

import ebbflow
from ebbflow.models.precision import in_bfloat16

SEEDS = (100, 200)
PRECISIONS = ("fp32", "bf16")
LAST = 10
BOUND = 1.5
HEAD = """# Accuracy in bfloat16

Written by `python -m benchmarks.pages precision`: SVHN, `cnn`, FedAvg, 20 devices with all ten
labels (alpha 0.3), 5 steps of 32 samples, {rounds} rounds. Accuracy in percent, the mean of the
last {last} rounds; seconds are per round, evaluation included.

| seed | fp32 | bf16 | difference | seconds, fp32 | seconds, bf16 |
|---|---|---|---|---|---|
"""


def run(seed: int, precision: str, rounds: int) -> tuple[float, float]:
    """Return the accuracy over the last rounds, and the seconds of a round."""
    began = time.monotonic()
    records = ebbflow.compare(
        "svhn",
        methods=["previous"],
        devices=20,
        overlap=1.0,
        sessions=1,
        rounds=rounds,
        seeds=[seed],
        settings={"precision": precision, "local.batch": 32},
    )
    seconds = (time.monotonic() - began) / rounds
    accuracies = [r.accuracy for r in records.rounds]
    return statistics.fmean(accuracies[-min(LAST, rounds) :]), seconds


def write_page(page: Path, rounds: int) -> None:
    """Write the page."""
    lines, differences, times = [], [], []
    for seed in SEEDS:
        fp32, bf16 = (run(seed, precision, rounds) for precision in PRECISIONS)
        differences.append(bf16[0] - fp32[0])
        times.append((fp32[1], bf16[1]))
        lines.append(
            f"| {seed} | {fp32[0]:.2f} | {bf16[0]:.2f} | {differences[-1]:+.2f} | {fp32[1]:.2f} | "
            f"{bf16[1]:.2f} |"
        )
        print(lines[-1], flush=True)
    mean = statistics.fmean(differences)
    speed = sum(fp32 for fp32, _ in times) / sum(bf16 for _, bf16 in times)
    emulated = not isinstance(in_bfloat16(torch.device("cpu")), torch.autocast)
    lines += [
        "",
        f"On average bfloat16 is {abs(mean):.2f} points {'above' if mean > 0 else 'below'} "
        f"float32, {_verdict(mean)}, at {speed:.2f} times its speed.",
        "",
        f"Machine: {platform.machine()}, torch {torch.__version__}."
        + (
            " It has no bfloat16 instructions: numbers are rounded to bfloat16, and products are"
            " computed in float32."
            if emulated
            else ""
        ),
    ]
    head = HEAD.format(rounds=rounds, last=min(LAST, rounds))
    page.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[len(SEEDS) :]))


def _verdict(mean: float) -> str:
    return f"{'within' if abs(mean) <= BOUND else 'beyond'} the {BOUND} that we allow"
