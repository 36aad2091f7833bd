"""Flower: its simulation on Ray, one core a client, FedAvg."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional

from benchmarks.peers.nets import TensorExamples, net
from benchmarks.peers.protocol import (
    DriverLink,
    ExportedWorkload,
    Floats,
    cores,
    read_workload,
    workload_folder,
)

ENDLESS = 10**9
FOLDER = "EBBFLOW_BENCH_WORK"  # tells Ray's workers where the workload is
client_app = ClientApp()
server_app = ServerApp()


@cache
def _examples() -> TensorExamples:
    """Return the workload's samples, loaded once per worker; all workers map the same file."""
    return TensorExamples(read_workload(Path(os.environ[FOLDER])), mapped=True)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    examples = _examples()
    facts = examples.workload.facts
    content: Any = message.content
    turn = int(content["config"]["server-round"]) - 1
    module = net(examples.workload)
    module.load_state_dict(content["arrays"].to_torch_state_dict())
    module.train()
    optimiser = torch.optim.SGD(module.parameters(), facts["lr"], facts["momentum"])
    for x, y in examples.batches(turn, int(context.node_config["partition-id"])):
        optimiser.zero_grad()
        functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": facts["samples"]}),
        }
    )
    return Message(content=content, reply_to=message)


class DrivenFedAvg(FedAvg):
    """FedAvg that ends a round before the next one is configured, and waits for its request."""

    def __init__(self, driver: DriverLink, workload: ExportedWorkload) -> None:
        devices = workload.facts["devices"]
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=devices,
            min_evaluate_nodes=0,
            min_available_nodes=devices,
        )
        self._names = workload.facts["names"]
        self._arrays: ArrayRecord | None = None
        self._rounds = driver.rounds(
            self._theta, ["flwr", "ray", "torch"], note=f"Ray, {cores()} workers of one core"
        )

    def _theta(self) -> Floats:
        if self._arrays is None:
            raise SystemExit("there is no model before the first round")
        return np.concatenate([self._arrays[name].numpy().ravel() for name in self._names])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._arrays = arrays
        if next(self._rounds, None) is None:
            # Flower cannot end a run early: end its workers, then this process.
            ray.shutdown()
            os._exit(0)
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages


@server_app.main()
def server(grid: Grid, context: Context) -> None:
    workload = read_workload(Path(os.environ[FOLDER]))
    strategy = DrivenFedAvg(_driver(), workload)
    initial = ArrayRecord(net(workload).state_dict())
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=ENDLESS)


@cache
def _driver() -> DriverLink:
    return DriverLink()


def main() -> None:
    os.environ[FOLDER] = str(workload_folder().resolve())
    _driver()
    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    machine: dict[str, Any] = {
        "num_cpus": cores(),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
    run_simulation(
        server_app,
        client_app,
        num_supernodes=read_workload(workload_folder()).facts["devices"],
        backend_config={"client_resources": resources, "init_args": machine},
    )


if __name__ == "__main__":
    # By module name: Ray's workers import the client from the module, not from this script.
    import_module("benchmarks.peers.flower").main()
