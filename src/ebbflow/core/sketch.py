"""Sketches: signatures projected to at most 4,096 numbers, which rule out distant past sessions.

A signature G_z has as many entries as the model has parameters. Far fewer numbers usually suffice
to see whether a past session z can have any weight mu_(s,z) proportional to exp(-R d(G_s, G_z)): a
random projection preserves every length and every distance up to a small error. So each session
has a *sketch*, all sketches form one matrix, and one pass over it bounds every distance from below.
Distances are then measured exactly, smallest bound first, until the sessions that are left weigh
less than `DROPPED` together. If the bounds rule nothing out, every distance is measured.

**The projection** of a tensor x to k numbers. Its entries are arranged in columns of B >= k; every
entry gets a random sign, a fast Hadamard transform H mixes every column, k of its rows are kept,
and the columns are added up, again with random signs:

    y_j = sum_c f_(j,c) (H D_c x_c)_j,    S x = y / sqrt(k).

Every y_j is a sum of all entries of x, each with a random sign, so E||S x||^2 = ||x||^2, and the
variance of ||S x||^2 is at most (2/k) ||x||^4, the variance for k independent Gaussian rows. No
array of size k x n is needed. Signs and rows are drawn by name: they are the same in every process
and do not depend on a run's seed.

**The margin.** For a Gaussian S the length ||S x|| has a mean of at most ||x|| and exceeds it by
more than t ||x||/sqrt(k) with a probability below exp(-t^2/2): it is a Lipschitz function of
Gaussian numbers. We take t = `DEVIATIONS`, which is exceeded less than once in 10^13 comparisons. A
signed Hadamard projection replaces the Gaussian one, as usual, and the tests check its tails. For a
sum of m lengths g = sum ||S x_i|| of differences x_i of unit vectors, none longer than 2, the
squares of the deviations add up: t^2 sum ||x_i||^2/k <= (2 t^2/k) sum ||x_i||.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.types import Layout, PastSession, Sketch

Number = TypeVar("Number", np.float32, np.float64)

LIMIT = 4096
"""The largest size of a sketch, including the norms of the tensors."""
DEVIATIONS = 8.0
"""The margin t on a projected length, in units of ||x||/sqrt(k)."""
DROPPED = 1e-8
"""The largest total weight of the sessions left out: below the float32 rounding of a mixture."""
ROUNDING = 1e-5
"""The margin on float32 arithmetic, relative to the lengths of the two vectors compared."""

_SCHEME = "1"  # changes whenever the sketch of a signature would change
_GROUP = 2**18  # entries transformed at a time: one megabyte, which fits into a cache
_PIECE = 2**16
_ROWS = 256  # sketches compared at a time, for the same reason
_KINDS = {"per_tensor": "tensors", "raw": "whole", "normalised": "whole", "inner_product": "whole"}


class ProjectedTensor(NamedTuple):
    """One projected tensor: where it lies in the signature and in the sketch.

    If it has as many numbers in the sketch as entries, it is kept unchanged.
    """

    name: str
    source: slice
    target: slice

    @property
    def size(self) -> int:
        """Number of entries of the tensor."""
        return int(self.source.stop - self.source.start)

    @property
    def numbers(self) -> int:
        """Length k of its projection."""
        return int(self.target.stop - self.target.start)

    @property
    def verbatim(self) -> bool:
        """Whether the tensor is kept unchanged."""
        return self.size == self.numbers


class SketchPlan(NamedTuple):
    """How a model's signatures are sketched for one distance."""

    distance: str
    parts: tuple[ProjectedTensor, ...]

    @property
    def name(self) -> str:
        """Name under which sketches of this plan are stored."""
        return f"{_KINDS[self.distance]}-{_SCHEME}"

    @property
    def width(self) -> int:
        """Number of values in a sketch, not counting the norms."""
        return int(self.parts[-1].target.stop) if self.parts else 0


