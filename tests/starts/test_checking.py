"""Answers that contradict each other: honest ones do not, made-up ones do, and few groups go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.core.mixtures import basis_of
from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel
from ebbflow.models import MODELS
from ebbflow.starts.checking import from_trusted_groups
from ebbflow.starts.mixing import best_mixture
from tests.starts.panels import Curve, CurvePanel, SamplePanel, quadratic

SIZE = 3
seeds = st.integers(0, 10_000)


def search(panel: Panel) -> Array:
    return best_mixture(panel, SIZE, [0, 1])


def curves(count: int, seed: int = 1) -> list[Curve]:
    """Return groups whose losses are quadratic and differ a little."""
    draw = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        root = draw.normal(size=(SIZE, SIZE))
        least = np.array([1.5, -0.3, -0.2]) + 0.2 * draw.normal(size=SIZE)
        made.append(quadratic(float(draw.uniform(1, 3)), least, root @ root.T, 0.3))
    return made


Lie = Callable[[Curve], Curve]
LIES: dict[str, Lie] = {
    "slopes that lead uphill": lambda c: replace(c, slope=lambda a: -c.slope(a)),
    "slopes that are too steep": lambda c: replace(c, slope=lambda a: 9 * c.slope(a)),
    "no slope at all": lambda c: replace(c, slope=lambda a: 0 * a),
    "a loss that never changes": lambda c: replace(c, loss=lambda a: 0.3),
    "a negative loss": lambda c: replace(c, loss=lambda a: c.loss(a) - 99),
    "a curvature that is negative": lambda c: replace(c, curvature=lambda a: -c.curvature(a)),
}


# --- honest answers -----------------------------------------------------------------------------


@given(seeds, st.integers(1, 8))
def test_honest_groups_are_trusted_and_nothing_changes(seed: int, groups: int) -> None:
    honest = curves(groups, seed)
    found, left_out = from_trusted_groups(CurvePanel(honest, share=0.7), search)
    assert left_out == 0
    assert found.tolist() == search(CurvePanel(honest, share=0.7)).tolist()


@pytest.mark.parametrize(("kind", "apart"), [("softmax", 1.0), ("mlp", 0.05)])
@given(seed=st.integers(0, 50))
def test_devices_with_real_models_and_32_bits_are_trusted(
    kind: str, apart: float, seed: int
) -> None:
    """Groups of a few samples each, with labels of their own, and mixtures far outside.

    Networks are near each other, as they are if they descend from one initial model: far from
    where a network was trained, its loss bends too much for the rule.
    """
    model = MODELS[kind]((6,), 4)
    draw = torch.Generator().manual_seed(seed)
    states = [model.initial(torch.Generator().manual_seed(seed)) for _ in range(SIZE)]
    for state in states:
        state.theta.add_(apart * torch.randn(state.theta.shape, generator=draw))

    def group() -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.randint(0, 2, (8,), generator=draw) + int(
            torch.randint(0, 3, (1,), generator=draw)
        )
        return torch.randn(8, 6, generator=draw), labels, torch.ones(8)

    panel = SamplePanel(basis_of(model, states), [group() for _ in range(6)])
    found, left_out = from_trusted_groups(panel, search)
    assert left_out == 0
    assert found.tolist() == search(panel).tolist()


# --- made-up answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("liars", [1, 2])
def test_groups_that_contradict_themselves_are_left_out(lie: str, liars: int) -> None:
    honest = curves(5)
    wrong = [LIES[lie](curve) for curve in honest[:liars]]
    found, left_out = from_trusted_groups(CurvePanel([*wrong, *honest[liars:]]), search)
    assert left_out == liars
    # As if they had never been asked: their part of the samples counts as not asked.
    everything, rest = (sum(c.weight for c in some) for some in (honest, honest[liars:]))
    share = float(rest / everything)
    alone = search(CurvePanel(honest[liars:], share=share))
    assert found == pytest.approx(alone, abs=1e-9)


@given(seeds, st.integers(5, 9))
def test_random_numbers_are_found(seed: int, groups: int) -> None:
    draw = np.random.default_rng(seed)
    noise = Curve(
        1.0,
        lambda a: float(3 * draw.random()),
        lambda a: draw.normal(size=SIZE),
        lambda a: np.eye(SIZE),
    )
    honest = curves(groups - 1, seed)
    found, left_out = from_trusted_groups(CurvePanel([noise, *honest]), search)
    assert left_out == 1
    assert np.isfinite(found).all()


class Forgetful(CurvePanel):
    """The first group says something else whenever it is asked about losses again."""

    def losses(self, mixtures: Sequence[Array], half: str) -> LossSums:
        sums = super().losses(mixtures, half)
        if half == "judge":
            sums.loss[0] *= 1 + 0.1 * len(self.compared)
        return sums


def test_a_group_that_says_something_else_the_second_time_is_left_out() -> None:
    assert from_trusted_groups(Forgetful(curves(5)), search)[1] == 1


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "most"), [(1, 0), (2, 0), (3, 1), (5, 2), (6, 2)])
def test_no_more_than_a_minority_is_left_out(groups: int, most: int) -> None:
    honest = curves(groups)
    wrong = [LIES["a curvature that is negative"](curve) for curve in honest[: most + 1]]
    _, left_out = from_trusted_groups(CurvePanel([*wrong, *honest[most + 1 :]]), search)
    assert left_out == 0
    _, left_out = from_trusted_groups(CurvePanel([*wrong[:most], *honest[most:]]), search)
    assert left_out == most


def test_no_question_is_asked_twice() -> None:
    asked: list[tuple[bytes, Half]] = []

    class Listening(CurvePanel):
        def expansion(self, mixture: Array, half: str = "learn") -> Expansion:
            asked.append((mixture.tobytes(), "judge" if half == "judge" else "learn"))
            return super().expansion(mixture, half)

    honest = curves(5)
    lying = LIES["slopes that lead uphill"](honest[0])
    panel = Listening([lying, *honest[1:]])
    assert from_trusted_groups(panel, search)[1] == 1
    assert len(set(asked)) == len(asked)
    simple = [entry for entry in panel.compared if entry == (SIZE + 1, "learn")]
    assert len(simple) == 1


def test_losses_that_are_no_numbers_are_no_contradiction() -> None:
    """A mixture far outside may be infinitely bad, honestly."""
    honest = curves(5)
    wild = [
        replace(c, loss=lambda a, c=c: c.loss(a) if np.abs(a).max() < 1.2 else float("nan"))  # type: ignore[misc]
        for c in honest
    ]
    found, left_out = from_trusted_groups(CurvePanel(wild), search)
    assert left_out == 0
    assert np.isfinite(found).all()


def test_if_nobody_answers_with_numbers_the_first_model_is_kept() -> None:
    silent = [replace(c, loss=lambda _: float("nan")) for c in curves(4)]
    found, left_out = from_trusted_groups(CurvePanel(silent), search)
    assert (found.tolist(), left_out) == (np.eye(SIZE)[0].tolist(), 0)
