"""A peer without a framework: softmax regression in numpy, on the exported work.

    python -m tests.bench.plain_peer FOLDER

The variable PEER_FAULT makes it misbehave: ``wrong`` (another model), ``death`` (it ends),
``later`` (it ends when it is timed).
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks.peers.talk import Floats, Rows, Talk, Work, read_work, work_folder


def train(work: Work, theta: Floats, batches: list[Rows]) -> Floats:
    """Return one device's model after its steps."""
    classes, inputs = work.facts["shapes"][0]
    velocity = np.zeros_like(theta)
    for rows in batches:
        x, y = work.x[rows], work.y[rows]
        weight, bias = theta[: classes * inputs].reshape(classes, inputs), theta[-classes:]
        logits = x @ weight.T + bias
        slope = np.exp(logits - logits.max(1, keepdims=True))
        slope /= slope.sum(1, keepdims=True)
        slope[np.arange(len(y)), y] -= 1
        slope /= len(y)
        gradient = np.concatenate([(slope.T @ x).ravel(), slope.sum(0)])
        velocity = work.facts["momentum"] * velocity + gradient
        theta = theta - work.facts["lr"] * velocity
    return theta


def main() -> None:
    talk, work = Talk(), read_work(work_folder())
    fault = os.environ.get("PEER_FAULT", "")
    held: list[Floats] = [work.theta * (1.5 if fault == "wrong" else 1.0)]
    print("a framework may say what it likes")
    options = ["one way", "another way"]
    for turn, _ in enumerate(talk.rounds(lambda: held[0], ["numpy"], options, note="a note")):
        if fault == "death" or (fault == "later" and turn == 8):
            raise SystemExit("the framework has fallen over")
        devices = range(work.facts["devices"])
        models = [train(work, held[0], list(work.batches(turn, device))) for device in devices]
        held[0] = np.mean(models, axis=0)


if __name__ == "__main__":
    main()
