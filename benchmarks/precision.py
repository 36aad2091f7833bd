"""What training in bfloat16 does to accuracy: SVHN and its convolutional network, both ways.

    EBBFLOW_DATA=... python benchmarks/precision.py [PAGE] [ROUNDS]

20 devices that hold all ten labels in unequal shares, 5 steps of 32 samples, 100 rounds, 2 seeds.
Accuracy is the mean of the last 10 rounds. The page has a row per seed, and says how many seconds a
round took both ways: the runs take turns, so that a busy neighbour disturbs both alike.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from pathlib import Path

import torch

import ebbflow
from ebbflow.models.precision import in_bfloat16

SEEDS = (100, 200)
PRECISIONS = ("fp32", "bf16")
ROUNDS, LAST = 100, 10
BOUND = 1.5
HEAD = """# Accuracy in bfloat16

Written by `python benchmarks/precision.py`: SVHN, `cnn`, FedAvg, 20 devices with all ten labels
(alpha 0.3), 5 steps of 32 samples, {rounds} rounds. Accuracy in percent, the mean of the last
{last} rounds; seconds are those of a round with its evaluation.

| seed | fp32 | bf16 | difference | seconds, fp32 | seconds, bf16 |
|---|---|---|---|---|---|
"""


def run(seed: int, precision: str, rounds: int) -> tuple[float, float]:
    """Return the accuracy over the last rounds, and the seconds of a round."""
    began = time.monotonic()
    found = ebbflow.compare(
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
    accuracies = [r.accuracy for r in found.rounds]
    return statistics.fmean(accuracies[-min(LAST, rounds) :]), seconds


def main() -> None:
    """Write the page."""
    given = dict(enumerate(sys.argv))
    target, rounds = Path(given.get(1, "docs/precision.md")), int(given.get(2, ROUNDS))
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
        f"On average bfloat16 is {mean:+.2f} points from float32, {_verdict(mean)}, at {speed:.2f} "
        "times its speed.",
        "",
        f"Machine: {platform.machine()}, torch {torch.__version__}."
        + (
            " It has no instructions for bfloat16: numbers are rounded to it, and the products are"
            " those of float32."
            if emulated
            else ""
        ),
    ]
    head = HEAD.format(rounds=rounds, last=min(LAST, rounds))
    target.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[len(SEEDS) :]))


def _verdict(mean: float) -> str:
    return f"{'within' if abs(mean) <= BOUND else 'beyond'} the {BOUND} that we allow"


if __name__ == "__main__":
    main()
