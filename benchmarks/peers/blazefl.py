"""BlazeFL: its FedAvg, one device after another or in a pool of threads, whichever is faster."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from blazefl.contrib import fedavg
from torch import nn

from benchmarks.peers.nets import Batch, Examples, flat, net, set_threads
from benchmarks.peers.talk import Talk, cores, read_work, thread_options, work_folder

ENDLESS = 10**9


class Loader(list[Batch]):
    """A list of mini-batches with the attribute that BlazeFL reads."""

    dataset = None


class Data:
    """Hands out a device's mini-batches of the running round."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.turn = 0

    def get_dataloader(
        self, type_: Any, cid: int, batch_size: int, generator: Any = None
    ) -> Loader:
        return Loader(self.examples.batches(self.turn, cid))

    def set_dataset(self, type_: Any, cid: int, dataset: Any) -> None:
        """Nothing is kept."""


class Selector:
    """Gives a fresh copy of the work's model."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def select_model(self, model_name: str) -> nn.Module:
        return copy.deepcopy(self.module)


class Serial(fedavg.FedAvgBaseClientTrainer):
    """Gives every device an optimiser of its own: shipped, all share one, and its momentum."""

    def train(self, model_parameters: Any, train_loader: Any, cid: int) -> Any:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        return super().train(model_parameters, train_loader, cid)


def main() -> None:
    talk, work = Talk(), read_work(work_folder())
    facts = work.facts
    fedavg.tqdm = lambda items, **_: items  # no progress bars
    # The trainers make a plain SGD(lr); the work's has momentum.
    torch.optim.SGD = partial(torch.optim.SGD, momentum=facts["momentum"])  # type: ignore[misc,assignment]
    data, selector = Data(Examples(work)), Selector(net(work))
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
    trainers = dict.fromkeys(thread_options(), Serial(epochs=1, lr=facts["lr"], **shared)) | {
        pool: fedavg.FedAvgThreadPoolClientTrainer(
            epochs=1, lr=facts["lr"], num_parallels=cores(), **shared
        )
    }
    for option in talk.rounds(lambda: flat(server.model), ["blazefl", "torch"], list(trainers)):
        set_threads("1 thread" if option == pool else option)
        trainer = trainers[option]
        devices = server.sample_clients()
        trainer.local_process(server.downlink_package(), devices)
        for package in trainer.uplink_package():
            server.load(package)
        data.turn += 1


if __name__ == "__main__":
    main()
