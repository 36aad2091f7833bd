"""Flower: its simulation on Ray, one core a client, FedAvg."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
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

from benchmarks.peers.nets import Examples, net
from benchmarks.peers.talk import Floats, Talk, Work, cores, read_work, work_folder

ENDLESS = 10**9
FOLDER = "EBBFLOW_BENCH_WORK"  # how Ray's workers hear of it
client_app = ClientApp()
server_app = ServerApp()


@cache
def _examples() -> Examples:
    """Return the work's samples, once for every worker; all map the same file."""
    return Examples(read_work(Path(os.environ[FOLDER])), mapped=True)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    examples = _examples()
    facts = examples.work.facts
    turn = int(message.content["config"]["server-round"]) - 1
    module = net(examples.work)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
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


class Rounds(FedAvg):
    """Ends a round, and waits for the next, before each is configured."""

    def __init__(self, talk: Talk, work: Work) -> None:
        devices = work.facts["devices"]
        super().__init__(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=devices,
            min_evaluate_nodes=0,
            min_available_nodes=devices,
        )
        self._names = work.facts["names"]
        self._arrays: ArrayRecord | None = None
        self._rounds = talk.rounds(
            self._theta, ["flwr", "ray", "torch"], note=f"Ray, {cores()} workers of one core"
        )

    def _theta(self) -> Floats:
        if self._arrays is None:
            raise SystemExit("no round has begun")
        return np.concatenate([self._arrays[name].numpy().ravel() for name in self._names])

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._arrays = arrays
        if next(self._rounds, None) is None:
            # Flower has no way to end a run early: its workers are ended, then this process.
            ray.shutdown()
            os._exit(0)
        messages: Iterable[Message] = super().configure_train(server_round, arrays, config, grid)
        return messages


@server_app.main()
def server(grid: Grid, context: Context) -> None:
    work = read_work(Path(os.environ[FOLDER]))
    strategy = Rounds(_talk(), work)
    initial = ArrayRecord(net(work).state_dict())
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=ENDLESS)


@cache
def _talk() -> Talk:
    return Talk()


def main() -> None:
    os.environ[FOLDER] = str(work_folder().resolve())
    _talk()
    resources: dict[str, Any] = {"num_cpus": 1, "num_gpus": 0.0}
    machine: dict[str, Any] = {
        "num_cpus": cores(),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
    run_simulation(
        server_app,
        client_app,
        num_supernodes=read_work(work_folder()).facts["devices"],
        backend_config={"client_resources": resources, "init_args": machine},
    )


if __name__ == "__main__":
    # Under its own name: Ray's workers look the client up in the module, not in this script.
    from benchmarks.peers import flower

    flower.main()
