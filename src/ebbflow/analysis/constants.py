"""The constants of Theorem 1 on a running model, and what each estimate means.

| constant | here | meaning |
|---|---|---|
| beta | `Problem.smoothness` | softmax regression: an upper bound for every w, in closed form |
| beta | `Problem.sharpness` | any model: the curvature at one w, so a lower bound |
| zeta_2 | `dissimilarity` | given zeta_1, the least that holds at the models that were seen, for the weights p_k: a lower bound of the assumption's |
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
    """The loss and the gradients at one w: F, ||grad F||^2, and every ||grad F_k||^2 ``[K]``."""

    loss: float
    square: float
    squares: Array


@dataclass(frozen=True)
class Problem:
    """F^(s): the devices of a session, their samples one device after another, and a model.

    Gradients are those of evaluation: no dropout, running statistics as they are, no crops.
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
        if model.linear:  # the bias is the weight of a last feature, one
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
        if self.model.linear:
            slopes, losses = self._slopes(state)
            flat = slopes.to(self.x.dtype)
            # Not in the order of theta, which norms do not see.
            tables = torch.stack([flat[at].T @ self.x[at] for at in self._places()]).double()
            own = tables.flatten(1) / torch.from_numpy(self.counts).to(tables)[:, None]
            whole = torch.from_numpy(self.shares).to(own) @ own
            squares = (own**2).sum(1).cpu().numpy()
            return Gradients(float(losses.mean()), float(whole @ whole), squares)
        whole = torch.zeros_like(state.theta, dtype=torch.float64)
        total, found = 0.0, []
        for at, count in zip(self._places(), self.counts.tolist(), strict=True):
            losses, gradient = self._gradient(state, at)
            mean = gradient.double() / count
            whole += mean * (count / len(self.y))
            found.append(float(mean @ mean))
            total += float(losses.sum())
        return Gradients(total / len(self.y), float(whole @ whole), np.array(found))

    def loss(self, state: ModelState) -> float:
        """Return F."""
        if self.model.linear:
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
        """Return softmax minus one-hot, and the loss, of samples of a linear model."""
        logits = (self.x[at] @ self._table(state.theta).T).double()
        logs = functional.log_softmax(logits, -1)
        own = self.y[at, None]
        loss = -logs.gather(1, own)[:, 0]
        return logs.exp().scatter_add(1, own, -torch.ones_like(logs[:, :1])), loss

    # --- smoothness -----------------------------------------------------------------------------

    def smoothness(self) -> float | None:
        """Return an upper bound of beta that holds for every w, where there is a closed form.

        Softmax regression: the Hessian of F_k is the mean of (diag(q) - q q^T) times x x^T, and
        the first factor's norm is at most 1/2. So beta_k <= lambda_max(X_k^T X_k / D_k) / 2, with
        the bias's one among the features.
        """
        if not self.model.linear:
            return None
        return max(self._curvatures)

    def steepest(self) -> int | None:
        """Return the device with the largest of these bounds, where there is a closed form."""
        return int(np.argmax(self._curvatures)) if self.model.linear else None

    @cached_property
    def _curvatures(self) -> list[float]:
        found = []
        for at in self._places():
            x = self.x[at].double()
            products = x @ x.T if len(x) < x.shape[1] else x.T @ x
            found.append(float(torch.linalg.eigvalsh(products)[-1]) / (2 * len(x)))
        return found

    def sharpness(self, state: ModelState, device: int | None = None, steps: int = 15) -> float:
        """Return |v^T H v| after power iteration on Hessian-vector products: a lower bound of beta.

        Args:
            state: The w whose Hessian it is.
            device: Of which F_k; without one, of F.
            steps: Products; the bound gets better with each.
        """
        at = slice(0, len(self.y)) if device is None else list(self._places())[device]
        draw = torch.Generator().manual_seed(0)
        v = torch.randn(state.theta.shape, generator=draw).to(state.theta)
        found = 0.0
        for _ in range(steps):
            v = v / torch.linalg.vector_norm(v)
            product = self._hessian_product(state, v, at)
            found = max(found, abs(float(v @ product)))
            if float(torch.linalg.vector_norm(product)) == 0:
                break
            v = product
        return found

    def _hessian_product(self, state: ModelState, v: Tensor, at: slice) -> Tensor:
        if self.model.linear:
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
        """Return sigma~_k^2, the summed squared distance of a device's features from their mean.

        Token numbers are no features: nan.
        """
        if not self.x.is_floating_point():
            return np.full(len(self.counts), np.nan)
        found = []
        for at in self._places():
            x = self.x[at].flatten(1).double()
            found.append(float(((x - x.mean(0)) ** 2).sum()))
        return np.array(found)

    def variances(self, state: ModelState) -> Array:
        """Return sigma_k^2, the sample variance of a device's gradients at one w."""
        if not self.model.linear:
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

        A lower bound of Theta: one w, and at most the first samples of a device. Two samples with
        the same features and different labels make it infinite, as they do the assumption's.
        """
        if not self.x.is_floating_point():
            return np.nan
        largest = 0.0
        for at in self._places():
            if self.model.linear:
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
        """Return the gradients of a device's first samples, one by one."""
        rows = range(at.start, min(at.stop, at.start + SINGLES))
        return torch.stack([self._gradient(state, slice(row, row + 1))[1] for row in rows])

    # --- the optimum ----------------------------------------------------------------------------

    def optimum(self, start: ModelState, iterations: int) -> float:
        """Return F(w*) after full-batch L-BFGS: an upper bound of the least loss.

        Softmax regression is convex, so more iterations come arbitrarily close to the infimum
        (which separable data only have at infinity); any other model ends at a stationary point.
        """
        shape = start.theta

        def value(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            state = ModelState(torch.from_numpy(flat).to(shape), start.buffers)
            if self.model.linear:
                slopes, losses = self._slopes(state)
                table = slopes.to(self.x.dtype).T @ self.x
                gradient = torch.cat([table[:, :-1].reshape(-1), table[:, -1]])
            else:
                losses, gradient = self._gradient(state, slice(0, len(self.y)))
            mean = gradient.double().cpu().numpy() / len(self.y)
            return float(losses.mean()), np.asarray(mean, dtype=np.float64)

        begin = start.theta.double().cpu().numpy()
        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20}
        found = minimize(value, begin, jac=True, method="L-BFGS-B", options=options)
        return min(float(found.fun), value(begin)[0])


def _distances(inner: Tensor) -> Tensor:
    """Return the distances between vectors from their inner products, zero within rounding."""
    squares = inner.diagonal()
    apart = squares[:, None] + squares - 2 * inner
    return torch.where(apart > 1e-12 * squares.max(), apart, 0).sqrt()


def dissimilarity(squares: Sequence[float], wholes: Sequence[float], zeta_1: float) -> float:
    """Return the least zeta_2 with sum p_k ||grad F_k||^2 <= zeta_1 ||grad F||^2 + zeta_2.

    Args:
        squares: sum_k p_k ||grad F_k||^2 at each of the models that were seen.
        wholes: ||grad F||^2 there.
        zeta_1: At least one.

    >>> dissimilarity([3.0, 5.0], [1.0, 4.0], zeta_1=1.0)
    2.0
    """
    return max(0.0, *(s - zeta_1 * g for s, g in zip(squares, wholes, strict=True)))
