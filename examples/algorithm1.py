"""Algorithm 1 of the paper in plain torch, to be read beside it: ``python examples/algorithm1.py``.

Nothing here is fast or general. ebbflow provides the digits, who holds which of them, and draws by
name; its own simulator makes the same draws, and so must come to the same numbers (which
tests/test_examples.py checks). Symbols are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import Examples, Indices
from ebbflow.data import datasets
from ebbflow.data.batches import local_batches
from ebbflow.data.partition import PARTITIONS, label_groups

Weights = dict[str, Tensor]
"""A model w: the state of softmax regression, an ``nn.Linear``."""

DEVICES, ALPHA = 20, 0.3  # devices per session, and the Dirichlet parameter of their labels
STEPS, BATCH, MOMENTUM = 5, 16, 0.9  # local training: e_k, the mini-batch, heavy ball
LR, FLOOR, POWER = 0.01, 0.5, 0.9  # eta falls from LR towards FLOOR * LR within a session


class Outcome(NamedTuple):
    """Accuracy of w^(s,t+1) by [session][round], mu_(s,z) by session s and z, the last model."""

    accuracies: list[list[float]]
    mu: dict[int, dict[int, float]]
    model: Weights


def local_training(w: Weights, batches: Sequence[Indices], train: Examples, lr: float) -> Weights:
    """Train one device from w, with one step per mini-batch."""
    net = nn.Linear(64, 10)
    net.load_state_dict(w)
    sgd = torch.optim.SGD(net.parameters(), lr, MOMENTUM)  # made anew: momentum starts from zero
    for rows in batches:
        sgd.zero_grad()
        loss = cross_entropy(net(train.x[rows].flatten(1)), train.y[rows])
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        sgd.step()
    return {name: tensor.detach() for name, tensor in net.state_dict().items()}


def mix(models: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """Return the weighted sum of models, added up in double precision."""
    scales = torch.tensor(weights, dtype=torch.float64)
    stacks = {name: torch.stack([w[name] for w in models]).double() for name in models[0]}
    return {name: torch.tensordot(scales, stack, 1).float() for name, stack in stacks.items()}


def distance(g: Weights, h: Weights) -> float:
    """Return ||G_s - G_z||, as the authors compute it: every tensor normalised, no biases."""
    apart = [
        g[n].double() / g[n].double().norm() - h[n].double() / h[n].double().norm()
        for n in g
        if "bias" not in n
    ]
    return float(np.mean([float(difference.norm()) for difference in apart]))


def algorithm1(
    seed: int = 100,
    method: str = "warm_start",
    sessions: int = 7,
    pilots: int = 1,
    rounds: int = 20,
    probes: int = 1,
    scale: float = 10.0,
) -> Outcome:
    """Run S sessions of T rounds, P of them pilots, with V probe rounds and sensitivity R.

    ``method`` is "warm_start", or "previous" for the baseline that carries the model over.
    """
    data = datasets.load("digits")
    # Two groups of devices without a common label take turns.
    groups = label_groups(data.classes, overlap=0.0)
    shards: dict[int, Indices] = {}  # k -> D_k
    for number, labels in enumerate(groups):
        draw = generator(seed, "partition", number)
        parts = PARTITIONS["dirichlet"](data.train.y.numpy(), labels, DEVICES, ALPHA, draw)
        shards |= {number * DEVICES + k: part for k, part in enumerate(parts)}

    def global_round(w: Weights, devices: Sequence[int], lr: float, *name: int | str) -> Weights:
        """Train every device from w and return sum_k D_k w_k / sum_k D_k."""
        local_models = []
        for k in devices:
            draw = generator(seed, *name, k)
            batches = local_batches(draw, shards[k], STEPS, BATCH, "one_pass")
            local_models.append(local_training(w, batches, data.train, lr))
        total = sum(len(shards[k]) for k in devices)
        return mix(local_models, [len(shards[k]) / total for k in devices])

    def accuracy(w: Weights, labels: Sequence[int]) -> float:
        """Return the percentage right among the labels present; any of the ten may be guessed."""
        present = torch.isin(data.test.y, torch.tensor(labels))
        logits = data.test.x[present].flatten(1) @ w["weight"].T + w["bias"]
        return 100 * int((logits.argmax(1) == data.test.y[present]).sum()) / len(logits)

    # Initialize: a random global model w^(1,1), and the lists Q_1 (models) and Q_2 (G).
    flat = torch.empty(650).uniform_(-1 / 8, 1 / 8, generator=torch_generator(seed, "initial"))
    w: Weights = {"weight": flat[:640].view(10, 64), "bias": flat[640:]}
    w_pilot: Weights = {}
    q1: dict[int, Weights] = {}
    q2: dict[int, Weights] = {}
    outcome = Outcome([], {}, w)

    for s in range(1, sessions + 1):
        group = (s - 1) % 2
        available = range(group * DEVICES, (group + 1) * DEVICES)  # K^(s); all of them take part

        # Pseudo-Gradient Computation. Each round goes on from the one before, w_grad^(s,v); the
        # paper prints w_grad^(s,1). The authors halve the rate here.
        if s > pilots and method == "warm_start":
            w_grad = w_pilot
            for v in range(1, probes + 1):
                w_grad = global_round(w_grad, available, LR / 2, "probe", s, v)
            q2[s] = {name: w_grad[name] - w_pilot[name] for name in w_pilot}

        # Initial Model Construction: mu_(s,z) is the softmin of R ||G_s - G_z||, z = P+1..s-1.
        if s > pilots + 1 and method == "warm_start":
            past = range(pilots + 1, s)
            apart = torch.tensor([distance(q2[s], q2[z]) for z in past], dtype=torch.float64)
            mu = torch.softmax(-scale * apart, 0).tolist()
            w = mix([q1[z] for z in past], mu)  # w^(s,1) <- w_init^(s,1)
            outcome.mu[s] = dict(zip(past, mu, strict=True))
        # Otherwise w^(s,1) is w^(s-1,T+1): the model is carried over.

        # Pilot Preparation (s <= P) and Main Training (s > P) are the same rounds.
        outcome.accuracies.append([])
        for t in range(1, rounds + 1):
            decayed = LR * ((1 - FLOOR) * (1 - (t - 1) / rounds) ** POWER + FLOOR)
            w = global_round(w, available, decayed, "local", s, t)
            outcome.accuracies[-1].append(accuracy(w, groups[group]))

        q1[s] = w  # save w^(s,T+1)
        if s == pilots:  # make w_Pilot of the P saved models and delete them
            w_pilot = mix(list(q1.values()), [1 / pilots] * pilots)
            q1.clear()

    return outcome._replace(model=w)


def main() -> None:
    """Print both methods' mean accuracy over the first ten rounds of every session."""
    warm, previous = algorithm1(method="warm_start"), algorithm1(method="previous")
    print("session  warm_start  previous  mu")
    for s in range(1, len(warm.accuracies) + 1):
        ours, theirs = (np.mean(run.accuracies[s - 1][:10]) for run in (warm, previous))
        mu = "  ".join(f"{z}: {weight:.3f}" for z, weight in warm.mu.get(s, {}).items())
        print(f"{s:7}  {ours:10.2f}  {theirs:8.2f}  {mu}".rstrip())


if __name__ == "__main__":
    main()
