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

from benchmarks.peers.nets import Batch, Examples, flat, net, set_threads
from benchmarks.peers.talk import Talk, read_work, thread_options, work_folder


class Over(Exception):  # noqa: N818 - no error: the driver wants no further round
    """The driver wants no further round."""


class Data:
    """Hands out a device's mini-batches of the running round, without a loader's overhead."""

    def __init__(self, examples: Examples) -> None:
        self.examples = examples
        self.turn = 0

    def get_dataloader(self, device: int, batch: int) -> list[Batch]:
        return list(self.examples.batches(self.turn, device))


class Trainer(SGDSerialClientTrainer):
    """Gives every device an optimiser of its own: shipped, all share one, and its momentum."""

    momentum = 0.0

    def train(self, model_parameters: Any, train_loader: Any) -> Any:
        self.optimizer = torch.optim.SGD(self._model.parameters(), self.lr, momentum=self.momentum)
        return super().train(model_parameters, train_loader)


class Pipeline(StandalonePipeline):
    """Ends a round, and waits for the next, where FedLab would evaluate."""

    def __init__(self, handler: Any, trainer: Any, data: Data) -> None:
        super().__init__(handler, trainer)
        self.data = data
        self.rounds: Iterator[str] = iter(())

    def evaluate(self) -> None:
        self.data.turn += 1
        self.wait()

    def wait(self) -> None:
        option = next(self.rounds, None)
        if option is None:
            raise Over
        set_threads(option)


def main() -> None:
    talk, work = Talk(), read_work(work_folder())
    module, data = net(work), Data(Examples(work))
    trainer = Trainer(module, work.facts["devices"])
    trainer.momentum = work.facts["momentum"]
    trainer.setup_dataset(data)
    trainer.setup_optim(1, work.facts["batch"], work.facts["lr"])
    pipeline = Pipeline(SyncServerHandler(module, sys.maxsize, 1.0), trainer, data)
    pipeline.rounds = talk.rounds(
        lambda: flat(pipeline.handler.model), ["fedlab", "torch"], thread_options()
    )
    try:
        pipeline.wait()
        pipeline.main()
    except Over:
        pass


if __name__ == "__main__":
    main()
