"""How close two sessions are, and how much a past model should count.

A session's signature is its pseudo-gradient G_s = w_grad^(s,V+1) - w_Pilot. A past session z gets
the weight mu_(s,z), proportional to exp(-R d(G_s, G_z)). The paper prints d as the plain two-norm;
its authors' code normalises every tensor first. Only then do their values of R make sense: the norm
of G depends on the rate, the model and the steps, and can be 0.003 or 30.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.types import Layout

Distance = Callable[[Tensor, Tensor, Layout], float]
"""d(G_s, G_z), computed in float64."""


def raw(a: Tensor, b: Tensor, layout: Layout) -> float:
    """Return ||a - b||, as the paper prints it."""
    return float(torch.linalg.vector_norm(a.double() - b.double()))


def _unit(v: Tensor, norm: Tensor | None = None) -> Tensor:
    # A zero tensor (a frozen layer) stays zero rather than becoming 0/0.
    norm = torch.linalg.vector_norm(v) if norm is None else norm
    return v / norm if norm > 0 else v


def per_tensor(a: Tensor, b: Tensor, layout: Layout) -> float:
    """Return the mean over tensors of ||a_i/||a_i|| - b_i/||b_i||||, as the authors' code does.

    Tensors whose name contains "bias" are left out, and so are those that are zero in both vectors.
    The result lies between 0 and 2.

    >>> layout = Layout(("weight", "bias"), ((2,), (1,)))
    >>> per_tensor(torch.tensor([1.0, 0, 5]), torch.tensor([9.0, 0, -5]), layout)
    0.0
    """
    distances = []
    for name, where in layout.slices().items():
        if "bias" in name:
            continue
        left, right = a[where].double(), b[where].double()
        norms = torch.linalg.vector_norm(left), torch.linalg.vector_norm(right)
        if norms[0] == 0 and norms[1] == 0:
            continue
        apart = _unit(left, norms[0]) - _unit(right, norms[1])
        distances.append(float(torch.linalg.vector_norm(apart)))
    if len(distances) > 1:
        return float(np.mean(distances))
    return distances[0] if distances else 0.0


def normalised(a: Tensor, b: Tensor, layout: Layout) -> float:
    """Return ||a/||a|| - b/||b|||| over the whole vectors."""
    return float(torch.linalg.vector_norm(_unit(a.double()) - _unit(b.double())))


def inner_product(a: Tensor, b: Tensor, layout: Layout) -> float:
    """Return 1 - <a, b> / (||a|| ||b||): zero for the same direction, two for the opposite one."""
    if not (a.any() or b.any()):
        return 0.0
    return 1.0 - float(torch.dot(_unit(a.double()), _unit(b.double())))


DISTANCES: dict[str, Distance] = {
    "per_tensor": per_tensor,
    "raw": raw,
    "normalised": normalised,
    "inner_product": inner_product,
}


# --- from one signature to many ------------------------------------------------------------------


class ToAll(NamedTuple):
    """A distance from one signature to many that have been brought into its form once and for all.

    Attributes:
        form: A signature in float64, as the distance compares it.
        apart: Distances from one signature to the rows of a matrix, all of them in that form.
    """

    form: Callable[[Tensor, Layout], Tensor]
    apart: Callable[[Tensor, Tensor, Layout], Tensor]


_CLOSE = 1e-4  # a squared distance; roots of larger ones are right to 1e-11


def _length(rows: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths


def _compared(layout: Layout) -> list[slice]:
    """Return where the tensors lie that `per_tensor` compares, once the biases are left out."""
    sizes = [
        where.stop - where.start for name, where in layout.slices().items() if "bias" not in name
    ]
    ends = np.cumsum(sizes).tolist()
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _form_per_tensor(v: Tensor, layout: Layout) -> Tensor:
    parts = [
        _unit(v[where].double()) for name, where in layout.slices().items() if "bias" not in name
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def _apart_per_tensor(a: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    total = torch.zeros(len(rows), dtype=torch.float64)
    count = torch.zeros(len(rows), dtype=torch.float64)
    for where in _compared(layout):
        apart = _apart_of_units(a[where], rows[:, where])
        total += apart
        # A tensor is one unit long or zero; where it is zero in both, nothing is counted.
        count += 1.0 if a[where].any() else apart > 0
    return total / count.clamp(min=1)


def _apart_inner_product(a: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    apart = 1.0 - rows @ a
    return apart if a.any() else torch.where(rows.any(1), apart, 0.0)


def _apart_normalised(a: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    return _apart_of_units(a, rows)


def _apart_raw(a: Tensor, rows: Tensor, layout: Layout) -> Tensor:
    return _length(rows - a)


def _apart_of_units(a: Tensor, rows: Tensor) -> Tensor:
    """Return ||a - b|| for the rows b of a matrix; all vectors have length one, or are zero."""
    # ||a - b||^2 = 2 - 2 <a, b> takes one pass over a long past. Differences are formed where it
    # would lose digits, and where a vector may be zero.
    products = rows @ a
    squares = 2.0 - 2.0 * products
    apart = squares.sqrt()
    doubtful = (squares < _CLOSE) | (products == 0.0)
    if doubtful.any():
        apart[doubtful] = _length(rows[doubtful] - a)
    return apart


def _form_unit(v: Tensor, layout: Layout) -> Tensor:
    return _unit(v.double())


TO_ALL: dict[str, ToAll] = {
    "per_tensor": ToAll(_form_per_tensor, _apart_per_tensor),
    "raw": ToAll(lambda v, layout: v.double(), _apart_raw),
    "normalised": ToAll(_form_unit, _apart_normalised),
    "inner_product": ToAll(_form_unit, _apart_inner_product),
}
"""The distances of `DISTANCES` to many signatures: the same up to rounding, and many times sooner
where signatures are short."""


def distances_to_all(name: str, a: Tensor, blocks: Iterable[Tensor], layout: Layout) -> list[float]:
    """Return the distances from a signature to the rows of matrices in the form of `ToAll`."""
    to_all = TO_ALL[name]
    one = to_all.form(a, layout)
    return [apart for rows in blocks for apart in to_all.apart(one, rows, layout).tolist()]


def similarity_weights(distances: Sequence[float], scale: float) -> NDArray[np.float64]:
    """Return mu_z = exp(-R d_z) / sum exp(-R d), for any R from 0 to infinity.

    R = 0 gives the plain average, R = inf the nearest session alone (ties share). Subtracting
    the smallest distance first (log-sum-exp) keeps R = 800 from underflowing to 0/0.

    >>> similarity_weights([0.1, 0.2], 0.0).tolist()
    [0.5, 0.5]
    >>> similarity_weights([0.1, 0.2], float("inf")).tolist()
    [1.0, 0.0]
    """
    excess = np.asarray(distances, dtype=np.float64)
    excess = excess - excess.min()
    with np.errstate(invalid="ignore", over="ignore"):  # inf * 0 for the nearest; -inf is fine
        exponent = np.where(excess == 0, 0.0, -scale * excess)
    powers = np.exp(exponent)
    return np.asarray(powers / powers.sum())


def nearly_uniform(weights: Sequence[float], tolerance: float = 0.05) -> bool:
    """Return whether the largest weight exceeds 1/n by less than the fraction ``tolerance``.

    Then the warm start is the plain average in all but name, and R or the distance is badly chosen.

    >>> nearly_uniform([0.34, 0.33, 0.33]), nearly_uniform([0.9, 0.1]), nearly_uniform([1.0])
    (True, False, False)
    """
    return len(weights) > 1 and max(weights) * len(weights) < 1 + tolerance
