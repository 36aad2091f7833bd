"""Answers that contradict each other: honest ones do not, made-up ones do, and few groups go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

import ebbflow
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
@settings(deadline=None, max_examples=10)
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


def trained_to_the_end(seed: int, scale: float) -> SamplePanel:
    """Return groups with labels of their own, and softmax models that are all but certain of them.

    Each model was trained for three of the four labels; the logits of all are ``scale`` times as
    large then.
    """
    draw = torch.Generator().manual_seed(seed)
    model = MODELS["softmax"]((6,), 4)
    centres = 2 * torch.randn(4, 6, generator=draw)

    def group(count: int) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.randint(0, 2, (count,), generator=draw)
        labels += torch.randint(0, 3, (1,), generator=draw)
        x = centres[labels] + 0.3 * torch.randn(count, 6, generator=draw)
        return x, labels, torch.rand(count, generator=draw) + 0.5

    states = []
    for left_out in range(SIZE):
        state = model.initial(torch.Generator().manual_seed(seed))
        y = torch.arange(4).repeat(8)
        y = y[y != left_out]
        x = centres[y] + 0.3 * torch.randn(len(y), 6, generator=draw)
        for _ in range(20):
            theta = state.theta.requires_grad_()
            logits = model.forward(theta, state.buffers, x, None, False)[0].logits
            (slope,) = torch.autograd.grad(functional.cross_entropy(logits, y), theta)
            state = state._replace(theta=(theta - slope).detach())
        noise = 0.05 * torch.randn(state.theta.shape, generator=draw)
        states.append(state._replace(theta=scale * (state.theta + noise)))
    return SamplePanel(basis_of(model, states), [group(16) for _ in range(6)])


@settings(deadline=None, max_examples=20)
@given(seeds, st.floats(-1, 3).map(lambda power: 10**power))
@example(4285, 10**0.6015625)  # curvatures of 1e-45: below zero by the smallest number there is
def test_honest_devices_are_trusted_however_certain_their_models_are(
    seed: int, scale: float
) -> None:
    """A convex loss, long steps on which it looks like a hinge, curvatures of hardly a digit."""
    panel = trained_to_the_end(seed, scale)
    found, left_out = from_trusted_groups(panel, search)
    assert left_out == 0
    assert found.tolist() == search(panel).tolist()


@pytest.mark.slow
def test_no_device_of_a_long_run_is_left_out(tmp_path: Path) -> None:
    """Models trained to the end, session after session: all devices are honest."""
    ebbflow.compare(
        preset="demo", methods="learned", sessions=24, rounds=60, seeds=1, out=tmp_path / "run"
    )
    events = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8")
    assert "session" in events
    assert "contradict" not in events


def walk(*places: float) -> Callable[[Panel], Array]:
    """Return a search that looks at mixtures with these first weights, and finds nothing."""

    def search(panel: Panel) -> Array:
        for place in places:
            panel.expansion(np.array([place, 0.0, 1 - place]), "learn")
        return np.zeros(SIZE)

    return search


def hinge(at: float, steep: float) -> Curve:
    """Return the group with the loss log(1 + exp(s (a_0 - m))) / s."""

    def risen(a: Array) -> float:
        return float(np.exp(-np.logaddexp(0, -steep * (a[0] - at))))

    first = np.array([1.0, 0, 0])
    return Curve(
        1.0,
        lambda a: float(np.logaddexp(0, steep * (a[0] - at)) / steep),
        lambda a: risen(a) * first,
        lambda a: steep * risen(a) * (1 - risen(a)) * np.diag(first),
    )


@given(st.floats(-0.5, 1.5), st.floats(1, 2).map(lambda power: 10**power))
def test_a_hinge_in_one_group_is_no_contradiction(at: float, steep: float) -> None:
    """Its derivatives at both ends of a long step say nothing of what is in between."""
    panel = CurvePanel([hinge(at, steep), *curves(4)])
    assert from_trusted_groups(panel, walk(1.5, -0.5, 0.5))[1] == 0


def wave(phase: float) -> Curve:
    """Return the group with the loss 3 + 2 cos(3 a_0 + p), which is not convex."""
    first = np.array([1.0, 0, 0])
    return Curve(
        1.0,
        lambda a: float(3 + 2 * np.cos(3 * a[0] + phase)),
        lambda a: -6 * np.sin(3 * a[0] + phase) * first,
        lambda a: 4 * np.diag(first),
    )


@pytest.mark.parametrize("last", [0.8, 0.9, 1.0, 1.1])
def test_if_the_loss_of_most_groups_is_not_convex_nobody_is_left_out(last: float) -> None:
    """By the trapezoidal rule alone, the last one would be."""
    panel = CurvePanel([wave(phase) for phase in (0.0, 0.0, 0.0, 0.0, last)])
    assert from_trusted_groups(panel, walk(0.0, 0.7, 1.6, 2.9, 4.1))[1] == 0


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


class Lying(SamplePanel):
    """The first group's answers are changed by ``lie``, which knows its loss and slope."""

    lie: Callable[[float, Array], tuple[float, Array]] = staticmethod(
        lambda loss, slope: (loss, slope)
    )

    def losses(self, mixtures: Sequence[Array], half: str) -> LossSums:
        sums = super().losses(mixtures, half)
        for place, mean in enumerate(sums.loss[0] / sums.weight[0]):
            sums.loss[0, place] = sums.weight[0] * self.lie(mean, np.zeros(SIZE))[0]
        return sums

    def expansion(self, mixture: Array, half: str = "learn") -> Expansion:
        sums = super().expansion(mixture, half)
        weight = sums.weight[0]
        mean, slope = self.lie(sums.loss[0] / weight, sums.slope[0] / weight)
        sums.loss[0], sums.slope[0] = weight * mean, weight * slope
        return sums


SAID: dict[str, Callable[[float, Array], tuple[float, Array]]] = {
    "slopes that lead uphill": lambda loss, slope: (loss, -slope),
    "slopes that are too steep": lambda loss, slope: (loss, 9 * slope),
    "no slope at all": lambda loss, slope: (loss, 0 * slope),
    "a loss that never changes": lambda loss, slope: (0.3, slope),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", SAID)
def test_wrong_slopes_of_real_models_are_found_nine_times_in_ten(lie: str) -> None:
    """Where models still have something to learn: otherwise there is hardly a step to judge by."""
    found = 0
    for seed in range(40):
        panel = trained_to_the_end(seed, 0.3)
        lying = Lying(panel.basis, panel.groups)
        lying.lie = SAID[lie]
        found += from_trusted_groups(lying, search)[1] == 1
    assert found >= 36


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
