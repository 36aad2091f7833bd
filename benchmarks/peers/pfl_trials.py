"""pfl-research disturbed: federated averaging with its `RestoreTrainingCallback`.

python -m benchmarks.peers.pfl_trials FOLDER DISTURBANCE [TRIALS]
"""

from __future__ import annotations

import shutil
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn

from benchmarks.peers.pfl import ModuleWithLoss
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


class Disturbed(RestoreTrainingCallback):
    """Its callback, on a disk that may be full, or in a process that may be killed."""

    def __init__(self, algorithm: Any, model: Any, arguments: Arguments) -> None:
        super().__init__([model, algorithm], str(arguments.folder / "saved"))
        self.algorithm, self.arguments = algorithm, arguments
        self.turn = self.rounds = 0

    def on_train_begin(self, *, model: Any) -> Metrics:
        metrics: Metrics = super().on_train_begin(model=model)
        self.turn = self.algorithm._current_central_iteration + 1
        return metrics

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        with saving(self.turn, self.arguments.disturbance):
            super().after_central_iteration(
                aggregate_metrics, model, central_iteration=central_iteration
            )
        self.turn = central_iteration + 2
        self.rounds += 1
        return False, Metrics()


def _model() -> tuple[nn.Module, PyTorchModel]:
    module = linear()
    model = PyTorchModel(
        ModuleWithLoss(module),
        lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    return module, model


def main() -> None:
    arguments = Arguments()
    module, model = _model()
    path = arguments.folder / "saved" / PyTorchModel._MODEL_CKPT_NAME
    if arguments.disturbance == "forget":
        shutil.rmtree(path.parent)  # without the model, the rest is of no use
        return
    if arguments.disturbance == "flips":

        def loaded() -> nn.Module:
            model.load(str(path.parent))
            return module

        arguments.flips(path, loaded)
        return
    algorithm: Any = FederatedAveraging()
    saver = Disturbed(algorithm, model, arguments)
    calls = iter(range(10**9))

    def made(call: int) -> Dataset:
        reach(saver.turn, arguments.disturbance)
        x, y = samples(call % CLIENTS, saver.turn, arguments.disturbance)
        return Dataset(raw_data=[x, y], user_id=str(call % CLIENTS))

    data = FederatedDataset(made, lambda: next(calls))
    algorithm.run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS,
            evaluation_frequency=10**9,
            train_cohort_size=CLIENTS,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=None
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[saver],
    )
    arguments.finish(module, saver.rounds)


if __name__ == "__main__":
    main()
