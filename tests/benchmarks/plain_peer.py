"""A peer without a framework: softmax regression in numpy, on the exported workload.

    python -m tests.benchmarks.plain_peer FOLDER

The variable PEER_FAULT makes it misbehave: ``wrong`` (another model), ``death`` (it ends),
``later`` (it ends when it is timed).
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks.peers.protocol import (
    DriverLink,
    ExportedWorkload,
    Floats,
    Rows,
    read_workload,
    workload_folder,
)


def train(workload: ExportedWorkload, theta: Floats, batches: list[Rows]) -> Floats:
    """Return one device's model after its steps."""
    classes, inputs = workload.facts["shapes"][0]
    velocity = np.zeros_like(theta)
    for rows in batches:
        x, y = workload.x[rows], workload.y[rows]
        weight, bias = theta[: classes * inputs].reshape(classes, inputs), theta[-classes:]
        logits = x @ weight.T + bias
        slope = np.exp(logits - logits.max(1, keepdims=True))
        slope /= slope.sum(1, keepdims=True)
        slope[np.arange(len(y)), y] -= 1
        slope /= len(y)
        gradient = np.concatenate([(slope.T @ x).ravel(), slope.sum(0)])
        velocity = workload.facts["momentum"] * velocity + gradient
        theta = theta - workload.facts["lr"] * velocity
    return theta


def main() -> None:
    driver, workload = DriverLink(), read_workload(workload_folder())
    fault = os.environ.get("PEER_FAULT", "")
    held: list[Floats] = [workload.theta * (1.5 if fault == "wrong" else 1.0)]
    print("a framework may say what it likes")
    options = ["one way", "another way"]
    for turn, _ in enumerate(driver.rounds(lambda: held[0], ["numpy"], options, note="a note")):
        if fault == "death" or (fault == "later" and turn == 8):
            raise SystemExit("the framework has fallen over")
        devices = range(workload.facts["devices"])
        models = [
            train(workload, held[0], list(workload.batches(turn, device))) for device in devices
        ]
        held[0] = np.mean(models, axis=0)


if __name__ == "__main__":
    main()
