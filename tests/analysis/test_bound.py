"""The corrected bound holds where all constants are known; the printed one does not always."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.analysis.bound import (
    Constants,
    Devices,
    Terms,
    TheoremRound,
    batch_variance,
    corrected_rate,
    corrected_slack,
    corrected_terms,
    mean_terms,
    printed_rate,
    printed_slack,
    printed_terms,
)
from ebbflow.core.errors import EbbflowError
from tests.analysis.problems import (
    Array,
    Problem,
    Trained,
    cosine,
    double_well,
    opposed,
    quadratic,
    train,
)

REPETITIONS = 200


class Setting(NamedTuple):
    """A random setting: which family, and all else from the seed.

    ``fraction`` is of the largest rate that the corrected theorem allows, ``apart`` how far the
    devices' samples are from each other's, ``away`` how far the start is from the samples' mean.
    """

    family: str
    sessions: int
    rounds: int
    steps: int
    fraction: float
    apart: float
    away: float
    seed: int


SETTINGS = st.builds(
    Setting,
    family=st.sampled_from(["quadratic", "cosine", "double_well"]),
    sessions=st.integers(1, 2),
    rounds=st.integers(1, 4),
    steps=st.sampled_from([1, 2, 3, 5, 8, 30]),
    fraction=st.sampled_from([0.02, 0.2, 0.6, 0.95]),
    apart=st.sampled_from([0.0, 0.3, 2.0]),
    away=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)


def problems_of(setting: Setting) -> list[tuple[Problem, Array]]:
    """Return each session's problem and where it starts."""
    draw = np.random.default_rng(setting.seed)
    size = int(draw.integers(1, 4))
    found = []
    for _ in range(setting.sessions):
        count = int(draw.integers(1, 5))
        sizes = draw.integers(2, 8, count).astype(float)
        batch = draw.integers(1, sizes.astype(int) + 1).astype(float)
        if draw.random() < 0.2:
            batch = sizes.copy()
        centres = setting.apart * draw.normal(size=(count, 1, size))
        x = draw.normal(size=(count, 7, size)) + centres
        if setting.family == "quadratic":
            problem = quadratic(x, sizes, batch, draw.uniform(0.1, 2.0, (count, size)))
        elif setting.family == "cosine":
            problem = cosine(x, sizes, batch, draw.uniform(0.1, 2.0, size))
        else:
            problem = double_well(x, sizes, batch)
        start = x[problem.owned].mean(0) + setting.away * draw.normal(size=size)
        found.append((problem, np.clip(start, problem.low, problem.high)))
    return found


def check_the_corrected_bound(setting: Setting) -> None:
    sessions = problems_of(setting)
    steps, draw = setting.steps, np.random.default_rng(setting.seed + 1)
    eta = setting.fraction * min(
        corrected_rate(steps, problem.constants.beta, problem.constants.zeta_1)
        for problem, _ in sessions
    )
    excess, terms, rounding = [], [], 0.0
    for problem, start in sessions:
        of = problem.constants
        found = train(problem, np.tile(start, (REPETITIONS, 1)), eta, steps, setting.rounds, draw)
        assert found.projected == 0
        terms += [corrected_terms(r, of) for r in found.rounds(eta, steps, problem)]
        kept = 1 - corrected_slack(eta, steps, of.beta, of.zeta_1)
        excess.append(found.squares - 2 * found.descents / (eta * steps * kept))
        # Losses of size one, known to 1e-16, are subtracted and divided by a small rate.
        rounding += 1e-14 * float(problem.loss(start[None])[0]) / (eta * steps * kept)
    bound = mean_terms(terms)
    by_repetition = np.concatenate(excess).mean(0)
    allowance = 3 * by_repetition.std(ddof=1) / math.sqrt(REPETITIONS)
    assert by_repetition.mean() <= bound.total - bound.descent + allowance + rounding


@given(SETTINGS)
@settings(max_examples=60, deadline=None)
def test_the_corrected_bound_is_never_violated(setting: Setting) -> None:
    check_the_corrected_bound(setting)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(SETTINGS)
@settings(max_examples=1000, deadline=None)
def test_the_corrected_bound_is_not_violated_in_a_thousand_settings(setting: Setting) -> None:
    check_the_corrected_bound(setting)


