"""Estimates of the constants of Theorem 1 at the models of a run, and what each one means.

| constant | here | meaning |
|---|---|---|
| beta | `Problem.smoothness` | softmax regression: an upper bound for every w, in closed form |
| beta | `Problem.sharpness` | any model: the curvature at one w, so a lower bound |
| zeta_2 | `dissimilarity` | the least that holds, given zeta_1 and the weights p_k, at the models that were seen: a lower bound |
| Theta | `Problem.variability` | the largest ratio over pairs of samples at one w: a lower bound |
| sigma~_k^2 | `Problem.dispersion` | exact: it depends on the features alone |
| sigma_k^2 | `Problem.variances` | exact at one w (softmax regression), else over a device's first samples |
"""  # noqa: E501 - a table's rows cannot be broken

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from ebbflow.analysis.bound import Array
from ebbflow.core.inputs import prepared
from ebbflow.core.types import Examples, Indices, Model, ModelState

PAIRS = 128  # samples of a device whose pairs are looked at
SINGLES = 8  # samples of a device whose own gradients are computed, one by one
ROWS = 1024  # samples in one forward pass of a model without a closed form

EVERYTHING = slice(None)


class Gradients(NamedTuple):
    """F, ||grad F||^2 and every ||grad F_k||^2 ``[K]`` at one w."""

    loss: float
    square: float
    squares: Array


