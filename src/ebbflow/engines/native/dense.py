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

from ebbflow.core.dense import refuse_one_sample
from ebbflow.core.types import Buffers, DenseNetwork, Indices, Linear, Masked, Normalised
from ebbflow.engines.native.loading import loaded
from ebbflow.engines.native.vectors import spread

PANEL = 16  # samples that are laid out together
_ACTIVATIONS = {"relu": 1, "tanh": 2}
_LINEAR, _NORMALISED, _MASKED = range(3)


class _LayerStruct(ctypes.Structure):
    """The struct ``layer`` of dense.c."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("kind", "weight", "bias", "outputs", "inputs", "activation")
        ),
        *((name, ctypes.c_int64) for name in ("mean", "variance")),
        *((name, ctypes.c_double) for name in ("epsilon", "momentum")),
        *(("place", ctypes.c_int64), ("share", ctypes.c_double)),
    )


class _NetworkStruct(ctypes.Structure):
    """The struct ``network`` of dense.c."""

    _fields_ = (
        ("layers", ctypes.POINTER(_LayerStruct)),
        *((name, ctypes.c_int64) for name in ("count", "features", "draws")),
    )


class _MotionStruct(ctypes.Structure):
    """The struct ``motion`` of dense.c."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("theta", "start", "shift", "velocity", "out", "buffers")
        ),
        *((name, ctypes.c_float) for name in ("keep", "rate", "pull")),
    )


class KernelLayers(NamedTuple):
    """A network as the kernel sees it.

    Each of the ``layers`` is a stage of the network, with the activation behind it. ``features`` is
    the number of layers after which the representation is taken, or 0 if it is the scores.
    """

    layers: Sequence[_LayerStruct]
    features: int


def kernel_layers(network: DenseNetwork) -> KernelLayers | None:
    """Return a network as the kernel sees it, or None if it has other stages."""
    layers: list[_LayerStruct] = []
    ends: list[int] = []  # the number of stages up to the end of each layer
    for number, stage in enumerate(network.stages, 1):
        last = layers[-1] if layers else None
        if isinstance(stage, str):
            if last is None or last.activation or last.kind == _MASKED:
                return None
            last.activation = _ACTIVATIONS[stage]
            ends[-1] = number
        elif last is None and not isinstance(stage, Linear):
            return None
        else:
            layers.append(_layer(stage, 0 if last is None else last.outputs))
            ends.append(number)
    if network.features not in ends:
        return None
    whole = network.features == len(network.stages)
    return KernelLayers(layers, 0 if whole else ends.index(network.features) + 1)


