"""Between Flower's records and ebbflow's vectors.

A model travels as an `ArrayRecord` with one array per tensor, as in any Flower app. Here it becomes
one vector of parameters and one of buffers. Integer arrays, such as BatchNorm's counters of
batches, have no mean: they are kept out of the vectors and away from strategies, and nodes are sent
them as the initial model had them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from torch import Tensor

from ebbflow.core.algorithm import Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Layout, Model, ModelState, State
from ebbflow.core.vector import flatten, unflatten

IsBuffer = Callable[[str], bool]
"""Says by its name whether an array is a buffer, and not trained by gradients."""

RUNNING = ("running_mean", "running_var")
"""How torch calls the buffers that BatchNorm and its like average."""

EXAMPLES = "num-examples"
"""The metric by which Flower's strategies weight a reply."""


def running_statistics(name: str) -> bool:
    """Whether an array is one of torch's running statistics.

    >>> running_statistics("layer1.bn.running_var"), running_statistics("layer1.bn.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in RUNNING


@dataclass(frozen=True)
class Form:
    """How the arrays of a model lie in its two vectors.

    Attributes:
        names: All arrays, in the order in which they travel.
        layout: Where the trained arrays lie in theta.
        buffer_layout: Where the buffers lie in theirs.
        kinds: The type of each array of numbers with a fraction, in the same order.
        counters: The arrays of integers, which stay as they are.
        vector: The type of the vectors.
    """

    names: tuple[str, ...]
    layout: Layout
    buffer_layout: Layout
    kinds: Mapping[str, np.dtype[np.generic]]
    counters: Mapping[str, np.ndarray]
    vector: torch.dtype

    def state(self, arrays: ArrayRecord) -> ModelState:
        """Return a model as vectors."""
        tensors = {
            name: torch.from_numpy(np.array(arrays[name].numpy())).to(self.vector)
            for name in (*self.layout.names, *self.buffer_layout.names)
        }
        return ModelState(
            flatten(tensors, self.layout).to(self.vector),
            flatten(tensors, self.buffer_layout).to(self.vector),
        )

    def arrays(self, state: ModelState) -> ArrayRecord:
        """Return a model as arrays."""
        named = unflatten(state.theta.cpu(), self.layout)
        named |= unflatten(state.buffers.cpu(), self.buffer_layout)
        averaged = {
            name: Array(named[name].numpy().astype(kind)) for name, kind in self.kinds.items()
        }
        return self.with_counters(ArrayRecord(averaged))

    def without_counters(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return a model's arrays without the counters, each in the place in which it travels."""
        return ArrayRecord({name: arrays[name] for name in self.kinds})

    def with_counters(self, arrays: ArrayRecord) -> ArrayRecord:
        """Return a model's arrays with the counters that the initial model had."""
        counters = {name: Array(counts) for name, counts in self.counters.items()}
        return ArrayRecord(
            {name: counters[name] if name in counters else arrays[name] for name in self.names}
        )


def form_of(arrays: ArrayRecord, is_buffer: IsBuffer = running_statistics) -> Form:
    """Return how a model's arrays become vectors."""
    numbers = {name: array.numpy() for name, array in arrays.items()}
    with_fraction = {name: n for name, n in numbers.items() if n.dtype.kind == "f"}
    counters = {name: n for name, n in numbers.items() if n.dtype.kind in "iub"}
    for name, array in numbers.items():
        if name not in with_fraction and name not in counters:
            raise EbbflowError(
                f"the array {name} of the model has the type {array.dtype}, which cannot be "
                "averaged: send real numbers or integers"
            )
    if not with_fraction:
        raise EbbflowError(
            "the initial arrays hold nothing that can be trained: give the model's state_dict, for "
            "example ArrayRecord(model.state_dict())"
        )
    every_double = all(n.dtype == np.float64 for n in with_fraction.values())
    trained = [name for name in with_fraction if not is_buffer(name)]
    buffers = [name for name in with_fraction if is_buffer(name)]

    def laid(names: list[str]) -> Layout:
        return Layout(tuple(names), tuple(tuple(numbers[name].shape) for name in names))

    return Form(
        names=tuple(numbers),
        layout=laid(trained),
        buffer_layout=laid(buffers),
        kinds={name: n.dtype for name, n in with_fraction.items()},
        counters=counters,
        vector=torch.float64 if every_double else torch.float32,
    )


def model_arrays(model: Model, state: ModelState) -> ArrayRecord:
    """Return a state of one of ebbflow's models as arrays, by the names of its tensors."""
    named = unflatten(state.theta, model.layout) | unflatten(state.buffers, model.buffer_layout)
    return vectors(named)


def model_state(model: Model, arrays: ArrayRecord) -> ModelState:
    """Return the state of one of ebbflow's models that arrays hold."""
    named = tensors(arrays)
    return ModelState(flatten(named, model.layout), flatten(named, model.buffer_layout))


def vectors(named: Mapping[str, Tensor]) -> ArrayRecord:
    """Return named vectors as arrays."""
    record = ArrayRecord()
    for name, tensor in named.items():
        record[name] = Array(tensor.detach().cpu().numpy())
    return record


def tensors(arrays: ArrayRecord) -> State:
    """Return named arrays as tensors of their own."""
    return {name: torch.from_numpy(np.array(array.numpy())) for name, array in arrays.items()}


# --- uploads --------------------------------------------------------------------------------------

UPLOAD = "upload"
EXTRA = "extra/"  # begins the names of an algorithm's own summands


def upload_record(upload: Upload, **metrics: float) -> RecordDict:
    """Return what a device sends: the summands D_k delta_k and D_k buffers_k, and D_k."""
    named = {"delta": upload.delta, "buffers": upload.buffers}
    named |= {EXTRA + name: value for name, value in upload.extras.items()}
    counted = metric_record({EXAMPLES: float(upload.samples), **metrics})
    return RecordDict({UPLOAD: vectors(named), "metrics": counted})


def upload_of(content: RecordDict) -> Upload:
    """Return the upload in a reply that has passed the checks."""
    named = tensors(content.array_records[UPLOAD])
    (metrics,) = content.metric_records.values()
    samples = torch.tensor(float(_number(metrics[EXAMPLES]))).to(named["delta"])
    return Upload(
        delta=named["delta"],
        buffers=named["buffers"],
        samples=samples,
        devices=torch.ones_like(samples),
        extras={n.removeprefix(EXTRA): v for n, v in named.items() if n.startswith(EXTRA)},
    )


def metric_record(numbers: Mapping[str, float | list[float]]) -> MetricRecord:
    """Return numbers as metrics."""
    record = MetricRecord()
    for name, value in numbers.items():
        record[name] = value
    return record


def _number(value: int | float | list[int] | list[float]) -> float:
    if isinstance(value, list):
        raise EbbflowError(f"{EXAMPLES} is a list: send a single number")
    return value
