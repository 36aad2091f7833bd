"""BlazeFL: its FedAvg, one device after another or in a pool of threads, whichever is faster."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from blazefl.contrib import fedavg
from torch import nn

from benchmarks.peers.nets import Batch, TensorExamples, flat, net, set_threads
from benchmarks.peers.protocol import (
    DriverLink,
    cores,
    read_workload,
    thread_options,
    workload_folder,
)

ENDLESS = 10**9


class BatchList(list[Batch]):
    """A list of mini-batches with the attribute that BlazeFL reads."""

    dataset = None


class BlazeflBatches:
    """Provides a device's mini-batches of the current round."""

    def __init__(self, examples: TensorExamples) -> None:
        self.examples = examples
        self.turn = 0

    def get_dataloader(
        self, type_: Any, cid: int, batch_size: int, generator: Any = None
    ) -> BatchList:
        return BatchList(self.examples.batches(self.turn, cid))

    def set_dataset(self, type_: Any, cid: int, dataset: Any) -> None:
        """Nothing is kept."""


class ModelCopies:
    """Returns fresh copies of the workload's model."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def select_model(self, model_name: str) -> nn.Module:
        return copy.deepcopy(self.module)


class SerialTrainer(fedavg.FedAvgBaseClientTrainer):
    """Gives every device its own optimiser; BlazeFL's devices would share one and its momentum."""

    def train(self, model_parameters: Any, train_loader: Any, cid: int) -> Any:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        return super().train(model_parameters, train_loader, cid)


def main() -> None:
    driver, workload = DriverLink(), read_workload(workload_folder())
    facts = workload.facts
    fedavg.tqdm = lambda items, **_: items  # no progress bars
    # The trainers make a plain SGD(lr); the workload's has momentum.
    torch.optim.SGD = partial(torch.optim.SGD, momentum=facts["momentum"])  # type: ignore[misc,assignment]
    data, selector = BlazeflBatches(TensorExamples(workload)), ModelCopies(net(workload))
    shared = {
        "model_selector": selector,
        "model_name": facts["model"],
        "dataset": data,
        "device": "cpu",
        "num_clients": facts["devices"],
        "batch_size": facts["batch"],
        "seed": 0,
    }
    server = fedavg.FedAvgBaseServerHandler(global_round=ENDLESS, sample_ratio=1.0, **shared)
    pool = f"a pool of {cores()} threads"
    trainers = dict.fromkeys(
        thread_options(), SerialTrainer(epochs=1, lr=facts["lr"], **shared)
    ) | {
        pool: fedavg.FedAvgThreadPoolClientTrainer(
            epochs=1, lr=facts["lr"], num_parallels=cores(), **shared
        )
    }
    for option in driver.rounds(lambda: flat(server.model), ["blazefl", "torch"], list(trainers)):
        set_threads("1 thread" if option == pool else option)
        trainer = trainers[option]
        devices = server.sample_clients()
        trainer.local_process(server.downlink_package(), devices)
        for package in trainer.uplink_package():
            server.load(package)
        data.turn += 1


if __name__ == "__main__":
    main()
