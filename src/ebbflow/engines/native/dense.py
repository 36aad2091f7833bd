"""The kernel for dense networks, built at installation if there is a C compiler.

Without it, dense networks are trained in torch, with the same results up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.types import DenseNetwork, Indices, Linear
from ebbflow.engines.native.loading import loaded

PANEL = 16  # samples that are laid out together
_ACTIVATIONS = {"relu": 1, "tanh": 2}


class _NetworkStruct(ctypes.Structure):
    """The struct ``network`` of dense.c."""

    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("features", ctypes.c_int64),
    )


class _MotionStruct(ctypes.Structure):
    """The struct ``motion`` of dense.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("theta", "start", "shift", "velocity", "out")),
        *((name, ctypes.c_float) for name in ("keep", "rate", "pull")),
    )


class KernelLayers(NamedTuple):
    """A network as the kernel sees it.

    ``table`` has a row (weight, bias, outputs, inputs, activation) for each layer; ``features`` is
    the number of layers after which the representation is taken, or 0 if it is the scores.
    """

    table: Indices
    features: int


def kernel_layers(network: DenseNetwork) -> KernelLayers | None:
    """Return a network as the kernel sees it, or None if it has other stages."""
    table: list[list[int]] = []
    ends: list[int] = []  # the number of stages up to the end of each layer
    for number, stage in enumerate(network.stages, 1):
        if isinstance(stage, Linear):
            bias = -1 if stage.bias is None else stage.bias.start
            table.append([stage.weight.start, bias, stage.outputs, stage.inputs, 0])
            ends.append(number)
        elif isinstance(stage, str) and table and not table[-1][-1]:
            table[-1][-1] = _ACTIVATIONS[stage]
            ends[-1] = number
        else:
            return None
    if network.features not in ends:
        return None
    last = network.features == len(network.stages)
    features = 0 if last else ends.index(network.features) + 1
    return KernelLayers(np.array(table, dtype=np.int64), features)


def library() -> SimpleNamespace | None:
    """Return the compiled kernel, or None if there is none or the processor cannot run it."""
    found = _loaded()
    return None if isinstance(found, str) else found


def why_missing() -> str:
    """Return why there is no kernel on this machine; nothing if there is one."""
    found = _loaded()
    return found if isinstance(found, str) else ""


@cache
def _loaded() -> SimpleNamespace | str:
    parts = ("inputs", "forward", "backward", "train")
    found = loaded(*(f"ebbflow_dense_{part}" for part in parts))
    if isinstance(found, str):
        return found
    whole, address = ctypes.c_int64, ctypes.c_void_p
    network = ctypes.POINTER(_NetworkStruct)
    found.ebbflow_dense_inputs.argtypes = (address, address, whole, whole, address, address)
    found.ebbflow_dense_inputs.restype = None
    found.ebbflow_dense_forward.argtypes = (
        *(network, address, address, whole),
        *(address, address, address),
    )
    found.ebbflow_dense_forward.restype = None
    found.ebbflow_dense_backward.argtypes = (
        *(network, address, whole, address),
        *(address, address, ctypes.POINTER(_MotionStruct)),
    )
    found.ebbflow_dense_backward.restype = ctypes.c_int
    found.ebbflow_dense_train.argtypes = (
        *(network, address, address, address, address, whole),
        *(ctypes.POINTER(_MotionStruct), whole, ctypes.c_float),
    )
    found.ebbflow_dense_train.restype = ctypes.c_int
    return found


class LaidOut(NamedTuple):
    """The inputs of a mini-batch in the two forms that the kernel reads."""

    by_sample: Tensor
    by_input: Tensor
    samples: int


class Motion(NamedTuple):
    """How a step moves theta along a gradient.

    velocity <- keep velocity + gradient + pull (theta - start) + shift; out <- theta - rate
    velocity, where ``out`` may be theta itself, or None if nothing is to move.
    """

    theta: Tensor
    start: Tensor
    shift: Tensor | None
    velocity: Tensor
    out: Tensor | None
    keep: float
    rate: float
    pull: float


