"""A device's answers to the questions of a learned start, from its own samples.

The models of a survey are sent once and kept on the node's disk. Every later question is a few
mixing weights, and every answer a few sums over the device's samples.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from ebbflow.core.answers import AskedSample, sampled_rows
from ebbflow.core.errors import EbbflowError
from ebbflow.core.inputs import prepared
from ebbflow.core.mixtures import SentModels
from ebbflow.core.survey import Array, Half
from ebbflow.core.types import Examples, Model, ModelState
from ebbflow.flower.node import NodeDisk
from ebbflow.flower.wire import EXAMPLES, metric_record, tensors, vectors

HALVES: tuple[Half, Half] = ("learn", "judge")
THETA, BUFFERS = "theta", "buffers"


def models_record(states: list[ModelState], compression: str) -> ArrayRecord:
    """Return a survey's models as they are sent: whole, or in bfloat16."""
    named: dict[str, Tensor] = {}
    for place, state in enumerate(states):
        theta = state.theta.cpu()
        if compression == "bf16":  # numpy has no such type: its bits travel as integers
            theta = theta.bfloat16().view(torch.int16)
        elif compression != "fp32":
            raise EbbflowError(
                f'compression = "{compression}" is not for a real federation: choose "bf16" or '
                '"fp32" for the learned start'
            )
        named[f"{place}/{THETA}"], named[f"{place}/{BUFFERS}"] = theta, state.buffers.cpu()
    return vectors(named)


def models_of(named: dict[str, Tensor]) -> list[ModelState]:
    """Return a survey's models as a device has received them."""
    states = []
    for place in range(len(named) // 2):
        theta, buffers = named[f"{place}/{THETA}"], named[f"{place}/{BUFFERS}"]
        if theta.dtype == torch.int16:
            theta = theta.view(torch.bfloat16)
        states.append(ModelState(theta, buffers))
    return states


def answered(
    kind: str,
    content: RecordDict,
    config: ConfigRecord,
    model: Model,
    examples: Examples,
    disk: NodeDisk,
    classes: int | None,
) -> RecordDict:
    """Answer a question of a survey."""
    asked = _Asked(config, model, examples)
    if kind == "basis":
        disk.keep_models(asked.session, tensors(content.array_records["models"]))
        return _reply(asked, asked.label_counts(classes))
    sent = SentModels(model, models_of(disk.models(asked.session)))
    half = cast(Half, config["half"])
    sample = asked.sample(sent, half)
    if kind == "losses":
        mixtures = _numbers(config, "mixtures").reshape(-1, len(sent.states))
        sums = sample.losses(list(mixtures))
        return _reply(
            asked,
            {
                "weight": sums.weight.tolist(),
                "losses": sums.loss[0].tolist(),
                "products": sums.products.reshape(-1).tolist(),
            },
        )
    if kind == "expansion":
        around = sample.expansion(_numbers(config, "mixture"))
        return _reply(
            asked,
            {
                "weight": around.weight.tolist(),
                "losses": around.loss.tolist(),
                "slope": around.slope[0].tolist(),
                "curvature": around.curvature[0].reshape(-1).tolist(),
            },
        )
    raise EbbflowError(
        f"the server asks {kind!r}, which this node does not know: install the server's version of "
        "ebbflow"
    )


class _Asked:
    """The samples that a survey asks this device about."""

    def __init__(self, config: ConfigRecord, model: Model, examples: Examples) -> None:
        self._config, self._model, self._examples = config, model, examples
        self.session = _whole(config, "session")
        seed, device = _whole(config, "seed"), _whole(config, "device")
        count = len(examples)
        self.count = count
        self._rows = sampled_rows(seed, self.session, device, count, _whole(config, "samples"))

    def sample(self, sent: SentModels, half: Half) -> AskedSample:
        """Return the samples of a half, with what each of them counts."""
        at = torch.from_numpy(self._rows[half])
        x = prepared(self._examples.x[at], self._examples.pixels)
        y = self._examples.y[at]
        basis, x = sent.for_samples(x)
        weights = np.full(len(at), self.count / len(at))
        factors = _numbers(self._config, "factors")
        if len(factors):
            weights = weights * factors[y.numpy()]
        return AskedSample(basis, x, y, torch.from_numpy(weights).to(basis.thetas))

    def label_counts(self, classes: int | None) -> dict[str, list[float]]:
        """Return what the samples of each half count together, by label."""
        if not self._model.task.labels:
            return {half: [] for half in HALVES}
        outputs = classes or self._outputs()
        counts: dict[str, list[float]] = {}
        for half in HALVES:
            rows = self._rows[half]
            labels = self._examples.y[torch.from_numpy(rows)].numpy()
            weights = np.full(len(rows), self.count / len(rows))
            counts[half] = np.bincount(labels, weights, outputs).tolist()
        return counts

    def _outputs(self) -> int:
        """Return how many labels the model tells apart."""
        state = self._model.initial(torch.Generator().manual_seed(0))
        x = prepared(self._examples.x[:1], self._examples.pixels)
        with torch.no_grad():
            output, _ = self._model.forward(state.theta, state.buffers, x, None, False)
        return int(output.logits.shape[-1])


def _reply(asked: _Asked, numbers: dict[str, list[float]]) -> RecordDict:
    return RecordDict({"metrics": metric_record({EXAMPLES: asked.count, **numbers})})


def _whole(config: ConfigRecord, key: str) -> int:
    return int(cast(int, config[key]))


def _numbers(config: ConfigRecord, key: str) -> Array:
    return np.array(cast(list[float], config[key]), dtype=np.float64)
