"""What the trials of all peers have in common: a small problem, and ways to disturb it.

Four clients train a linear model, a step on all of their samples in each of six rounds: nothing is
random, so that a run that goes on where it stopped ends with the same model. It needs only torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

CLIENTS, ROUNDS = 4, 6
BAD_ROUND, LAST_ROUND = 2, 4
"""When a client sends nonsense, and when the server is killed or its disk is full."""
RATE = 0.1


class Arguments:
    """The folder to save to, and how the run is disturbed: none, bad, kill, full; or flips, forget.

    ``flips`` loads the newest checkpoint with flipped bits, ``forget`` deletes it.
    """

    def __init__(self) -> None:
        self.folder, self.disturbance = Path(sys.argv[1]), sys.argv[2]

    def result(self, **found: Any) -> None:
        """Write what has come out."""
        (self.folder / "result.json").write_text(json.dumps(found), encoding="utf-8")

    def finish(self, module: nn.Module, rounds: int) -> None:
        """Write what has come out of a run, and how many rounds it did."""
        theta = flat(module)
        finite = bool(theta.isfinite().all())
        self.result(theta=theta.tolist() if finite else [], finite=finite, rounds=rounds)

    def flips(self, path: Path, load: Callable[[], nn.Module]) -> None:
        """Flip one bit of a checkpoint, load it, and write how often what happened."""
        content, whole = path.read_bytes(), digest(flat(load()))
        draw = random.Random(0)
        found = {"told": 0, "same": 0, "silent": 0}
        for _ in range(int(sys.argv[3])):
            changed, bit = bytearray(content), draw.randrange(8 * len(content))
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            try:
                other = digest(flat(load()))
            except Exception:
                found["told"] += 1
            else:
                found["same" if other == whole else "silent"] += 1
        path.write_bytes(content)
        self.result(**found)


def flat(module: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([tensor.detach().ravel() for tensor in module.state_dict().values()])


def digest(theta: Tensor) -> str:
    """Return a digest of a model."""
    return hashlib.sha256(theta.numpy().tobytes()).hexdigest()


def linear() -> nn.Module:
    """Return the initial model."""
    torch.manual_seed(0)
    return nn.Linear(64, 10)


def samples(client: int, turn: int, disturbance: str) -> tuple[Tensor, Tensor]:
    """Return a client's samples in a round; those of the bad client are not finite in one."""
    draw = torch.Generator().manual_seed(client)
    x, y = torch.randn(20, 64, generator=draw), torch.randint(10, (20,), generator=draw)
    spoilt = disturbance == "bad" and client == 0 and turn == BAD_ROUND
    return x * float("nan") if spoilt else x, y


def reach(turn: int, disturbance: str) -> None:
    """Die in the middle of a round if it is the one."""
    if disturbance == "kill" and turn == LAST_ROUND:
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def saving(turn: int, disturbance: str) -> Iterator[None]:
    """Save within the block, on a disk that takes no more than the beginning of a file."""
    if turn != LAST_ROUND or disturbance != "full":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
