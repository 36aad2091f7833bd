"""Flower disturbed: FedAvg that saves every round in ``evaluate_fn``, as its documentation shows.

A run that is started again loads the newest file as ``initial_arrays`` and does the rounds that are
left.

    python -m benchmarks.peers.flower_trials FOLDER DISTURBANCE [TRIALS]
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn import functional

from benchmarks.peers.trials import (
    CLIENTS,
    RATE,
    ROUNDS,
    Arguments,
    linear,
    reach,
    samples,
    saving,
)

client_app = ClientApp()
server_app = ServerApp()


@cache
def _arguments() -> Arguments:
    return Arguments()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    content: Any = message.content
    config = content["config"]
    turn = int(config["server-round"]) + int(config["done"])
    module = linear()
    module.load_state_dict(content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    x, y = samples(client, turn, str(config["disturbance"]))
    functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(module.parameters(), RATE).step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": len(x)}),
        }
    )
    return Message(content=content, reply_to=message)


def _saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.pt"))


def _loaded(path: Path) -> ArrayRecord:
    return ArrayRecord(torch.load(path))  # noqa: TID251 - as its documentation does


@server_app.main()
def server(grid: Grid, context: Context) -> None:
    arguments = _arguments()
    disturbance, saved = arguments.disturbance, _saved(arguments.folder)
    done = int(saved[-1].stem.partition("-")[2]) if saved else 0
    initial = _loaded(saved[-1]) if saved else ArrayRecord(linear().state_dict())

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        turn = done + server_round
        if server_round > 0:
            path = arguments.folder / f"model-{turn:03d}.pt"
            with saving(turn, disturbance):
                torch.save(arrays.to_torch_state_dict(), path)  # noqa: TID251 - likewise
        reach(turn + 1, disturbance)
        return MetricRecord({"round": turn})

    result = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS
    ).start(
        grid=grid,
        initial_arrays=initial,
        num_rounds=ROUNDS - done,
        train_config=ConfigRecord({"disturbance": disturbance, "done": done}),
        evaluate_fn=evaluate,
    )
    module = linear()
    module.load_state_dict(result.arrays.to_torch_state_dict())
    arguments.finish(module, ROUNDS - done)


def _module(path: Path) -> nn.Module:
    module = linear()
    module.load_state_dict(_loaded(path).to_torch_state_dict())
    return module


def main() -> None:
    arguments = _arguments()
    if arguments.disturbance == "forget":
        _saved(arguments.folder)[-1].unlink()
        return
    if arguments.disturbance == "flips":
        path = _saved(arguments.folder)[-1]
        arguments.flips(path, lambda: _module(path))
        return
    machine: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False}
    machine["_node_ip_address"] = "127.0.0.1"
    run_simulation(
        server_app,
        client_app,
        num_supernodes=CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": machine,
        },
    )


if __name__ == "__main__":
    # By module name: Ray's workers import the client from the module, not from this script.
    import_module("benchmarks.peers.flower_trials").main()
