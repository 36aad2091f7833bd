"""FedLab: its standalone pipeline, the serial trainer with SGD, the synchronous server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

# FedLab imports torchvision for its own data sets, which are not used here.
for _name in ("", ".transforms", ".transforms.functional", ".datasets", ".models"):
    sys.modules[f"torchvision{_name}"] = MagicMock()

import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline

from benchmarks.peers.nets import Batch, TensorExamples, flat, net, set_threads
from benchmarks.peers.protocol import DriverLink, read_workload, thread_options, workload_folder


class NoMoreRounds(Exception):  # noqa: N818 - not an error
    """The driver has asked the peer to stop."""


class FedlabBatches:
    """Provides a device's mini-batches of the current round, without a loader's overhead."""

    def __init__(self, examples: TensorExamples) -> None:
        self.examples = examples
        self.turn = 0

    def get_dataloader(self, device: int, batch: int) -> list[Batch]:
        return list(self.examples.batches(self.turn, device))


class Trainer(SGDSerialClientTrainer):
    """Gives every device its own optimiser; FedLab's devices would share one and its momentum."""

    momentum = 0.0

    def train(self, model_parameters: Any, train_loader: Any) -> Any:
        self.optimizer = torch.optim.SGD(self._model.parameters(), self.lr, momentum=self.momentum)
        return super().train(model_parameters, train_loader)


class Pipeline(StandalonePipeline):
    """Ends a round where FedLab would evaluate, and waits for the next request."""

    def __init__(self, handler: Any, trainer: Any, data: FedlabBatches) -> None:
        super().__init__(handler, trainer)
        self.data = data
        self.rounds: Iterator[str] = iter(())

    def evaluate(self) -> None:
        self.data.turn += 1
        self.wait()

    def wait(self) -> None:
        option = next(self.rounds, None)
        if option is None:
            raise NoMoreRounds
        set_threads(option)


def main() -> None:
    driver, workload = DriverLink(), read_workload(workload_folder())
    module, data = net(workload), FedlabBatches(TensorExamples(workload))
    trainer = Trainer(module, workload.facts["devices"])
    trainer.momentum = workload.facts["momentum"]
    trainer.setup_dataset(data)
    trainer.setup_optim(1, workload.facts["batch"], workload.facts["lr"])
    pipeline = Pipeline(SyncServerHandler(module, sys.maxsize, 1.0), trainer, data)
    pipeline.rounds = driver.rounds(
        lambda: flat(pipeline.handler.model), ["fedlab", "torch"], thread_options()
    )
    try:
        pipeline.wait()
        pipeline.main()
    except NoMoreRounds:
        pass


if __name__ == "__main__":
    main()
