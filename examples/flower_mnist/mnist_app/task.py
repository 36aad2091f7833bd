"""The network, the data of a node, and how it is trained; nothing here knows of ebbflow."""

from __future__ import annotations

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class Net(nn.Module):
    """A perceptron with one hidden layer and BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(784, 32)
        self.norm = nn.BatchNorm1d(32)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of ten digits."""
        scores: Tensor = self.out(functional.relu(self.norm(self.hidden(x))))
        return scores


@cache
def _idx(name: str) -> np.ndarray:
    """Read a file of MNIST from the folder named by EBBFLOW_DATA."""
    content = gzip.decompress((Path(os.environ["EBBFLOW_DATA"]) / "mnist" / name).read_bytes())
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def load(partition: int, partitions: int, train: bool = True) -> tuple[Tensor, Tensor]:
    """Return a node's samples: the first half of the nodes holds the digits below five."""
    kind = "train" if train else "t10k"
    x, y = _idx(f"{kind}-images-idx3-ubyte.gz"), _idx(f"{kind}-labels-idx1-ubyte.gz")
    low = partition < partitions / 2
    rows = np.flatnonzero((y < 5) == low)
    group = [p for p in range(partitions) if (p < partitions / 2) == low]
    rows = rows[group.index(partition) :: len(group)][: 600 if train else 200]
    images = torch.from_numpy(x[rows].reshape(len(rows), -1).astype("float32") / 255)
    return images, torch.from_numpy(y[rows].astype("int64"))


def fit(net: nn.Module, data: tuple[Tensor, Tensor], lr: float, seed: int) -> float:
    """Train for one pass over the samples, and return the last loss."""
    x, y = data
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    net.train()
    loss = torch.zeros(())
    for rows in torch.split(order, 64):
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(x[rows]), y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return loss.item()


def score(net: nn.Module, data: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Return loss and accuracy."""
    x, y = data
    net.eval()
    with torch.no_grad():
        out = net(x)
    return functional.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()
