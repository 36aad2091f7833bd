"""pfl-research: federated averaging on its simulated backend, one process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.nets import TensorExamples, flat, net, set_threads
from benchmarks.peers.protocol import (
    DriverLink,
    ExportedWorkload,
    read_workload,
    thread_options,
    workload_folder,
)

ENDLESS = 10**9


class ModuleWithLoss(nn.Module):
    """A module with the two methods that pfl requires."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.module.train()(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class RoundGate(TrainingProcessCallback):
    """Ends a round after each central iteration and waits for the next request."""

    def __init__(self, rounds: Iterator[str]) -> None:
        self.rounds = rounds

    def _wait(self) -> bool:
        option = next(self.rounds, None)
        if option is not None:
            set_threads(option)
        return option is None

    def on_train_begin(self, *, model: Any) -> Metrics:
        self._wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        return self._wait(), Metrics()


def users(workload: ExportedWorkload, examples: TensorExamples) -> FederatedDataset:
    """Return the devices in order, round after round, with their samples in the round's order.

    pfl itself splits a user's samples into mini-batches.
    """
    devices = workload.facts["devices"]
    calls = iter(range(ENDLESS))

    def made(call: int) -> Dataset:
        rows = workload.rows(call // devices, call % devices)
        return Dataset(raw_data=list(examples.pick(rows)), user_id=str(call % devices))

    return FederatedDataset(made, lambda: next(calls))


def main() -> None:
    logging.disable(logging.INFO)
    driver, workload = DriverLink(), read_workload(workload_folder())
    facts = workload.facts
    module = ModuleWithLoss(net(workload))
    model = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=facts["momentum"]),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    data = users(workload, TensorExamples(workload))
    rounds = driver.rounds(lambda: flat(module), ["pfl", "torch"], thread_options())
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ENDLESS,
            evaluation_frequency=ENDLESS,
            train_cohort_size=facts["devices"],
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=facts["lr"],
            local_batch_size=facts["batch"],
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[RoundGate(rounds)],
    )


if __name__ == "__main__":
    main()