@given(SETTINGS)
@settings(max_examples=30, deadline=None)
def test_the_constants_of_the_test_problems_hold(setting: Setting) -> None:
    rng = np.random.default_rng(setting.seed)
    for problem, _ in problems_of(setting):
        of, size = problem.constants, problem.x.shape[-1]
        low, high = max(problem.low, -4.0), min(problem.high, 4.0)
        one, other = (rng.uniform(low, high, (50, size)) for _ in range(2))
        apart = np.linalg.norm(one - other, axis=-1)[:, None]
        changed = np.linalg.norm(problem.gradients(one) - problem.gradients(other), axis=-1)
        assert (changed <= of.beta * apart * (1 + 1e-9)).all()
        squares = (problem.gradients(one) ** 2).sum(-1) @ problem.devices.shares
        whole = (problem.gradient(one) ** 2).sum(-1)
        assert (squares <= of.zeta_1 * whole + of.zeta_2 + 1e-9 * squares).all()
        # The gradient is the loss's: a central difference along a random direction.
        along, h = rng.normal(size=size), 1e-5
        slope = (problem.loss(one + h * along) - problem.loss(one - h * along)) / (2 * h)
        np.testing.assert_allclose(slope, problem.gradient(one) @ along, rtol=1e-4, atol=1e-6)


def test_the_variance_of_a_batch_is_what_sampling_gives() -> None:
    """On a quadratic with unit curvature nu_k is no bound: it is the variance itself."""
    rng = np.random.default_rng(1)
    sizes, batch = np.array([5.0, 7.0]), np.array([2.0, 3.0])
    problem = quadratic(rng.normal(size=(2, 7, 2)), sizes, batch, np.ones((2, 2)))
    start = np.zeros((40_000, 2))
    after = train(problem, start, 1.0, 1, 1, rng).w
    predicted = (problem.devices.shares**2 * batch_variance(problem.devices, 1.0)).sum()
    measured = after.var(axis=0).sum()
    assert measured == pytest.approx(predicted, rel=0.02)


# --- where the printed bound fails ---------------------------------------------------------------


def one_round(steps: int) -> tuple[Trained, Terms, Terms]:
    problem, start, eta = opposed(steps)
    found = train(problem, start, eta, steps, 1, np.random.default_rng(0))
    assert found.projected == 0
    (this,) = found.rounds(eta, steps, problem)
    assert eta < printed_rate(steps, problem.constants.beta, problem.constants.zeta_1)
    return (
        found,
        printed_terms(this, problem.constants),
        corrected_terms(this, problem.constants),
    )


@pytest.mark.parametrize("steps", [67, 100, 300])
def test_the_printed_bound_is_violated_by_many_local_steps(steps: int) -> None:
    found, printed, corrected = one_round(steps)
    measured = float(found.squares.mean())
    assert printed.total < 0 < measured <= corrected.total


@pytest.mark.parametrize("steps", [2, 5, 7, 30])
def test_with_few_local_steps_the_example_respects_the_printed_bound(steps: int) -> None:
    found, printed, corrected = one_round(steps)
    measured = float(found.squares.mean())
    assert measured <= min(printed.total, corrected.total)


@pytest.mark.parametrize(("eta", "violated"), [(1.0, False), (1.01, True), (1.9, True)])
def test_the_printed_single_step_form_needs_a_condition(eta: float, violated: bool) -> None:
    """F(w) = w^2/2 from w = 1: descent (1 - (1 - eta)^2)/2, so (a) is 2 - eta and the left is 1."""
    devices = Devices(np.array([2.0]), np.array([2.0]), np.zeros(1))
    of = Constants(beta=1.0, theta=1.0, zeta_1=1.0, zeta_2=0.0)
    this = TheoremRound(eta, 1, (1 - (1 - eta) ** 2) / 2, devices)
    assert printed_terms(this, of).total == pytest.approx(2 - eta)
    assert (printed_terms(this, of).total < 1 - 1e-12) == violated
    if violated:
        with pytest.raises(EbbflowError, match="needs eta below 1;"):
            corrected_terms(this, of)
    else:
        assert corrected_terms(this, of).total == pytest.approx(1.0)