@dataclass(frozen=True)
class Problem:
    """The loss F^(s) of a session: a model, and the samples of one device after another.

    Gradients are taken in evaluation mode: no dropout, fixed running statistics, no crops.
    """

    model: Model
    x: Tensor
    y: Tensor
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, model: Model, examples: Examples, shards: Sequence[Indices]) -> Problem:
        """Return the problem of these devices."""
        rows = torch.from_numpy(np.concatenate(shards)).to(examples.y.device)
        x = prepared(examples.x[rows], examples.pixels)
        if model.hints.linear:  # the bias is the weight of a last feature that is always 1
            x = torch.cat([x.flatten(1), x.new_ones(len(x), 1)], 1)
        return cls(model, x, examples.y[rows], np.array([len(shard) for shard in shards]))

    @property
    def shares(self) -> Array:
        """p_k = D_k / D."""
        return np.asarray(self.counts / self.counts.sum(), dtype=np.float64)

    def _places(self) -> Iterator[slice]:
        end = 0
        for count in self.counts.tolist():
            yield slice(end, end + count)
            end += count

    # --- loss and gradients ---------------------------------------------------------------------

    def gradients(self, state: ModelState) -> Gradients:
        """Return F, ||grad F||^2 and every ||grad F_k||^2."""
        if self.model.hints.linear:
            slopes, losses = self._slopes(state)
            flat = slopes.to(self.x.dtype)
            # Not in the order of theta, which does not matter for norms.
            tables = torch.stack([flat[at].T @ self.x[at] for at in self._places()]).double()
            own = tables.flatten(1) / torch.from_numpy(self.counts).to(tables)[:, None]
            whole = torch.from_numpy(self.shares).to(own) @ own
            squares = (own**2).sum(1).cpu().numpy()
            return Gradients(float(losses.mean()), float(whole @ whole), squares)
        whole = torch.zeros_like(state.theta, dtype=torch.float64)
        total, squares_of = 0.0, []
        for at, count in zip(self._places(), self.counts.tolist(), strict=True):
            losses, gradient = self._gradient(state, at)
            mean = gradient.double() / count
            whole += mean * (count / len(self.y))
            squares_of.append(float(mean @ mean))
            total += float(losses.sum())
        return Gradients(total / len(self.y), float(whole @ whole), np.array(squares_of))

    def loss(self, state: ModelState) -> float:
        """Return F."""
        if self.model.hints.linear:
            return float(self._slopes(state)[1].mean())
        with torch.no_grad():
            parts = [self._losses(state.theta, state, at) for at in self._parts()]
        return float(torch.cat(parts).mean())

    def _parts(self, within: slice | None = None) -> Iterator[slice]:
        whole = within or slice(0, len(self.y))
        for at in range(whole.start, whole.stop, ROWS):
            yield slice(at, min(at + ROWS, whole.stop))

    def _losses(self, theta: Tensor, state: ModelState, at: slice) -> Tensor:
        output, _ = self.model.forward(theta, state.buffers, self.x[at], None, False)
        return functional.cross_entropy(output.logits.double(), self.y[at], reduction="none")

    def _gradient(self, state: ModelState, at: slice) -> tuple[Tensor, Tensor]:
        """Return the losses of some rows and the gradient of their sum."""
        theta = state.theta.detach().clone().requires_grad_()
        total, losses = torch.zeros_like(state.theta), []
        for part in self._parts(at):
            loss = self._losses(theta, state, part)
            (gradient,) = torch.autograd.grad(loss.sum(), theta)
            total += gradient
            losses.append(loss.detach())
        return torch.cat(losses), total

    def _table(self, theta: Tensor) -> Tensor:
        """Return theta = (W, b) as one table ``[C, features + 1]``."""
        size = self.x.shape[1] - 1
        classes = theta.numel() // (size + 1)
        return torch.cat(
            [theta[: classes * size].view(classes, size), theta[classes * size :, None]], 1
        )

    def _slopes(self, state: ModelState, at: slice = EVERYTHING) -> tuple[Tensor, Tensor]:
        """Return softmax minus one-hot, and the loss, for samples of a linear model."""
        logits = (self.x[at] @ self._table(state.theta).T).double()
        logs = functional.log_softmax(logits, -1)
        own = self.y[at, None]
        loss = -logs.gather(1, own)[:, 0]
        return logs.exp().scatter_add(1, own, -torch.ones_like(logs[:, :1])), loss

    # --- smoothness -----------------------------------------------------------------------------

    def smoothness(self) -> float | None:
        """Return an upper bound of beta that holds for every w, or None if there is no closed form.

        Softmax regression: the Hessian of F_k is the mean of (diag(q) - q q^T) times x x^T, and
        the first factor's norm is at most 1/2. So beta_k <= lambda_max(X_k^T X_k / D_k) / 2, where
        the features include the 1 of the bias.
        """
        if not self.model.hints.linear:
            return None
        return max(self._curvatures)

    def steepest(self) -> int | None:
        """Return the device with the largest bound, or None if there is no closed form."""
        return int(np.argmax(self._curvatures)) if self.model.hints.linear else None

    @cached_property
    def _curvatures(self) -> list[float]:
        curvatures = []
        for at in self._places():
            x = self.x[at].double()
            products = x @ x.T if len(x) < x.shape[1] else x.T @ x
            curvatures.append(float(torch.linalg.eigvalsh(products)[-1]) / (2 * len(x)))
        return curvatures

    def sharpness(self, state: ModelState, device: int | None = None, steps: int = 15) -> float:
        """Return |v^T H v| after power iteration on Hessian-vector products: a lower bound of beta.

        Args:
            state: The w at which the Hessian is taken.
            device: The k of F_k; without one, F.
            steps: The number of products; each improves the bound.
        """
        at = slice(0, len(self.y)) if device is None else list(self._places())[device]
        draw = torch.Generator().manual_seed(0)
        v = torch.randn(state.theta.shape, generator=draw).to(state.theta)
        largest = 0.0
        for _ in range(steps):
            v = v / torch.linalg.vector_norm(v)
            product = self._hessian_product(state, v, at)
            largest = max(largest, abs(float(v @ product)))
            if float(torch.linalg.vector_norm(product)) == 0:
                break
            v = product
        return largest

    def _hessian_product(self, state: ModelState, v: Tensor, at: slice) -> Tensor:
        if self.model.hints.linear:
            slopes, _ = self._slopes(state, at)
            q = slopes.scatter_add(1, self.y[at, None], torch.ones_like(slopes[:, :1]))
            x = self.x[at]
            moved = (x @ self._table(v).T).double()
            turned = q * moved - q * (q * moved).sum(1, keepdim=True)
            table = (turned.to(x.dtype).T @ x) / len(x)
            return torch.cat([table[:, :-1].reshape(-1), table[:, -1]])
        theta = state.theta.detach().clone().requires_grad_()
        total = torch.zeros_like(v)
        for part in self._parts(at):
            loss = self._losses(theta, state, part).sum() / (at.stop - at.start)
            (gradient,) = torch.autograd.grad(loss, theta, create_graph=True)
            (product,) = torch.autograd.grad(gradient @ v, theta)
            total += product
        return total

    # --- noise ----------------------------------------------------------------------------------

    def dispersion(self) -> Array:
        """Return sigma~_k^2: squared distances of a device's features from their mean, summed.

        It is nan for texts, because token numbers are not features.
        """
        if not self.x.is_floating_point():
            return np.full(len(self.counts), np.nan)
        dispersions = []
        for at in self._places():
            x = self.x[at].flatten(1).double()
            dispersions.append(float(((x - x.mean(0)) ** 2).sum()))
        return np.array(dispersions)

    def variances(self, state: ModelState) -> Array:
        """Return sigma_k^2, the sample variance of a device's gradients at one w."""
        if not self.model.hints.linear:
            singles = (self._singles(state, at) for at in self._places())
            return np.array([float(g.var(0).sum()) if len(g) > 1 else 0.0 for g in singles])
        slopes, _ = self._slopes(state)
        sizes = torch.linalg.vector_norm(self.x, dim=1, dtype=torch.float64)
        norms = (slopes**2).sum(1) * sizes**2
        own = self.gradients(state).squares
        means = np.array([float(norms[at].mean()) for at in self._places()])
        return np.maximum(means - own, 0) * self.counts / np.maximum(self.counts - 1, 1)

    def variability(self, state: ModelState) -> float:
        """Return the largest ||grad f(d) - grad f(d')|| / ||x - x'|| over pairs on a device.

        This is a lower bound of Theta, from one w and the first samples of each device. Two samples
        with equal features and different labels make it infinite, and Theta as well.
        """
        if not self.x.is_floating_point():
            return np.nan
        largest = 0.0
        for at in self._places():
            if self.model.hints.linear:
                first = slice(at.start, min(at.stop, at.start + PAIRS))
                x = self.x[first].double()
                q, _ = self._slopes(state, first)
                inner = x @ x.T
                changes, apart = _distances((q @ q.T) * inner), _distances(inner)
            else:
                gradients = self._singles(state, at).double()
                x = self.x[at.start : at.start + len(gradients)].flatten(1).double()
                changes, apart = _distances(gradients @ gradients.T), _distances(x @ x.T)
            if bool((changes > 0).any()):
                largest = max(largest, float((changes / apart)[changes > 0].max()))
        return largest

    def _singles(self, state: ModelState, at: slice) -> Tensor:
        """Return the gradient of each of a device's first samples."""
        rows = range(at.start, min(at.stop, at.start + SINGLES))
        return torch.stack([self._gradient(state, slice(row, row + 1))[1] for row in rows])

    # --- the optimum ----------------------------------------------------------------------------

    def optimum(self, start: ModelState, iterations: int) -> float:
        """Return F(w*) after full-batch L-BFGS: an upper bound of the least loss.

        Softmax regression is convex, so more iterations come arbitrarily close to the infimum
        (which separable data reach only at infinity). Any other model ends at a stationary point.
        """
        shape = start.theta

        def value(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            state = ModelState(torch.from_numpy(flat).to(shape), start.buffers)
            if self.model.hints.linear:
                slopes, losses = self._slopes(state)
                table = slopes.to(self.x.dtype).T @ self.x
                gradient = torch.cat([table[:, :-1].reshape(-1), table[:, -1]])
            else:
                losses, gradient = self._gradient(state, slice(0, len(self.y)))
            mean = gradient.double().cpu().numpy() / len(self.y)
            return float(losses.mean()), np.asarray(mean, dtype=np.float64)

        begin = start.theta.double().cpu().numpy()
        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20}
        solution = minimize(value, begin, jac=True, method="L-BFGS-B", options=options)
        return min(float(solution.fun), value(begin)[0])


def _distances(inner: Tensor) -> Tensor:
    """Return the distances between vectors from their inner products; rounding counts as zero."""
    squares = inner.diagonal()
    apart = squares[:, None] + squares - 2 * inner
    return torch.where(apart > 1e-12 * squares.max(), apart, 0).sqrt()


def dissimilarity(squares: Sequence[float], wholes: Sequence[float], zeta_1: float) -> float:
    """Return the least zeta_2 with sum p_k ||grad F_k||^2 <= zeta_1 ||grad F||^2 + zeta_2.

    Args:
        squares: sum_k p_k ||grad F_k||^2 at each model that was seen.
        wholes: ||grad F||^2 at the same models.
        zeta_1: At least one.

    >>> dissimilarity([3.0, 5.0], [1.0, 4.0], zeta_1=1.0)
    2.0
    """
    return max(0.0, *(s - zeta_1 * g for s, g in zip(squares, wholes, strict=True)))
