"""The models of the workloads as plain torch modules, for the peers that train such modules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.protocol import ExportedWorkload, Floats
from benchmarks.peers.user_modules import MODULES

Batch = tuple[Tensor, Tensor]


class SvhnNet(nn.Module):
    """Five convolutions with batch normalisation, three poolings, two linear layers."""

    def __init__(self, channels: int, side: int, classes: int) -> None:
        super().__init__()
        widths = (channels, 32, 32, 64, 64, 128)
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for width in widths[1:]])
        self.fc1 = nn.Linear(128 * (side // 8) ** 2, 256)
        self.fc2 = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = functional.relu(norm(conv(x)))
            if layer in (1, 3, 4):
                x = functional.max_pool2d(x, 2)
        hidden = functional.relu(self.fc1(torch.flatten(x, 1)))
        logits: Tensor = self.fc2(hidden)
        return logits


class Perceptron(nn.Module):
    """One hidden layer of ReLU units."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(functional.relu(self.hidden(x)))
        return logits


def net(workload: ExportedWorkload) -> nn.Module:
    """Return the workload's model with its initial parameters."""
    facts = workload.facts
    if facts["model"] == "softmax":
        module: nn.Module = nn.Linear(facts["inputs"][0], facts["classes"])
    elif facts["model"] == "mlp":
        module = Perceptron(facts["inputs"][0], facts["shapes"][0][0], facts["classes"])
    elif facts["model"] in MODULES:
        module = MODULES[facts["model"]]()
    elif facts["model"] == "cnn":
        module = SvhnNet(facts["inputs"][0], facts["inputs"][1], facts["classes"])
    else:
        raise SystemExit(f"no peer has the model {facts['model']}")
    names = [name for name, _ in module.named_parameters()]
    if names != facts["names"]:
        raise SystemExit(f"the model's parameters are {names}, the workload's {facts['names']}")
    module.to(
        torch.from_numpy(workload.theta).dtype
    )  # double precision for the comparison of results
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(workload.tensors()[name].copy()))
    return module


def flat(module: nn.Module) -> Floats:
    """Return the parameters as one vector."""
    with torch.no_grad():
        theta: Floats = torch.cat([p.reshape(-1) for p in module.parameters()]).numpy()
    return theta


class TensorExamples:
    """The workload's samples as tensors; with ``mapped`` the inputs stay in the shared file."""

    def __init__(self, workload: ExportedWorkload, *, mapped: bool = False) -> None:
        self.workload = workload
        self.x = None if mapped else torch.from_numpy(np.array(workload.x))
        self.y = torch.from_numpy(workload.y)

    def pick(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Batch:
        """Return samples by their rows."""
        at = torch.from_numpy(rows)
        return torch.from_numpy(self.workload.x[rows]) if self.x is None else self.x[at], self.y[at]

    def batches(self, turn: int, device: int) -> Iterator[Batch]:
        """Yield a device's mini-batches of a round."""
        for rows in self.workload.batches(turn, device):
            yield self.pick(rows)


def set_threads(option: str) -> None:
    """Let torch use the number of threads that an option names."""
    torch.set_num_threads(int(option.split(maxsplit=1)[0]))