@given(SETTINGS)
@settings(max_examples=60, deadline=None)
def test_up_to_seven_steps_the_printed_bound_follows_from_the_corrected_one(
    setting: Setting,
) -> None:
    """Term by term and without training: e times the corrected (b), (c), (d) stay below."""
    for problem, _ in problems_of(setting):
        if min(problem.devices.samples) < 3:
            continue
        of = problem.constants
        for steps in (2, 3, 5, 7):
            eta = 0.99 * printed_rate(steps, of.beta, of.zeta_1)
            this = TheoremRound(eta, steps, 0.0, problem.devices)
            mine, theirs = corrected_terms(this, of), printed_terms(this, of)
            kept = 1 - corrected_slack(eta, steps, of.beta, of.zeta_1)
            given_up = 1 - printed_slack(eta, steps, of.beta, of.zeta_1)
            assert steps * (mine.noise + mine.noise_drift) * kept <= (
                (theirs.noise + theirs.noise_drift) * given_up * (1 + 1e-12)
            )
            assert steps * mine.dissimilarity * kept <= theirs.dissimilarity * given_up + 1e-12


@given(st.integers(2, 500), st.floats(1, 100), st.floats(0.01, 100), st.floats(0.001, 0.999))
def test_the_printed_condition_implies_the_corrected_one(
    steps: int, zeta_1: float, beta: float, fraction: float
) -> None:
    eta = fraction * printed_rate(steps, beta, zeta_1)
    printed = printed_slack(eta, steps, beta, zeta_1)
    assert corrected_slack(eta, steps, beta, zeta_1) <= 9 / 32 * printed * (1 + 1e-9) < 1
    limit = math.sqrt(printed) / (2 * beta * math.sqrt((zeta_1 + printed) * steps * (steps - 1)))
    assert eta == pytest.approx(limit)


# --- orders --------------------------------------------------------------------------------------


