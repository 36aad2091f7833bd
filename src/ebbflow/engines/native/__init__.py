"""The fused kernel for softmax regression, built at installation if there is a C compiler.

Without it everything runs in torch, with the same results up to rounding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.algorithm import Affine
from ebbflow.core.local import Lane, Recipe
from ebbflow.core.objectives import Contrast, Distillation
from ebbflow.core.types import Examples, Indices, Model, State
from ebbflow.engines.native.loading import loaded
from ebbflow.engines.native.vectors import fitting, spread


class _LaneStruct(ctypes.Structure):
    """The struct ``lane`` of softmax.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("theta", "shift", "previous", "seen", "teacher")),
        ("known", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, ctypes.c_float) for name in ("rate", "pull", "mu", "tau", "kl", "temperature")),
    )


class _WorkStruct(ctypes.Structure):
    """The struct ``work`` of softmax.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "labels", "rows", "steps", "begins", "lanes")),
        *(
            (name, ctypes.c_int64)
            for name in ("inputs", "classes", "lane_count", "devices", "largest")
        ),
        ("radius", ctypes.c_double),
        ("momentum", ctypes.c_float),
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
    """Return the compiled kernel, or why it cannot be used."""
    found = loaded("ebbflow_softmax")
    if not isinstance(found, str):
        found.ebbflow_softmax.argtypes = (ctypes.POINTER(_WorkStruct),)
        found.ebbflow_softmax.restype = ctypes.c_int
    return found


class Kernel:
    """Trains devices one after another, each mini-batch in all lanes."""

    def __init__(self, model: Model, examples: Examples, recipe: Recipe) -> None:
        self.library = library()
        self.examples = examples
        self.recipe = recipe
        self.classes = model.layout.shapes[-1][0]
        self.parameters = model.layout.total

    def train(
        self,
        lanes: Sequence[Lane],
        clients: Sequence[Sequence[State]],
        batches: Sequence[Sequence[Indices]],
    ) -> list[Tensor]:
        """Return every lane's local models ``[devices, P]``.

        Args:
            lanes: The methods, all with algorithms that the kernel computes.
            clients: For every lane the states of the devices.
            batches: For every device the rows of each step.
        """
        assert self.library is not None
        steps = [rows for device in batches for rows in device]
        sizes = np.array([len(rows) for rows in steps], dtype=np.int64)
        rows = np.concatenate(steps) if steps else np.zeros(0, dtype=np.int64)
        begins = _starts(np.array([len(device) for device in batches], dtype=np.int64))
        ends = _starts(sizes)
        kept: list[Tensor] = []  # the kernel gets addresses: these must live until it returns
        outs = [torch.empty(len(batches), self.parameters) for _ in lanes]
        described = (_LaneStruct * len(lanes))(
            *(
                self._describe(lane, states, out, kept)
                for lane, states, out in zip(lanes, clients, outs, strict=True)
            )
        )
        work = _WorkStruct(
            x=self.examples.x.data_ptr(),
            labels=self.examples.y.data_ptr(),
            rows=rows.ctypes.data,
            steps=ends.ctypes.data,
            begins=begins.ctypes.data,
            lanes=ctypes.addressof(described),
            inputs=self.parameters // self.classes - 1,
            classes=self.classes,
            lane_count=len(lanes),
            devices=len(batches),
            largest=int(sizes.max(initial=1)),
            radius=self.recipe.radius or 0.0,
            momentum=self.recipe.momentum,
        )
        if self.library.ebbflow_softmax(ctypes.byref(work)):
            raise MemoryError
        return outs

    def _describe(
        self, lane: Lane, states: Sequence[State], out: Tensor, kept: list[Tensor]
    ) -> _LaneStruct:
        def address(tensor: Tensor) -> int:
            kept.append(tensor.contiguous())
            return kept[-1].data_ptr()

        shared, algorithm = lane.shared, lane.algorithm
        theta, direction = shared.theta, algorithm.direction
        assert isinstance(direction, Affine)
        struct = _LaneStruct(theta=address(theta), out=out.data_ptr(), rate=lane.lr)
        struct.pull = direction.pull
        if direction.shift is not None:
            shifts = [spread(direction.shift(shared, own), theta) for own in states]
            struct.shift = address(torch.stack(shifts))
        objective = algorithm.objective
        if isinstance(objective, Distillation):
            teacher = algorithm.anchors(shared, states[0])["teacher"].theta
            struct.teacher = address(fitting(teacher, theta))
            struct.kl, struct.temperature = objective.kl, objective.temperature
            if objective.target == "mixed":
                known = torch.zeros(self.classes, dtype=torch.uint8)
                known[list(objective.known)] = 1
                struct.known = address(known)
            objective = objective.base
        if isinstance(objective, Contrast):
            before = [algorithm.anchors(shared, own)["previous"].theta for own in states]
            struct.previous = address(torch.stack([fitting(each, theta) for each in before]))
            seen = [own["seen"].to(theta).reshape(()) for own in states]
            struct.seen = address(torch.stack(seen))
            struct.mu, struct.tau = objective.mu, objective.tau
        return struct


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where parts of these sizes begin when they are laid end to end, and the end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
