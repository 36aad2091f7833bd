"""Dense networks with their gradient in closed form, one device after another on each worker.

What remains are the matrix products: no graph, no gradient for the inputs, no copy of theta before
a step has changed it. The product that gives a weight's gradient adds it to the velocity as well.
Mini-batches are gathered once for all lanes. Every product is of one device and one lane, so that
neither neighbours nor workers change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import cache

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Affine, LocalRun, Upload, weighted_upload
from ebbflow.core.batching import Feed
from ebbflow.core.dense import LayerViews, Passed, add_gradient, forward, layer_views
from ebbflow.core.local import Batch, Cohort, Lane, Recipe, step_sum
from ebbflow.core.slopes import Compared, slopes
from ebbflow.core.types import DenseNetwork, Examples, Linear, Model, ModelState, Output, State
from ebbflow.engines.leaves import LEAF, Stretch, leaf_sums

KEPT_BYTES = 64 * 2**20  # of a device's mini-batches; longer ones are gathered anew for every lane
ALIGNED = 64  # bytes: where torch's own tensors begin


def why_not_dense(model: Model, examples: Examples) -> str:
    """Return why there is no closed form for this model and data; nothing if there is one."""
    network = model.hints.dense
    if network is None:
        return f"the model {model.name} is no chain of linear layers"
    if examples.x.device.type != "cpu":
        return "dense layers are trained in closed form on the CPU"
    first = next(stage for stage in network.stages if isinstance(stage, Linear))
    if math.prod(examples.x.shape[1:]) != first.inputs or not (
        network.flattens or examples.x.dim() == 2
    ):
        return f"the samples are no rows of {first.inputs} numbers"
    return ""


class _Batch(NamedTuple):
    """A mini-batch as rows; every sample counts alike."""

    x: Tensor
    y: Tensor
    noise: Tensor | None


class DenseLayers:
    """Trains lanes of a dense network; see the module's text."""
