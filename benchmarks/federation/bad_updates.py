"""What sessions and stock Flower make of bad updates: the same five nodes, one of them bad."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn import functional

from ebbflow.core.evaluate import picked
from ebbflow.core.types import Examples
from ebbflow.flower import Sessions, after_rounds, client_app_from
from ebbflow.flower.bad_updates import BAD_UPDATES
from ebbflow.flower.launch.making import divided_digits
from ebbflow.flower.local import LocalGrid, Node

NODES, BAD, ROUNDS = 5, 2, 3


def node_app(examples: Examples) -> ClientApp:
    """Return a Flower app that trains a linear model on a node's digits."""

    def train(
        module: nn.Module, config: ConfigRecord, context: Context
    ) -> tuple[int, dict[str, float]]:
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(5):
            optimiser.zero_grad()
            loss = functional.cross_entropy(module(examples.x.flatten(1)), examples.y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return len(examples), {}

    return client_app_from(lambda context: nn.Linear(64, 10), train)


def nodes() -> LocalGrid:
    """Return five nodes."""
    train = divided_digits(NODES).train
    assert train.device is not None
    return LocalGrid({k: Node(node_app(picked(train, train.device == k))) for k in range(NODES)})


def initial() -> ArrayRecord:
    """Return the initial model."""
    torch.manual_seed(0)
    return ArrayRecord(nn.Linear(64, 10).state_dict())


def with_sessions(grid: LocalGrid) -> tuple[ArrayRecord, list[str]]:
    """Return the model after three rounds with sessions, and what was told."""
    told: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        sessions = Sessions(
            lambda: FedAvg(fraction_evaluate=0.0),
            Path(folder),
            trigger=after_rounds(ROUNDS),
            start="previous",
            sessions=1,
            seed=1,
            tell=told.append,
        )
        return sessions.run(grid, initial()).arrays, told


def stock(grid: LocalGrid) -> str:
    """Return what plain Flower makes of it."""
    random.seed(1)  # by which it draws nodes: the first reply decides on types
    try:
        result = FedAvg(fraction_evaluate=0.0).start(grid, initial(), num_rounds=ROUNDS)
    except Exception as error:  # whatever a strategy raises ends a Flower run
        return f"stops: {type(error).__name__}"
    values = _numbers(result.arrays)
    if not np.isfinite(values).all():
        return "the model is no longer finite"
    moved = float(np.abs(values).max())
    return f"averaged in; largest weight {moved:.3g}"


def bad_updates(say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return a row for each kind of bad update."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    without = nodes()
    without.nodes[BAD].online = False
    truth, _ = with_sessions(without)
    honest = stock(nodes())
    rows: list[dict[str, Any]] = [{"update": "honest", "ebbflow": "", "flower": honest}]
    for kind, bad in BAD_UPDATES.items():
        grid, plain = nodes(), nodes()
        grid.nodes[BAD].spoil = plain.nodes[BAD].spoil = bad.spoil
        arrays, told = with_sessions(grid)
        refused = [line for line in told if "was refused" in line]
        rows.append(
            {
                "update": kind,
                "ebbflow": refused[0].partition("was refused: ")[2] if refused else "",
                "refused": len(refused),
                "equal": bool((_numbers(arrays) == _numbers(truth)).all()),
                "flower": stock(plain),
            }
        )
        say(str(rows[-1]))
    return rows


def _numbers(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])