def plan(layout: Layout, distance: str, limit: int = LIMIT) -> SketchPlan:
    """Divide ``limit`` numbers among the tensors that a distance compares.

    `per_tensor` weighs all tensors equally and leaves out biases: short tensors are kept unchanged,
    and the others get an equal share of what is left. The other distances compare whole vectors.

    >>> layout = Layout(("a.weight", "b.weight", "b.bias"), ((90,), (4,), (9,)))
    >>> [(part.name, part.numbers) for part in plan(layout, "per_tensor", 36).parts]
    [('a.weight', 30), ('b.weight', 4)]
    """
    if distance not in _KINDS:
        raise EbbflowError(
            f'parameters.warm_start.signature = "sketch" knows no bound on the distance '
            f'{distance!r}: set it to "exact", or choose {", ".join(_KINDS)}'
        )
    if _KINDS[distance] == "whole":
        sources = {"": slice(0, layout.total)}
    else:
        sources = {name: at for name, at in layout.slices().items() if "bias" not in name}
    sources = {name: at for name, at in sources.items() if at.stop > at.start}
    left = limit - len(sources)  # every part has a norm
    if left < len(sources):
        raise EbbflowError(
            f"the model has {len(sources)} tensors to compare, more than a sketch of {limit} "
            'numbers can tell apart: set parameters.warm_start.signature to "exact"'
        )
    numbers: dict[str, int] = {}
    for name, at in sorted(sources.items(), key=lambda item: item[1].stop - item[1].start):
        numbers[name] = min(at.stop - at.start, left // (len(sources) - len(numbers)))
        left -= numbers[name]
    ends = np.cumsum([numbers[name] for name in sources]).tolist()
    return SketchPlan(
        distance,
        tuple(
            ProjectedTensor(name, at, slice(end - numbers[name], end))
            for (name, at), end in zip(sources.items(), ends, strict=True)
        ),
    )


def sketch(signature: Tensor, how: SketchPlan) -> Sketch:
    """Return S u for the unit vector u = x/||x|| of every part x, and the norms ||x||.

    A part of zeros stays zero.
    """
    flat = signature.detach().cpu()
    values = np.zeros(how.width, dtype=np.float32)
    norms = np.zeros(len(how.parts))
    room = np.empty((3, max((_step(part) for part in how.parts), default=0)), dtype=np.float32)
    for i, part in enumerate(how.parts):
        x = flat[part.source]
        norms[i] = _norm(x)
        if norms[i] == 0:
            continue
        if part.verbatim:
            values[part.target] = x.numpy() / norms[i]
        else:
            values[part.target] = _projected(x.numpy(), norms[i], part, room)
    return Sketch(torch.from_numpy(values), torch.from_numpy(norms))


def _norm(x: Tensor) -> float:
    """Return ||x|| in float64, piece by piece: a float64 copy of x would not fit into the cache."""
    pieces = (piece.double() for piece in torch.split(x, _PIECE))
    return math.sqrt(math.fsum(float(torch.dot(piece, piece)) for piece in pieces))


def _height(part: ProjectedTensor) -> int:
    """Return B: a power of two, large enough to choose rows from."""
    return min(1 << (4 * part.numbers - 1).bit_length(), 1 << (part.size - 1).bit_length())


def _step(part: ProjectedTensor) -> int:
    """Return how many entries are transformed at a time."""
    height = _height(part)
    return height * min(max(_GROUP // height, 1), -(-part.size // height))


def _projected(
    x: NDArray[np.float32], norm: np.float64, part: ProjectedTensor, room: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return S x / ||x||, one group of columns at a time; ``room`` is overwritten."""
    height, step = _height(part), _step(part)
    rows = generator("sketch", _SCHEME, part.name, "rows")
    chosen = np.sort(rows.permutation(height)[: part.numbers])
    signs = generator("sketch", _SCHEME, part.name, "signs")
    folds = generator("sketch", _SCHEME, part.name, "folds")
    total = np.zeros(part.numbers)
    for first in range(0, part.size, step):
        piece = x[first : first + step]
        columns = -(-len(piece) // height)
        group, spare, flips = room[:, : height * columns]
        np.divide(piece, norm, out=group[: len(piece)], casting="same_kind")
        group[len(piece) :] = 0
        group *= _signs(signs, flips)
        shape = (height, columns)
        mixed = _hadamard(group.reshape(shape), spare.reshape(shape))[chosen]
        mixed *= _signs(folds, np.empty_like(mixed))
        total += mixed.sum(axis=1, dtype=np.float64)
    return total / math.sqrt(part.numbers)


def _signs(draw: np.random.Generator, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill an array with random signs."""
    words = draw.bytes(-(-out.size // 32) * 4)
    bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8), count=out.size)
    np.multiply(bits.reshape(out.shape), np.float32(-2), out=out)
    out += 1
    return out


def _hadamard(columns: NDArray[np.float32], spare: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return H times the columns, H of entries +1 and -1; both arrays are overwritten."""
    half = len(columns) // 2
    while half:
        pairs = columns.reshape(-1, 2, half * columns.shape[1])
        out = spare.reshape(pairs.shape)
        np.add(pairs[:, 0], pairs[:, 1], out=out[:, 0])
        np.subtract(pairs[:, 0], pairs[:, 1], out=out[:, 1])
        columns, spare = spare, columns
        half //= 2
    return columns


# --- bounds on distances -------------------------------------------------------------------------


def lower_bounds(
    how: SketchPlan, one: Sketch, values: NDArray[np.float32], norms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return lower bounds on the distances d(G_s, G_z), for all z at once.

    Args:
        how: The plan of all the sketches.
        one: The sketch of G_s.
        values: The values of the sketches of G_z, one per row.
        norms: Their norms, one sketch per row.
    """
    if not how.parts or not len(values):
        return np.zeros(len(values))
    own_norms = one.norms.numpy()
    if how.distance == "raw":
        # ||a - b|| from unit vectors; relative to the longest, so that nothing overflows.
        longest = max(float(norms.max()), float(own_norms[0]))
        if longest == 0:
            return np.zeros(len(values))
        lengths = norms[:, 0] / longest
        scaled = (one.values.numpy() * (own_norms[0] / longest)).astype(np.float32)
        apart = _apart(how, scaled, values, lengths.astype(np.float32))
        least = _least(how, apart, capped=False) - ROUNDING * (lengths + own_norms[0] / longest)
        return np.asarray(np.maximum(least, 0) * longest)
    apart = _apart(how, one.values.numpy(), values)
    least = np.maximum(_least(how, apart, capped=True) - 2 * ROUNDING * len(how.parts), 0)
    if how.distance == "inner_product":
        # 1 - <u, v> = ||u - v||^2 / 2, which float64 may round to just below zero.
        return np.asarray(least**2 / 2 - 1e-12)
    # Tensors that are zero in both vectors do not count, as in `signature.per_tensor`.
    counted = np.count_nonzero((norms > 0) | (own_norms > 0), axis=1)
    return np.asarray(least / np.maximum(counted, 1))


def _apart(
    how: SketchPlan,
    one: NDArray[np.float32],
    values: NDArray[np.float32],
    lengths: NDArray[np.float32] | None = None,
) -> NDArray[np.float64]:
    """Return ||S u_i - S v_i|| for every sketch and part."""
    starts = [part.target.start for part in how.parts]
    squares = np.empty((len(values), len(starts)))
    for first in range(0, len(values), _ROWS):
        rows = slice(first, first + _ROWS)
        scaled = values[rows] if lengths is None else values[rows] * lengths[rows, np.newaxis]
        difference = scaled - one
        np.square(difference, out=difference)
        squares[rows] = np.add.reduceat(difference, starts, axis=1)
    return np.asarray(np.sqrt(squares))


def _least(how: SketchPlan, apart: NDArray[np.float64], capped: bool) -> NDArray[np.float64]:
    """Return a lower bound on the sum of all parts' true lengths.

    Args:
        how: The plan.
        apart: The projected lengths, one session per row.
        capped: Whether true lengths are at most 2, as for differences of unit vectors.
    """
    sketched = np.array([not part.verbatim for part in how.parts])
    known = apart[:, ~sketched].sum(axis=1)
    if not sketched.any():
        return np.asarray(known)
    guessed = apart[:, sketched].sum(axis=1)
    k = min(part.numbers for part in how.parts if not part.verbatim)
    # g <= x + t x/sqrt(k), since the root of a sum of squares is at most the sum; solved for x.
    least = guessed / (1 + DEVIATIONS / math.sqrt(k))
    if capped:  # g <= x + t sqrt(2 x/k), solved for sqrt(x)
        half = DEVIATIONS / math.sqrt(2 * k)
        least = np.maximum(least, (np.sqrt(half**2 + guessed) - half) ** 2)
    return np.asarray(known + least)


def nearest_first(
    bounds: NDArray[np.float64], measure: Callable[[int], float], scale: float
) -> dict[int, float]:
    """Measure distances, smallest bound first, until the rest has no weight.

    Measuring ends as soon as n sessions are left whose bounds are at least b, and
    n exp(-R b) <= DROPPED x (the sum of exp(-R d) over those measured).

    Args:
        bounds: Lower bounds on the distances.
        measure: Returns the distance of the i-th session.
        scale: The paper's R.

    Returns:
        The measured distances, by place.

    >>> exact = [0.5, 0.0, 1.5, 0.1]
    >>> nearest_first(np.array([0.4, 0.0, 1.2, 0.0]), exact.__getitem__, 100.0)
    {1: 0.0, 3: 0.1}
    """

    def power(excess: float) -> float:
        return math.exp(-scale * excess) if excess > 0 else 1.0  # R may be infinite

    measured: dict[int, float] = {}
    nearest, total = math.inf, 0.0  # sum of exp(-R (d - nearest))
    for done, i in enumerate(np.argsort(bounds, kind="stable").tolist()):
        excess = float(bounds[i]) - nearest
        if excess > 0 and (len(bounds) - done) * power(excess) <= DROPPED * total:
            break
        distance = measured[i] = measure(i)
        if distance < nearest:
            total = 1 + (total * power(nearest - distance) if total else 0)
            nearest = distance
        else:
            total += power(distance - nearest)
    return measured


class SketchTable:
    """The sketches of past sessions in one matrix that grows with the history."""

    def __init__(self, how: SketchPlan) -> None:
        self.plan = how
        self._entries: list[PastSession] = []
        self._values: NDArray[np.float32] = np.empty((0, how.width), dtype=np.float32)
        self._norms: NDArray[np.float64] = np.empty((0, len(how.parts)))

    def lower_bounds(
        self, signature: Tensor, entries: Sequence[PastSession]
    ) -> NDArray[np.float64]:
        """Return lower bounds on the distances of the entries' signatures from this one."""
        return self.compare(sketch(signature, self.plan), entries)

    def compare(self, one: Sketch, entries: Sequence[PastSession]) -> NDArray[np.float64]:
        """Return the same for a signature that has already been sketched."""
        self._hold(entries)
        count = len(entries)
        return lower_bounds(self.plan, one, self._values[:count], self._norms[:count])

    def _hold(self, entries: Sequence[PastSession]) -> None:
        # A history mostly grows at its end; if entries were dropped, all rows are rebuilt.
        held = len(self._entries)
        if len(entries) < held or any(map(_other, self._entries, entries)):
            held = 0
        if len(entries) > len(self._values):
            room = len(entries) + len(entries) // 4
            self._values = _grown(self._values, held, room)
            self._norms = _grown(self._norms, held, room)
        self._entries = list(entries)
        for i in range(held, len(entries)):
            row = self._sketch(entries[i])
            self._values[i], self._norms[i] = row.values.numpy(), row.norms.numpy()

    def _sketch(self, entry: PastSession) -> Sketch:
        """Return an entry's stored sketch, or a new one."""
        kept = entry.sketch
        if kept is not None and kept.values.shape == (self.plan.width,):
            return kept
        return sketch(entry.required_signature, self.plan)


def _other(a: PastSession, b: PastSession) -> bool:
    return a is not b


def _grown(rows: NDArray[Number], held: int, room: int) -> NDArray[Number]:
    grown = np.empty((room, rows.shape[1]), dtype=rows.dtype)
    grown[:held] = rows[:held]
    return grown