def slope(xs: list[float], ys: list[float]) -> float:
    """Return the fitted exponent of ys in xs."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def floor(eta: float, steps: int, batch: float) -> float:
    """Return E||grad F||^2 once training no longer gets better, on two devices' quadratics.

    Both have the same curvature and the same mean: there is noise and no drift.
    """
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, 16, 2))
    x -= x.mean(1, keepdims=True)
    problem = quadratic(x, np.full(2, 16.0), np.full(2, batch), np.ones((2, 2)))
    rounds = math.ceil(4 / (eta * steps))
    settled = train(problem, np.zeros((500, 2)), eta, steps, rounds, rng)
    return float((problem.gradient(settled.w) ** 2).sum(-1).mean())


def test_the_noise_has_the_predicted_order() -> None:
    """(b): eta to the first, (1/B)(1 - B/D) to the first, and no power of e (printed: e)."""
    rates = [0.04, 0.08, 0.16]
    assert slope(rates, [floor(eta, 2, 4) for eta in rates]) == pytest.approx(1, abs=0.1)
    batches = [1.0, 2.0, 4.0, 8.0]
    sampled = [(1 - b / 16) / b for b in batches]
    assert slope(sampled, [floor(0.08, 2, b) for b in batches]) == pytest.approx(1, abs=0.1)
    steps = [1, 2, 4]
    in_steps = slope([float(e) for e in steps], [floor(0.08, e, 4) for e in steps])
    assert in_steps == pytest.approx(0, abs=0.1)


def test_the_drift_has_the_predicted_order() -> None:
    """(d): eta squared, and (e - 1)(2e - 1), with full batches on devices that disagree."""
    rates = [0.002, 0.004, 0.008]
    found = [fixed_point(eta, 5) for eta in rates]
    assert slope(rates, found) == pytest.approx(2, abs=0.1)
    steps = [4, 8, 16, 32]
    predicted = [float((e - 1) * (2 * e - 1)) for e in steps]
    assert slope(predicted, [fixed_point(0.002, e) for e in steps]) == pytest.approx(1, abs=0.1)


def fixed_point(eta: float, steps: int) -> float:
    """Return ||grad F||^2 where FedAvg with full batches stays, for two quadratics."""
    curvature, centre = np.array([1.0, 0.2]), np.array([1.0, -1.0])
    # w_k after e steps is x_k + (1 - eta a_k)^e (w - x_k); the mean of both is w again.
    moved = 1 - (1 - eta * curvature) ** steps
    w = (moved * centre).sum() / moved.sum()
    return float((curvature * (w - centre)).mean() ** 2)


def test_the_simulated_fixed_point_is_the_one_in_closed_form() -> None:
    rng = np.random.default_rng(0)
    x = np.array([1.0, -1.0])[:, None, None] + np.zeros((2, 2, 1))
    problem = quadratic(x, np.full(2, 2.0), np.full(2, 2.0), np.array([[1.0], [0.2]]))
    w = train(problem, np.zeros((1, 1)), 0.02, 5, 400, rng).w
    assert float(problem.gradient(w)[0, 0] ** 2) == pytest.approx(fixed_point(0.02, 5), rel=1e-6)


# --- by hand -------------------------------------------------------------------------------------


def test_terms_by_hand() -> None:
    devices = Devices(np.array([4.0, 12.0]), np.array([2.0, 3.0]), np.array([6.0, 22.0]))
    of = Constants(beta=2.0, theta=0.5, zeta_1=1.5, zeta_2=3.0)
    this = TheoremRound(eta=0.05, steps=3, descent=0.2, devices=devices)
    # Theta^2 sigma~^2 (1 - B/D)/B: .25*6*.5/2 = .375 and .25*22*.75/3 = 1.375
    printed = printed_terms(this, of, slack=0.5)
    assert printed.descent == pytest.approx(2 * 0.2 / (0.05 * 0.5))
    assert printed.noise == pytest.approx(4 * 2 * 0.05 * 3 / 0.5 * (0.375 / 4 + 1.375 / 12))
    assert printed.noise_drift == pytest.approx(4 * 4 * 0.0025 * 2 / (16 * 0.5) * 1.75)
    assert printed.dissimilarity == pytest.approx(8 * 4 * 0.0025 * 3 * 2 * 3 / 0.5)
    corrected = corrected_terms(this, of, slack=0.5)
    nu = np.array([0.375 / 3, 1.375 / 11])
    assert corrected.descent == pytest.approx(2 * 0.2 / (0.05 * 3 * 0.5))
    assert corrected.noise == pytest.approx(2 * 0.1 / 0.5 * (nu[0] / 16 + nu[1] * 9 / 16))
    assert corrected.noise_drift == pytest.approx(1.75 * 0.01 * 2 / 0.5 * (nu[0] + 3 * nu[1]) / 4)
    assert corrected.dissimilarity == pytest.approx(9 / 16 * 0.01 * 2 * 5 * 3 / 0.5)


def test_a_measured_variance_takes_the_place_of_the_assumption() -> None:
    sizes, batch, dispersion = np.array([4.0, 12.0]), np.array([2.0, 3.0]), np.array([6.0, 22.0])
    assumed = Devices(sizes, batch, dispersion)
    of = Constants(beta=2.0, theta=0.5, zeta_1=1.5, zeta_2=3.0)
    measured = Devices(sizes, batch, dispersion, batch_variance(assumed, of.theta))
    for terms in (printed_terms, corrected_terms):
        with_measured = terms(TheoremRound(0.05, 3, 0.2, measured), of)
        assert with_measured == pytest.approx(terms(TheoremRound(0.05, 3, 0.2, assumed), of))


def test_what_the_theorem_excludes_is_refused() -> None:
    with pytest.raises(EbbflowError, match="device 1 has D_k = 3 samples and B_k = 4"):
        Devices(np.array([4.0, 3.0]), np.array([4.0, 4.0]), np.zeros(2))
    devices = Devices(np.array([4.0]), np.array([4.0]), np.zeros(1))
    of = Constants(beta=1.0, theta=0.0, zeta_1=1.0, zeta_2=0.0)
    with pytest.raises(EbbflowError, match=r"eta = 0.3 gives no bound: .* below 0.25; lower"):
        printed_terms(TheoremRound(0.3, 2, 0.0, devices), of)


def test_the_example_stands_in_the_document_as_it_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
    table = page.split("| e | ‖∇F‖² | as printed | corrected |\n")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[1:]]
    assert [int(row[0]) for row in rows] == [7, 30, 66, 67, 300]
    for steps, *cells in rows:
        found, printed, corrected = one_round(int(steps))
        numbers = (float(found.squares.mean()), printed.total, corrected.total)
        assert [f"{number:.2e}".replace("-", "−", number < 0) for number in numbers] == cells
