"""Sketches: lengths that are kept, bounds that hold, weights that stay where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import hadamard
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.signature import DISTANCES, similarity_weights
from ebbflow.core.sketch import (
    DEVIATIONS,
    DROPPED,
    LIMIT,
    ProjectedTensor,
    SketchPlan,
    SketchTable,
    lower_bounds,
    nearest_first,
    plan,
    sketch,
)
from ebbflow.core.types import Layout, ModelState, PastSession, Sketch

SCALES = (0.0, 1.0, 10.0, 50.0, 800.0, 1e308, math.inf)
every_distance = pytest.mark.parametrize("distance", DISTANCES)
seeds = st.integers(0, 10**6)
sizes = st.lists(st.integers(0, 9000), min_size=1, max_size=12)
EMPTY = ModelState(torch.zeros(0), torch.zeros(0))


def layout_of(*lengths: int) -> Layout:
    names = tuple(f"layer{i}.weight" for i in range(len(lengths)))
    return Layout(names, tuple((n,) for n in lengths))


def noise(seed: int, size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def entries_of(signatures: list[Tensor]) -> list[PastSession]:
    return [PastSession(z, EMPTY, g) for z, g in enumerate(signatures, start=2)]


# --- who gets how many numbers -------------------------------------------------------------------


@every_distance
@given(lengths=sizes, limit=st.integers(40, LIMIT))
def test_a_sketch_has_at_most_so_many_numbers(
    distance: str, lengths: list[int], limit: int
) -> None:
    layout = layout_of(*lengths)
    made = plan(layout, distance, limit)
    assert made.width + len(made.parts) <= limit
    ends = [0, *(part.target.stop for part in made.parts)]
    assert [part.target.start for part in made.parts] == ends[:-1]
    for part in made.parts:
        assert 1 <= part.numbers <= part.size
    sketched = [part.numbers for part in made.parts if not part.verbatim]
    # What is shortened is shortened alike, and only for want of numbers.
    if sketched:
        assert max(sketched) - min(sketched) <= 1
        assert made.width + len(made.parts) == limit
        assert all(part.size <= max(sketched) for part in made.parts if part.verbatim)


def test_biases_have_no_numbers_in_the_distance_that_leaves_them_out() -> None:
    layout = Layout(("a.weight", "a.bias"), ((50, 90), (90,)))
    (part,) = plan(layout, "per_tensor").parts
    assert (part.name, part.source, part.numbers) == ("a.weight", slice(0, 4500), LIMIT - 1)
    (part,) = plan(layout, "raw").parts
    assert (part.source, part.numbers) == (slice(0, 4590), LIMIT - 1)


def test_a_model_of_too_many_tensors_is_sent_to_the_exact_way() -> None:
    with pytest.raises(EbbflowError, match=r'set parameters\.warm_start\.signature to "exact"'):
        plan(layout_of(*[9] * 2049), "per_tensor")


def test_an_unknown_distance_is_sent_to_the_exact_way() -> None:
    with pytest.raises(EbbflowError, match=r"no bound on the distance 'cosine'.*\"exact\""):
        plan(layout_of(3), "cosine")


# --- the projection ------------------------------------------------------------------------------


def naive(part: ProjectedTensor) -> NDArray[np.float64]:
    """Return S of one tensor as a matrix, from the equation in the module's first lines."""
    height = min(2 ** math.ceil(math.log2(4 * part.numbers)), 2 ** math.ceil(math.log2(part.size)))
    names = ("sketch", "1", part.name)
    chosen = np.sort(generator(*names, "rows").permutation(height)[: part.numbers])
    mixing = hadamard(height)[chosen]
    columns = -(-part.size // height)  # of a tensor that is transformed in one go

    def signs(purpose: str, count: int) -> NDArray[np.float64]:
        words = generator(*names, purpose).bytes(-(-count // 32) * 4)
        bits = np.unpackbits(np.frombuffer(words, np.uint8))[:count]
        return np.where(bits, -1.0, 1.0)

    first = signs("signs", height * columns).reshape(height, columns)
    folds = signs("folds", part.numbers * columns).reshape(part.numbers, columns)
    full = np.einsum("jc,jp,pc->jpc", folds, mixing, first).reshape(part.numbers, -1)
    return np.asarray(full[:, : part.size] / math.sqrt(part.numbers))


@pytest.mark.parametrize("size", [11, 64, 65, 1000, 5000])
@pytest.mark.parametrize("numbers", [7, 10])
def test_the_fast_projection_is_the_matrix_that_its_equation_says(size: int, numbers: int) -> None:
    x = noise(size, size)
    made = plan(layout_of(size), "per_tensor", numbers + 1)
    (part,) = made.parts
    assert part.numbers == numbers
    unit = x.double().numpy() / float(x.double().norm())
    assert sketch(x, made).values.numpy() == pytest.approx(naive(part) @ unit, abs=1e-6)


def test_a_tensor_larger_than_a_group_is_cut_into_groups() -> None:
    """Blocks that are zero but for one group give that group's own projection, of the same norm."""
    made = plan(layout_of(600_000), "per_tensor", 301)
    parts = [torch.zeros(600_000) for _ in range(3)]
    for i, x in enumerate(parts):
        x[i * 262_144 : i * 262_144 + 50] = noise(i, 50)
    together = sketch(torch.stack(parts).sum(0), made)
    single = [sketch(x, made) for x in parts]
    added = sum(one.values * float(one.norms[0]) for one in single) / float(together.norms[0])
    torch.testing.assert_close(together.values, added, rtol=0, atol=1e-6)


COPIES, NUMBERS = 400, 16


@cache
def copies(length: int) -> SketchPlan:
    """Return a plan of many tensors of one size: as many independent projections."""
    return plan(layout_of(*[length] * COPIES), "per_tensor", COPIES * (NUMBERS + 1))


def projections(x: Tensor) -> NDArray[np.float64]:
    """Return S u for the unit vector u of x, under many projections: a row each."""
    made = copies(len(x))
    return sketch(x.repeat(COPIES), made).values.double().numpy().reshape(COPIES, NUMBERS)


def spikes(length: int, count: int, step: int) -> Tensor:
    x = torch.zeros(length)
    x[: count * step : step] = 1
    return x


SHAPES = {
    "noise": noise(1, 700),
    "wide": noise(2, 9000),
    "constant": torch.ones(1024),
    "one entry": spikes(700, 1, 1),
    "two entries": spikes(700, 2, 64),
    "four entries": spikes(1024, 4, 1),
    "eight entries": spikes(1024, 8, 64),
    "heavy tailed": noise(3, 3000) ** 5,
    "barely shortened": noise(4, 17),
}
every_shape = pytest.mark.parametrize("x", SHAPES.values(), ids=SHAPES.keys())


@every_shape
def test_lengths_are_kept_on_average_and_vary_no_more_than_a_gaussian_projections(
    x: Tensor,
) -> None:
    squares = (projections(x) ** 2).sum(axis=1)
    spread = math.sqrt(2 / NUMBERS)
    assert squares.mean() == pytest.approx(1, abs=5 * spread / math.sqrt(COPIES))
    assert squares.std() < 1.25 * spread


@every_shape
def test_lengths_stay_far_within_the_margin(x: Tensor) -> None:
    """A Gaussian projection of this size exceeds half the margin once in 10^8 times."""
    lengths = np.sqrt((projections(x) ** 2).sum(axis=1))
    assert (lengths - 1).max() * math.sqrt(NUMBERS) < DEVIATIONS / 2


def test_inner_products_are_kept_on_average() -> None:
    a, b = noise(5, 700), noise(6, 700)
    b = b + 0.5 * a
    products = (projections(a) * projections(b)).sum(axis=1)
    cosine = float(torch.dot(a.double(), b.double()) / (a.double().norm() * b.double().norm()))
    # Var <Su, Sv> = (1 + <u, v>^2)/k for Gaussian rows.
    assert products.mean() == pytest.approx(
        cosine, abs=5 * math.sqrt((1 + cosine**2) / NUMBERS / COPIES)
    )


def test_short_tensors_are_kept_as_they_are() -> None:
    layout = layout_of(5, 9000)
    x = noise(1, layout.total)
    made = sketch(x, plan(layout, "per_tensor"))
    torch.testing.assert_close(made.values[:5], x[:5] / x[:5].norm(), rtol=0, atol=1e-7)


@given(seeds)
def test_norms_are_exact(seed: int) -> None:
    layout = layout_of(5, 300)
    x = noise(seed, layout.total)
    norms = sketch(x, plan(layout, "per_tensor", 50)).norms
    assert norms.dtype == torch.float64
    expected = [float(x[:5].double().norm()), float(x[5:].double().norm())]
    assert norms.tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("factor", [1e-38, 1e-20, 1.0, 1e20, 1e33])
def test_a_sketch_does_not_depend_on_a_tensors_size(factor: float) -> None:
    x = noise(1, 900)
    made = plan(layout_of(900), "per_tensor", 101)
    scaled, usual = sketch(x * factor, made), sketch(x, made)
    torch.testing.assert_close(scaled.values, usual.values, rtol=0, atol=1e-6)
    assert float(scaled.norms[0]) == pytest.approx(factor * float(usual.norms[0]), rel=1e-6)


def test_zeros_stay_zero() -> None:
    layout = layout_of(5, 300)
    made = sketch(torch.zeros(layout.total), plan(layout, "per_tensor", 50))
    assert not made.values.any()
    assert not made.norms.any()


def test_tensors_are_projected_independently_of_each_other() -> None:
    both = plan(layout_of(300, 300), "per_tensor", 102)
    x = noise(1, 300)
    values = sketch(torch.cat([x, x]), both).values
    assert not torch.allclose(values[:50], values[50:], atol=0.05)
    alone = plan(layout_of(300), "per_tensor", 51)
    assert torch.equal(sketch(x, alone).values, values[:50])


def test_the_projection_is_the_same_in_every_version() -> None:
    """Histories are compared across processes and years: a change needs another scheme."""
    made = sketch(torch.arange(1.0, 301.0), plan(layout_of(300), "per_tensor", 5))
    expected = [-0.1197, -0.3451, 0.0233, 0.4003]
    assert made.values.tolist() == pytest.approx(expected, abs=1e-4)


# --- bounds --------------------------------------------------------------------------------------


def bounds(
    distance: str, layout: Layout, one: Tensor, others: list[Tensor], limit: int
) -> list[float]:
    made = plan(layout, distance, limit)
    rows = [sketch(other, made) for other in others]
    values = np.stack([row.values.numpy() for row in rows])
    norms = np.stack([row.norms.numpy() for row in rows])
    found: list[float] = lower_bounds(made, sketch(one, made), values, norms).tolist()
    return found


@every_distance
@settings(max_examples=30)
@given(
    seed=seeds,
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    limit=st.integers(24, 200),
    step=st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0, 30.0]),
    factor=st.sampled_from([1e-30, 1e-3, 1.0, 1e15]),
    blank=st.sets(st.integers(0, 5)),
)
def test_no_distance_is_below_its_bound(
    distance: str,
    seed: int,
    lengths: list[int],
    limit: int,
    step: float,
    factor: float,
    blank: set[int],
) -> None:
    layout = layout_of(*lengths)
    one = noise(seed, layout.total)
    others = [one + step * noise(seed + i, layout.total) for i in (1, 2)]
    others += [factor * others[0], -one, torch.zeros(layout.total)]
    for i, at in enumerate(layout.slices().values()):
        if i in blank:  # frozen on one side, and on both
            for vector in ([others[0]], [one, *others])[i % 2]:
                vector[at] = 0
    found = bounds(distance, layout, one, others, limit)
    for bound, other in zip(found, others, strict=True):
        exact = DISTANCES[distance](one, other, layout)
        assert math.isfinite(bound)
        assert -1e-11 <= bound <= exact


@every_distance
def test_bounds_are_close_enough_to_be_of_use(distance: str) -> None:
    layout = layout_of(*[5000] * 40, 30)
    one = noise(1, layout.total)
    others = [one + step * noise(2, layout.total) for step in (0.5, 1.0, 3.0)]
    for bound, other in zip(bounds(distance, layout, one, others, LIMIT), others, strict=True):
        assert bound > 0.7 * DISTANCES[distance](one, other, layout)


@every_distance
def test_where_everything_is_kept_the_bound_is_the_distance(distance: str) -> None:
    layout = layout_of(30, 20)
    one, other = noise(1, 50), noise(2, 50)
    (bound,) = bounds(distance, layout, one, [other], LIMIT)
    assert bound == pytest.approx(DISTANCES[distance](one, other, layout), rel=1e-3)


@every_distance
def test_signatures_of_zeros_and_histories_of_nothing_have_bounds(distance: str) -> None:
    layout = layout_of(300, 3)
    zero = torch.zeros(layout.total)
    assert bounds(distance, layout, zero, [zero], 40) == pytest.approx([0.0])
    table = SketchTable(plan(layout, distance, 40))
    assert table.lower_bounds(zero, []).shape == (0,)


# --- what is measured ----------------------------------------------------------------------------

distances = st.lists(st.floats(0, 2), min_size=1, max_size=40)


@given(distances, st.floats(0, 0.3), st.sampled_from(SCALES), st.randoms(use_true_random=False))
def test_what_is_left_out_changes_no_weight(
    exact: list[float], slack: float, scale: float, random: object
) -> None:
    below = [max(0.0, d - slack * (i % 3)) for i, d in enumerate(exact)]
    found = nearest_first(np.array(below), exact.__getitem__, scale)
    weights = np.zeros(len(exact))
    weights[list(found)] = similarity_weights(list(found.values()), scale)
    np.testing.assert_allclose(weights, similarity_weights(exact, scale), rtol=0, atol=2 * DROPPED)
    assert all(found[i] == exact[i] for i in found)


@given(distances, st.floats(0, 5))
def test_a_small_r_leaves_nothing_out(exact: list[float], scale: float) -> None:
    assert len(nearest_first(np.array(exact), exact.__getitem__, scale)) == len(exact)


def test_an_infinite_r_measures_until_nothing_can_be_nearer() -> None:
    below, exact = np.array([0.3, 0.1, 0.2, 0.5]), [0.5, 0.4, 0.3, 0.5]
    assert nearest_first(below, exact.__getitem__, math.inf) == {1: 0.4, 2: 0.3, 0: 0.5}


def test_a_distance_that_is_no_number_leaves_nothing_out() -> None:
    exact = [math.nan, math.nan, 0.5]
    assert len(nearest_first(np.array(exact), exact.__getitem__, 800.0)) == 3


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sketched(PastSession):
    """An entry beside which a sketch lies, and how often it was asked for."""

    kept: Sketch | None = None

    @property
    def sketch(self) -> Sketch | None:
        return self.kept


def test_a_table_grows_and_shrinks_with_its_history() -> None:
    layout = layout_of(400)
    made = plan(layout, "per_tensor", 60)
    signatures = [noise(i, 400) for i in range(60)]
    history = entries_of(signatures)
    own = noise(99, 400)
    expected = np.array(bounds("per_tensor", layout, own, signatures, 60))
    table = SketchTable(made)
    for places in (range(3), range(20), range(20), range(60), range(5, 60), [1, 7, 59], range(60)):
        found = table.lower_bounds(own, [history[i] for i in places])
        assert found.tolist() == expected[list(places)].tolist()


def test_a_sketch_that_lies_beside_the_signature_is_not_made_again() -> None:
    made = plan(layout_of(400), "per_tensor", 60)
    one, other = noise(1, 400), noise(2, 400)
    entry = Sketched(2, EMPTY, None, kept=sketch(one, made))
    assert SketchTable(made).lower_bounds(one, [entry]).tolist() == [0.0]
    # One of another length was made by another plan, and is of no use.
    stale = Sketched(3, EMPTY, other, kept=Sketch(torch.zeros(9), torch.zeros(1)))
    assert (
        SketchTable(made).lower_bounds(one, [stale]).tolist()
        == SketchTable(made).lower_bounds(one, entries_of([other])).tolist()
    )


# --- ten thousand sessions -----------------------------------------------------------------------

MANY = layout_of(600, 30, 900)


class Crowd(NamedTuple):
    """Forty kinds of sessions, of which each comes back again and again, never quite the same."""

    own: Tensor
    signatures: Tensor
    exact: NDArray[np.float64]
    bounds: NDArray[np.float64]


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    draw = torch.Generator().manual_seed(1)
    centres = torch.randn(40, MANY.total, generator=draw)
    spread = 0.05 + torch.rand(10_000, 1, generator=draw)
    signatures = torch.randn(10_000, MANY.total, generator=draw).mul_(spread)
    signatures += centres.repeat(250, 1)
    own = centres[7] + 0.1 * noise(3, MANY.total)
    made = plan(MANY, "per_tensor", 1000)
    apart, values, norms = [], [], []
    for part in made.parts:  # all rows at once; the same as one by one, as tests above say
        a, b = own[part.source].double(), signatures[:, part.source].double()
        lengths = b.norm(dim=1, keepdim=True)
        apart.append((b / lengths - a / a.norm()).norm(dim=1))
        projection = torch.eye(part.size) if part.verbatim else torch.from_numpy(naive(part))
        values.append((b / lengths) @ projection.double().T)
        norms.append(lengths)
    rows = zip(torch.cat(values, 1).float(), torch.cat(norms, 1), strict=True)
    entries = [Sketched(z, EMPTY, None, kept=Sketch(*row)) for z, row in enumerate(rows)]
    exact = torch.stack(apart).mean(0).numpy()
    return Crowd(own, signatures, exact, SketchTable(made).lower_bounds(own, entries))


def test_no_bound_of_ten_thousand_is_above_its_distance(crowd: Crowd) -> None:
    assert (crowd.bounds <= crowd.exact).all()


@pytest.mark.parametrize(
    ("scale", "most"), [(5.0, 10_000), (30.0, 2000), (100.0, 250), (800.0, 50), (math.inf, 50)]
)
def test_ten_thousand_sessions_weigh_the_same_with_and_without_sketches(
    crowd: Crowd, scale: float, most: int
) -> None:
    found = nearest_first(crowd.bounds, crowd.exact.__getitem__, scale)
    weights = np.zeros(10_000)
    weights[list(found)] = similarity_weights(list(found.values()), scale)
    assert np.abs(weights - similarity_weights(crowd.exact.tolist(), scale)).max() < 1e-6
    assert len(found) <= most
    for i in list(found)[:50]:
        measured = DISTANCES["per_tensor"](crowd.own, crowd.signatures[i], MANY)
        assert found[i] == pytest.approx(measured, abs=1e-12)