def _layer(stage: Linear | Normalised | Masked, units: int) -> _LayerStruct:
    """Return a stage, given the number of units that it begins with."""
    if isinstance(stage, Masked):
        return _LayerStruct(
            kind=_MASKED, outputs=units, inputs=units, place=stage.place, share=stage.rate
        )
    places = {
        "weight": -1 if stage.weight is None else stage.weight.start,
        "bias": -1 if stage.bias is None else stage.bias.start,
    }
    if isinstance(stage, Linear):
        return _LayerStruct(kind=_LINEAR, outputs=stage.outputs, inputs=stage.inputs, **places)
    return _LayerStruct(
        kind=_NORMALISED,
        outputs=units,
        inputs=units,
        mean=stage.mean.start,
        variance=stage.variance.start,
        epsilon=stage.epsilon,
        momentum=stage.momentum,
        **places,
    )


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
    parts = ("inputs", "forward", "scores", "backward", "train")
    found = loaded(*(f"ebbflow_dense_{part}" for part in parts))
    if isinstance(found, str):
        return found
    whole, address = ctypes.c_int64, ctypes.c_void_p
    network = ctypes.POINTER(_NetworkStruct)
    found.ebbflow_dense_inputs.argtypes = (address, address, whole, whole, address, address)
    found.ebbflow_dense_inputs.restype = None
    found.ebbflow_dense_forward.argtypes = (
        *(network, address, address, ctypes.c_int),
        *(address, address, whole, address, address, address),
    )
    found.ebbflow_dense_forward.restype = None
    found.ebbflow_dense_scores.argtypes = (network, address, address, address, whole, address)
    found.ebbflow_dense_scores.restype = ctypes.c_int
    found.ebbflow_dense_backward.argtypes = (
        *(network, address, address, whole, address),
        *(address, address, ctypes.POINTER(_MotionStruct)),
    )
    found.ebbflow_dense_backward.restype = ctypes.c_int
    found.ebbflow_dense_train.argtypes = (
        *(network, address, address, address, address, whole, address),
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
    velocity, where ``out`` may be theta itself, or None if nothing is to move. `DenseKernel.train`
    brings the running statistics in ``buffers`` up to date.
    """

    theta: Tensor
    start: Tensor
    shift: Tensor | None
    velocity: Tensor
    out: Tensor | None
    keep: float
    rate: float
    pull: float
    buffers: Buffers | None = None


class DenseKernel:
    """Passes of a network through the kernel. All tensors are float32 and contiguous.

    ``draws`` is the number of draws that each sample has for layers that drop units.
    """

    def __init__(self, network: KernelLayers, draws: int = 0) -> None:
        found = library()
        assert found is not None
        layers, features = network
        self._library = found
        self._layers = (_LayerStruct * len(layers))(*layers)
        self._network = _NetworkStruct(self._layers, len(layers), features, draws)
        self.inputs = layers[0].inputs
        self.classes = layers[-1].outputs
        self.features = layers[features - 1].outputs if features else 0
        self._units = sum(layer.outputs for layer in layers)
        self._normalises = any(layer.kind == _NORMALISED for layer in layers)

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

    def forward(
        self,
        theta: Tensor,
        buffers: Buffers,
        x: LaidOut,
        noise: Tensor | None = None,
        *,
        train: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the values of all layers, the scores, and the features, if they are others.

        In training, units are dropped if there is noise, and running statistics in ``buffers`` are
        brought up to date.
        """
        if train:
            self._refuse_one(x.samples)
        values = torch.empty(_filled(x.samples) * self._units)
        scores = torch.empty(x.samples, self.classes)
        features = torch.empty(x.samples, self.features) if self.features else scores
        self._library.ebbflow_dense_forward(
            self._network,
            theta.data_ptr(),
            buffers.data_ptr(),
            train,
            x.by_sample.data_ptr(),
            None if noise is None else noise.data_ptr(),
            x.samples,
            values.data_ptr(),
            scores.data_ptr(),
            features.data_ptr() if self.features else None,
        )
        return values, scores, features

    def scores(self, theta: Tensor, buffers: Buffers, x: Tensor) -> Tensor:
        """Return the scores of samples ``x [., inputs]`` that are not trained on."""
        theta, buffers, x = theta.contiguous(), buffers.contiguous(), x.contiguous()
        scores = torch.empty(len(x), self.classes)
        if self._library.ebbflow_dense_scores(
            self._network,
            theta.data_ptr(),
            buffers.data_ptr(),
            x.data_ptr(),
            len(x),
            scores.data_ptr(),
        ):
            raise MemoryError
        return scores

    def _refuse_one(self, samples: int) -> None:
        if self._normalises:
            refuse_one_sample(samples)

    def train(
        self,
        x: Tensor,
        labels: Tensor,
        batches: Sequence[Indices],
        noise: Tensor | None,
        motions: Sequence[Motion],
        momentum: float,
    ) -> None:
        """Make all local steps of a device in every lane, by the mean cross-entropy of labels.

        ``noise`` is that of all samples of all mini-batches. Every motion's ``out`` becomes the
        trained model; ``keep`` is left to the kernel.
        """
        self._refuse_one(min(map(len, batches)))
        rows = np.concatenate(batches)
        ends = np.cumsum([len(each) for each in batches], dtype=np.int64)
        kept = [_readable(motion) for motion in motions]  # until the call returns
        structs = (_MotionStruct * len(kept))(*map(_struct, kept))
        if self._library.ebbflow_dense_train(
            self._network,
            x.data_ptr(),
            labels.data_ptr(),
            rows.ctypes.data,
            ends.ctypes.data,
            len(batches),
            None if noise is None else noise.data_ptr(),
            structs,
            len(kept),
            momentum,
        ):
            raise MemoryError

    def backward(
        self,
        x: LaidOut,
        noise: Tensor | None,
        values: Tensor,
        of_scores: Tensor,
        of_features: Tensor | None,
        motion: Motion,
    ) -> None:
        """Move theta along the gradient, from the loss's derivatives in scores and features."""
        kept = _readable(motion)
        of_scores = of_scores.contiguous()
        of_features = None if of_features is None else of_features.contiguous()
        if self._library.ebbflow_dense_backward(
            self._network,
            x.by_input.data_ptr(),
            None if noise is None else noise.data_ptr(),
            x.samples,
            values.data_ptr(),
            of_scores.data_ptr(),
            None if of_features is None else of_features.data_ptr(),
            _struct(kept),
        ):
            raise MemoryError


def _readable(motion: Motion) -> Motion:
    """Return a motion whose vectors are all as long as theta, and lie one entry after another."""
    shift = None if motion.shift is None else spread(motion.shift, motion.theta)
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
        buffers=None if motion.buffers is None else motion.buffers.data_ptr(),
        keep=motion.keep,
        rate=motion.rate,
        pull=motion.pull,
    )


def _filled(count: int) -> int:
    """Return a number of samples or inputs, filled up to whole panels."""
    return -(-count // PANEL) * PANEL