class DenseKernel:
    """Passes of a network through the kernel. All tensors are float32 and contiguous."""

    def __init__(self, layers: KernelLayers) -> None:
        found = library()
        assert found is not None
        self._library = found
        self._table = np.ascontiguousarray(layers.table)
        self._network = _NetworkStruct(self._table.ctypes.data, len(self._table), layers.features)
        self.inputs = int(self._table[0, 3])
        self.classes = int(self._table[-1, 2])
        self.features = int(self._table[layers.features - 1, 2]) if layers.features else 0
        self._units = int(self._table[:, 2].sum())

    def laid_out(self, x: Tensor, rows: Indices) -> LaidOut:
        """Return some rows of ``x [., inputs]`` as the kernel reads them."""
        samples = len(rows)
        rows = np.ascontiguousarray(rows)
        by_sample = torch.empty(_filled(samples) * self.inputs)
        by_input = torch.empty(samples * _filled(self.inputs))
        self._library.ebbflow_dense_inputs(
            x.data_ptr(),
            rows.ctypes.data,
            samples,
            self.inputs,
            by_sample.data_ptr(),
            by_input.data_ptr(),
        )
        return LaidOut(by_sample, by_input, samples)

    def forward(self, theta: Tensor, x: LaidOut) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values of all layers, the scores, and the features, if they are others."""
        values = torch.empty(_filled(x.samples) * self._units)
        scores = torch.empty(x.samples, self.classes)
        features = torch.empty(x.samples, self.features) if self.features else scores
        self._library.ebbflow_dense_forward(
            self._network,
            theta.data_ptr(),
            x.by_sample.data_ptr(),
            x.samples,
            values.data_ptr(),
            scores.data_ptr(),
            features.data_ptr() if self.features else None,
        )
        return values, scores, features

    def train(
        self,
        x: Tensor,
        labels: Tensor,
        batches: Sequence[Indices],
        motions: Sequence[Motion],
        momentum: float,
    ) -> None:
        """Make all local steps of a device in every lane, by the mean cross-entropy of labels.

        Every motion's ``out`` becomes the trained model; ``keep`` is left to the kernel.
        """
        rows = np.concatenate(batches)
        ends = np.cumsum([len(each) for each in batches], dtype=np.int64)
        kept = [_contiguous(motion) for motion in motions]
        structs = (_MotionStruct * len(kept))(*map(_struct, kept))
        if self._library.ebbflow_dense_train(
            self._network,
            x.data_ptr(),
            labels.data_ptr(),
            rows.ctypes.data,
            ends.ctypes.data,
            len(batches),
            structs,
            len(kept),
            momentum,
        ):
            raise MemoryError

    def backward(
        self,
        x: LaidOut,
        values: Tensor,
        of_scores: Tensor,
        of_features: Tensor | None,
        motion: Motion,
    ) -> None:
        """Move theta along the gradient, from the loss's derivatives in scores and features."""
        kept = _contiguous(motion)
        of_scores = of_scores.contiguous()
        of_features = None if of_features is None else of_features.contiguous()
        if self._library.ebbflow_dense_backward(
            self._network,
            x.by_input.data_ptr(),
            x.samples,
            values.data_ptr(),
            of_scores.data_ptr(),
            None if of_features is None else of_features.data_ptr(),
            _struct(kept),
        ):
            raise MemoryError


def _contiguous(motion: Motion) -> Motion:
    """Return a motion whose vectors can be read one entry after another."""
    shift = None if motion.shift is None else motion.shift.contiguous()
    return motion._replace(
        theta=motion.theta.contiguous(), start=motion.start.contiguous(), shift=shift
    )


def _struct(motion: Motion) -> _MotionStruct:
    """Return a motion as the kernel reads it: addresses of tensors, which must live meanwhile."""
    return _MotionStruct(
        theta=motion.theta.data_ptr(),
        start=motion.start.data_ptr(),
        shift=None if motion.shift is None else motion.shift.data_ptr(),
        velocity=motion.velocity.data_ptr(),
        out=None if motion.out is None else motion.out.data_ptr(),
        keep=motion.keep,
        rate=motion.rate,
        pull=motion.pull,
    )


def _filled(count: int) -> int:
    """Return a number of samples or inputs, filled up to whole panels."""
    return -(-count // PANEL) * PANEL
