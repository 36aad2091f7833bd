"""A device's side of a survey: the loss at a mixture of models, and its derivatives in the weights.

Everything here is a sum over samples, so devices can be put together or kept apart at will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jacfwd
from torch.nn import functional

from ebbflow.core.algorithm import cross_entropy_slope
from ebbflow.core.survey import Compression
from ebbflow.core.tasks import expanded_loss
from ebbflow.core.types import BagOfWords, Labels, Layout, Model, ModelState, Output
from ebbflow.core.vector import not_negative, unflatten

ROWS = 512  # the most samples in one forward pass
NUMBERS = 2**18  # of their inputs in one pass: activations, times K for the derivatives, must fit
STEP = 0.01  # in alpha: small beside one, and large beside the rounding of float32
ROUNDING = 1e-3  # the part of a curvature that may be negative before its digits count as lost


@dataclass(frozen=True)
class Basis:
    """A model's functions with K states to mix: ``thetas [K, P]`` and ``buffers [K, Q]``.

    If it is ``evaluated``, samples are given by the logits of all K models, ``[B, C, K]``, in place
    of inputs (see `for_samples`).
    """

    model: Model
    thetas: Tensor
    buffers: Tensor
    evaluated: bool = False

    def logits(self, alpha: Tensor, x: Tensor, buffers: Tensor | None = None) -> Tensor:
        """Return the logits at the mixture, in evaluation mode.

        ``buffers`` are the mixture's own by default. For a derivative in alpha they are held fixed:
        running statistics follow the parameters, and no model is differentiable in them.
        """
        if self.evaluated:
            return x @ alpha
        theta = alpha @ self.thetas
        bag = self.model.hints.bag_of_words
        if bag is not None:  # its kernel for means of word vectors has no forward derivative
            table = bag.vocabulary * bag.width
            words = theta[:table].view(bag.vocabulary, bag.width)[x]
            shares = bag.shares(x, theta.dtype).unsqueeze(-1)
            return bag.head(theta[table:], (words * shares).sum(1))
        if buffers is None:
            buffers = self.mixed_buffers(alpha)
        return self.model.forward(theta, buffers, x, None, False)[0].logits

    def mixed_buffers(self, alpha: Tensor) -> Tensor:
        """Return the buffers of a mixture, for which no weight is negative."""
        return not_negative(alpha) @ self.buffers

    def to(self, device: torch.device | str) -> Basis:
        """Return the basis on a device."""
        return replace(self, thetas=self.thetas.to(device), buffers=self.buffers.to(device))

    def for_samples(self, x: Tensor) -> tuple[Basis, Tensor]:
        """Return the basis and the samples in the form in which questions about them are cheapest.

        Where logits are linear in theta, the logits of a mixture are the mixture of the models'
        logits, which are computed once. Other models and samples are returned as they are; for text
        models see `SentModels`.
        """
        if not self.model.hints.linear:
            return self, x
        corners = torch.eye(len(self.thetas)).to(self.thetas)
        with torch.no_grad():
            each = torch.stack([self.logits(corner, x) for corner in corners], -1)
        return replace(self, evaluated=True), each


def basis_of(model: Model, states: Sequence[ModelState]) -> Basis:
    """Return the basis of some states of a model."""
    thetas = torch.stack([state.theta for state in states])
    return Basis(model, thetas, torch.stack([state.buffers for state in states]))


@dataclass(frozen=True)
class SentModels:
    """Models that a survey sends, from which devices make the basis for their own samples.

    Of a text model only the words that occur in the samples are needed: nothing of the table's size
    is rounded, stacked or mixed.

    Attributes:
        model: The model's functions.
        states: The models; those that were sent in bfloat16 may still be of that type.
        compression: How devices receive them.
        device: Where questions are answered.
    """

    model: Model
    states: Sequence[ModelState]
    compression: Compression = "fp32"
    device: torch.device | str = "cpu"

    def for_samples(self, x: Tensor) -> tuple[Basis, Tensor]:
        """Return the basis and the samples in the form in which questions about them are cheapest.

        A text model is restricted to the words that occur; see `Basis.for_samples` for others.
        """
        bag = self.model.hints.bag_of_words
        if bag is None:
            return self._whole.for_samples(x)
        words, (renumbered,), smaller = bag.subset([x])
        some = [_with_words(state, bag, words) for state in self.states]
        smaller = replace(smaller, task=self.model.task)
        there = received(some, smaller.layout, self.compression, self._units)
        return basis_of(smaller, there).to(self.device), renumbered

    @cached_property
    def _whole(self) -> Basis:
        layout = self.model.layout
        states = [_in_float(state) for state in self.states]
        return basis_of(self.model, received(states, layout, self.compression)).to(self.device)

    @cached_property
    def _units(self) -> list[list[Tensor]]:
        return [] if self.compression != "int8" else _units(self.states, self.model.layout)


def _with_words(state: ModelState, bag: BagOfWords, words: Tensor) -> ModelState:
    """Return a text model with some rows of its table."""
    table, tail = torch.tensor_split(state.theta, [bag.vocabulary * bag.width])
    rows = table.view(bag.vocabulary, bag.width)[words.to(table.device)]
    return _in_float(state._replace(theta=torch.cat([rows.flatten(), tail])))


def _in_float(state: ModelState) -> ModelState:
    rounded = state.theta.dtype == torch.bfloat16
    return state._replace(theta=state.theta.float()) if rounded else state


def received(
    states: Sequence[ModelState],
    layout: Layout,
    compression: Compression,
    units: Sequence[Sequence[Tensor]] = (),
) -> list[ModelState]:
    """Return a basis as devices receive it.

    In 8 bits, a difference from the first model is rounded to a multiple of its tensor's largest
    entry over 127. These ``units``, of every model but the first and every tensor, are given where
    the models are only parts of those that are sent. Buffers are few, and sent as they are.
    """
    if compression == "fp32":
        return list(states)
    if compression == "bf16":
        return [state._replace(theta=state.theta.bfloat16().to(state.theta)) for state in states]
    units = units or _units(states, layout)
    first = states[0].theta.bfloat16().to(states[0].theta)
    thetas = [first]
    for state, of_tensors in zip(states[1:], units, strict=True):
        thetas.append(first + _eight_bits(state.theta - first, layout, of_tensors))
    return [state._replace(theta=theta) for state, theta in zip(states, thetas, strict=True)]


def _units(states: Sequence[ModelState], layout: Layout) -> list[list[Tensor]]:
    """Return the largest entry over 127 of each tensor of every model less the first one."""
    first = states[0].theta.bfloat16().to(states[0].theta)
    return [
        [
            tensor.abs().amax() / 127 if tensor.numel() else torch.tensor(1.0)
            for tensor in unflatten(state.theta - first, layout).values()
        ]
        for state in states[1:]
    ]


def _eight_bits(difference: Tensor, layout: Layout, units: Sequence[Tensor]) -> Tensor:
    parts = []
    for tensor, unit in zip(unflatten(difference, layout).values(), units, strict=True):
        rounded = torch.round(tensor / unit) * unit if unit > 0 else tensor
        parts.append(rounded.reshape(-1))
    return torch.cat(parts) if parts else difference


def basis_bytes(parameters: int, buffers: int, models: int, compression: Compression) -> int:
    """Return the bytes of a basis on the air; the scales of 8-bit tensors are not counted.

    >>> [basis_bytes(1000, 0, 4, how) for how in ("fp32", "bf16", "int8")]
    [16000, 8000, 5000]
    """
    of_theta = {
        "fp32": 4 * models * parameters,
        "bf16": 2 * models * parameters,
        "int8": (models + 1) * parameters,
    }[compression]
    return of_theta + 4 * models * buffers


def sample_losses(basis: Basis, mixtures: Tensor, x: Tensor, y: Labels) -> Tensor:
    """Return the loss of every sample at every one of ``mixtures [A, K]``: ``[A, B]``."""

    def losses(alpha: Tensor) -> Tensor:
        logits = torch.cat([basis.logits(alpha, rows) for rows in torch.split(x, rows_at_once(x))])
        return basis.model.task.loss(logits, y)

    with torch.no_grad():
        return torch.stack([losses(alpha) for alpha in mixtures])


def rows_at_once(x: Tensor) -> int:
    """Return how many samples go through a model at a time; it depends on a sample's size only."""
    return max(1, min(ROWS, NUMBERS // max(1, x[:1].numel())))


def expanded(
    basis: Basis, alpha: Tensor, x: Tensor, y: Labels, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted sum of the losses, its slope ``[K]`` and curvature ``[K, K]``, float64.

    With J the derivative of a sample's logits in alpha and p its predictions, the slope is
    J^T (p - y) and the Gauss-Newton curvature J^T (diag(p) - p p^T) J. Other tasks have others.
    Where predictions are all but certain, that difference has no digits left in 32 bits, and may be
    negative. The spread of J around its mean, sum_c p_c (J_c - p^T J)^T (J_c - p^T J), is the same
    matrix and never negative; it replaces a difference that is.
    """
    size = len(alpha)
    loss = torch.zeros((), dtype=torch.float64)
    slope = torch.zeros(size, dtype=torch.float64)
    curvature, around_mean = torch.zeros(2, size, size, dtype=torch.float64)
    parts = (torch.split(each, rows_at_once(x)) for each in (x, y, weights))
    for rows, labels, counts in zip(*parts, strict=True):
        logits, jacobian = _with_derivative(basis, alpha, rows)
        task = basis.model.task
        if not task.labels:  # below the same for classes, rounded as in all results that are kept
            first, second = expanded_loss(task, logits, labels, counts, jacobian)
            loss += (task.loss(logits, labels).double() * counts).sum().cpu()
            slope += first.double().cpu()
            curvature += second.double().cpu()
            around_mean += second.double().cpu()
            continue
        each = functional.cross_entropy(logits, labels, reduction="none")
        predicted = functional.softmax(logits, -1)
        error = cross_entropy_slope(Output(logits, logits), labels, counts).logits
        weighted = predicted.unsqueeze(-1) * jacobian
        mean = weighted.sum(1)
        spread = torch.einsum("b,bck,bcl->kl", counts, weighted, jacobian)
        spread = spread - torch.einsum("b,bk,bl->kl", counts, mean, mean)
        loss += (each.double() * counts).sum().cpu()
        slope += torch.einsum("bc,bck->k", error, jacobian).double().cpu()
        curvature += spread.double().cpu()
        away = jacobian - mean.unsqueeze(1)
        spread = torch.einsum("b,bck,bcl->kl", counts, predicted.unsqueeze(-1) * away, away)
        around_mean += spread.double().cpu()
    return loss, slope, around_mean if _negative(curvature) else curvature


def _negative(curvature: Tensor) -> bool:
    """Whether a curvature is more negative than rounding makes it by itself."""
    values = torch.linalg.eigvalsh(curvature.nan_to_num())
    return bool(values[0] < -ROUNDING * values.abs().max())


def expansion_passes(models: int) -> int:
    """Return the work of an expansion for each sample, in forward passes.

    There is one at the mixture, and for each model a derivative, which costs two: one through the
    inputs of every layer and one through its weights. Where logits are linear in theta, no pass is
    needed once the models have been evaluated.
    """
    return 1 + 2 * models


def _with_derivative(basis: Basis, alpha: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits ``[B, C]`` and their derivative in alpha ``[B, C, K]``."""
    with torch.no_grad():
        if basis.evaluated:
            return x @ alpha, x
        buffers = basis.mixed_buffers(alpha)
        value = basis.logits(alpha, x, buffers)
        try:
            return value, jacfwd(lambda weights: basis.logits(weights, x, buffers))(alpha)
        except (NotImplementedError, RuntimeError):  # a layer has no forward derivative
            return value, _differences(basis, alpha, x, buffers)


def _differences(basis: Basis, alpha: Tensor, x: Tensor, buffers: Tensor) -> Tensor:
    """Return the derivative of the logits by central differences."""
    sides = [
        basis.logits(alpha + step, x, buffers) - basis.logits(alpha - step, x, buffers)
        for step in STEP * torch.eye(len(alpha)).to(alpha)
    ]
    return torch.stack(sides, -1) / (2 * STEP)
