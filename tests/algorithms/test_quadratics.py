"""Two devices with a parabola each: every algorithm by hand, and where it comes to rest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Population, Upload, cross_entropy
from ebbflow.core.local import Cohort, Recipe
from ebbflow.core.types import Examples, Labels, Layout, Model, ModelState, Output, State
from tests.engines.rounds import ENGINES, Federation

every_engine = pytest.mark.parametrize("engine", ENGINES)
LR = 0.1
START = 1.0


class Parabola(NamedTuple):
    """A device whose loss is curvature/2 (w - optimum)^2."""

    curvature: float
    optimum: float
    samples: int
    steps: int

    def after(self, start: float, pull: float = 0.0, curve: float = 0.0, to: float = 0.0) -> float:
        """Return where its steps end on its loss - pull w + curve/2 (w - to)^2.

        That is a parabola again: gradient descent shrinks the way to its optimum by a factor.
        """
        steep = self.curvature + curve
        rest = (self.curvature * self.optimum + pull + curve * to) / steep
        return rest + (1 - LR * steep) ** self.steps * (start - rest)

    def slope(self, at: float) -> float:
        return self.curvature * (at - self.optimum)


ONE = Parabola(curvature=4.0, optimum=0.5, samples=10, steps=2)
TWO = Parabola(curvature=1.0, optimum=-2.0, samples=30, steps=3)
BOTH = (ONE, TWO)


def line() -> Model:
    """Return logits = theta x, with its gradient."""

    def forward(
        theta: Tensor, buffers: Tensor, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Tensor]:
        return Output(theta * x, theta * x), buffers

    return Model(
        "line",
        Layout(("slope",), ((1,),)),
        Layout((), ()),
        lambda _: ModelState(torch.tensor([START]), torch.zeros(0)),
        forward,
        pullback=lambda theta, x, cotangent: ((cotangent.logits + cotangent.features) * x).sum(0),
    )


def squared_error(output: Output, y: Labels, anchors: dict[str, Output], client: State) -> Tensor:
    return (output.logits.squeeze(-1) - y).square() / 2


def samples_of(devices: tuple[Parabola, ...]) -> Examples:
    """One sample (x, y) per device: 1/2 (w x - y)^2 = x^2/2 (w - y/x)^2. Labels are whole."""
    roots = torch.tensor([[math.sqrt(d.curvature)] for d in devices], dtype=torch.float64)
    labels = [d.optimum * math.sqrt(d.curvature) for d in devices]
    assert all(label == round(label) for label in labels)
    return Examples(roots, torch.tensor([round(label) for label in labels]))


def cohort(devices: tuple[Parabola, ...], t: int) -> Cohort:
    batches = tuple((np.array([k]),) * d.steps for k, d in enumerate(devices))
    return Cohort(1, t, tuple(range(len(devices))), batches, tuple(d.samples for d in devices))


def federation(
    algorithm: Algorithm,
    devices: tuple[Parabola, ...],
    engine: str = "sequential",
    momentum: float = 0.0,
) -> Federation:
    assert algorithm.objective is cross_entropy
    quadratic = algorithm._replace(objective=squared_error)
    run = ENGINES[engine](line(), samples_of(devices), Recipe(momentum))
    start = ModelState(torch.tensor([START], dtype=torch.float64), torch.zeros(0))
    everybody = Population(len(devices), sum(d.samples for d in devices))
    return Federation(run, quadratic, start, everybody)


def weighted(values: list[float], devices: tuple[Parabola, ...] = BOTH) -> float:
    total = sum(d.samples for d in devices)
    return sum(d.samples / total * value for d, value in zip(devices, values, strict=True))


# --- two rounds by hand --------------------------------------------------------------------------

ByHand = Callable[[], tuple[float, float]]


def fedavg() -> tuple[float, float]:
    first = weighted([d.after(START) for d in BOTH])
    return first, weighted([d.after(first) for d in BOTH])


def fedprox() -> tuple[float, float]:
    first = weighted([d.after(START, curve=1.0, to=START) for d in BOTH])
    return first, weighted([d.after(first, curve=1.0, to=first) for d in BOTH])


def scaffold() -> tuple[float, float]:
    ends = [d.after(START) for d in BOTH]
    first = weighted(ends)
    own = [(START - end) / (LR * d.steps) for d, end in zip(BOTH, ends, strict=True)]
    c = weighted(own)
    return first, weighted([d.after(first, c_k - c) for d, c_k in zip(BOTH, own, strict=True)])


def scaffold_1() -> tuple[float, float]:
    first = weighted([d.after(START) for d in BOTH])
    own = [d.slope(START) for d in BOTH]
    c = weighted(own)
    return first, weighted([d.after(first, c_k - c) for d, c_k in zip(BOTH, own, strict=True)])


def scaffold_authors() -> tuple[float, float]:
    first = START + LR * (weighted([d.after(START) for d in BOTH]) - START)
    return first, first + LR * (weighted([d.after(first) for d in BOTH]) - first)


def fedacg() -> tuple[float, float]:
    m = weighted([d.after(START, curve=0.1, to=START) for d in BOTH]) - START
    first = START + m
    ahead = first + 0.5 * m
    moved = weighted([d.after(ahead, curve=0.1, to=ahead) for d in BOTH]) - ahead
    return first, first + 0.5 * m + moved


def fedavgm() -> tuple[float, float]:
    m = weighted([d.after(START) for d in BOTH]) - START
    first = START + m
    return first, first + 0.9 * m + weighted([d.after(first) for d in BOTH]) - first


def _adaptive(second: Callable[[float, float], float]) -> tuple[float, float]:
    d = weighted([device.after(START) for device in BOTH]) - START
    m, v = 0.1 * d, second(1e-6, d * d)
    first = START + 0.01 * m / (math.sqrt(v) + 1e-3)
    d = weighted([device.after(first) for device in BOTH]) - first
    m, v = 0.9 * m + 0.1 * d, second(v, d * d)
    return first, first + 0.01 * m / (math.sqrt(v) + 1e-3)


def fedadam() -> tuple[float, float]:
    return _adaptive(lambda v, squared: 0.99 * v + 0.01 * squared)


def fedyogi() -> tuple[float, float]:
    return _adaptive(lambda v, squared: v - 0.01 * squared * math.copysign(1, v - squared))


def feddyn() -> tuple[float, float]:
    alpha = 0.01
    ends = [d.after(START, curve=alpha, to=START) for d in BOTH]
    own = [-alpha * (end - START) for end in ends]
    first = weighted(ends) - weighted(own) / alpha
    ends = [d.after(first, h, alpha, first) for d, h in zip(BOTH, own, strict=True)]
    own = [h - alpha * (end - first) for h, end in zip(own, ends, strict=True)]
    return first, weighted(ends) - weighted(own) / alpha


BY_HAND: dict[str, tuple[Algorithm, ByHand]] = {
    "fedavg": (ALGORITHMS["fedavg"](), fedavg),
    "fedprox": (ALGORITHMS["fedprox"](), fedprox),
    "scaffold": (ALGORITHMS["scaffold"](), scaffold),
    "scaffold-1": (ALGORITHMS["scaffold"](option=1), scaffold_1),
    "scaffold-authors": (ALGORITHMS["scaffold-authors"](), scaffold_authors),
    "fedacg": (ALGORITHMS["fedacg"](), fedacg),
    "fedavgm": (ALGORITHMS["fedavgm"](), fedavgm),
    "fedadam": (ALGORITHMS["fedadam"](), fedadam),
    "fedyogi": (ALGORITHMS["fedyogi"](), fedyogi),
    "feddyn": (ALGORITHMS["feddyn"](), feddyn),
}


@every_engine
@pytest.mark.parametrize("name", BY_HAND)
def test_two_rounds_on_two_parabolas_are_those_of_the_blackboard(name: str, engine: str) -> None:
    algorithm, by_hand = BY_HAND[name]
    found = federation(algorithm, BOTH, engine)
    for t, expected in enumerate(by_hand(), start=1):
        found.round(cohort(BOTH, t), LR)
        assert float(found.model.theta) == pytest.approx(expected, abs=1e-12), t


def test_the_blackboard_tells_the_algorithms_apart() -> None:
    ends = sorted(by_hand()[1] for _, by_hand in BY_HAND.values())
    assert min(b - a for a, b in itertools.pairwise(ends)) > 1e-5


# MOON keeps its cross-entropy: two classes with the scores (w, 0), and the representation (w, 1),
# whose cosine with (w', 1) is that of the angle between them.


def compass() -> Model:
    def forward(
        theta: Tensor, buffers: Tensor, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Tensor]:
        score = theta * x
        return (
            Output(torch.cat([score, 0 * x], -1), torch.cat([score, torch.ones_like(x)], -1)),
            buffers,
        )

    return Model(
        "compass",
        Layout(("slope",), ((1,),)),
        Layout((), ()),
        lambda _: ModelState(torch.tensor([START]), torch.zeros(0)),
        forward,
    )


def _moon_step(
    w: float, label: int, sent: float, last: float | None, mu: float, tau: float
) -> float:
    slope = 1 / (1 + math.exp(-w)) - (1 - label)
    if last is not None:
        angle, to_sent, to_last = math.atan(w), math.atan(sent), math.atan(last)
        lead = (math.cos(angle - to_last) - math.cos(angle - to_sent)) / tau
        turned = (math.sin(angle - to_sent) - math.sin(angle - to_last)) / tau
        slope += mu / (1 + math.exp(-lead)) * turned / (1 + w * w)
    return w - LR * slope


@every_engine
@pytest.mark.parametrize(("mu", "tau"), [(1.0, 1.0), (5.0, 0.5)])
def test_three_rounds_of_moon_are_those_of_the_blackboard(
    engine: str, mu: float, tau: float
) -> None:
    """In the first round there is no contrast; then there is, in the third by own last models."""
    data = Examples(torch.ones(2, 1, dtype=torch.float64), torch.tensor([0, 1]))
    steps, samples = (2, 3), (10, 30)
    batches = tuple((np.array([k]),) * steps[k] for k in range(2))
    run = ENGINES[engine](compass(), data, Recipe(0.0))
    start = ModelState(torch.tensor([START], dtype=torch.float64), torch.zeros(0))
    found = Federation(run, ALGORITHMS["moon"](mu=mu, tau=tau), start, Population(2, 40))
    w, last = START, [None, None]  # type: tuple[float, list[float | None]]
    for t in (1, 2, 3):
        ends = []
        for k in range(2):
            here = w
            for _ in range(steps[k]):
                here = _moon_step(here, k, w, last[k], mu, tau)
            ends.append(here)
        last = [*ends]
        w = 0.25 * ends[0] + 0.75 * ends[1]
        found.round(Cohort(1, t, (0, 1), batches, samples), LR)
        assert float(found.model.theta) == pytest.approx(w, abs=1e-12), t


# --- where they come to rest ---------------------------------------------------------------------

ROUNDS = 40
MANY_STEPS = {
    "equal": (ONE._replace(samples=20, steps=10), TWO._replace(samples=20, steps=10)),
    "unequal": (ONE._replace(steps=10), TWO._replace(steps=10)),
    "unequal, of unequal steps": (ONE._replace(steps=4), TWO._replace(steps=12)),
}


def joint_optimum(devices: tuple[Parabola, ...]) -> float:
    """Return the minimum of sum_k D_k F_k."""
    return weighted([d.curvature * d.optimum for d in devices], devices) / weighted(
        [d.curvature for d in devices], devices
    )


def rest(algorithm: Algorithm, devices: tuple[Parabola, ...], momentum: float = 0.0) -> float:
    found = federation(algorithm, devices, momentum=momentum)
    for t in range(1, ROUNDS + 1):
        found.round(cohort(devices, t), LR)
    return float(found.model.theta)


@pytest.mark.parametrize("case", MANY_STEPS)
def test_fedavg_stays_away_from_the_joint_optimum(case: str) -> None:
    """It rests where sum_k D_k (1 - (1 - lr curvature)^steps) (optimum_k - w) = 0."""
    devices = MANY_STEPS[case]
    reach = [1 - (1 - LR * d.curvature) ** d.steps for d in devices]
    pulled = weighted([r * d.optimum for r, d in zip(reach, devices, strict=True)], devices)
    found = rest(ALGORITHMS["fedavg"](), devices)
    assert found == pytest.approx(pulled / weighted(reach, devices), abs=1e-6)
    assert abs(found - joint_optimum(devices)) > 0.2


@pytest.mark.parametrize("case", MANY_STEPS)
@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_reaches_the_joint_optimum(option: int, case: str) -> None:
    devices = MANY_STEPS[case]
    found = rest(ALGORITHMS["scaffold"](option=option), devices)
    assert found == pytest.approx(joint_optimum(devices), abs=1e-6)


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_reaches_it_under_momentum_too(option: int) -> None:
    """Dividing by the number of steps alone would overestimate the gradients and diverge."""
    devices = (ONE._replace(steps=3), TWO._replace(steps=5))
    found = rest(ALGORITHMS["scaffold"](option=option), devices, momentum=0.5)
    assert found == pytest.approx(joint_optimum(devices), abs=1e-6)


@pytest.mark.parametrize("case", MANY_STEPS)
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_feddyn_reaches_the_joint_optimum(alpha: float, case: str) -> None:
    devices = MANY_STEPS[case]
    found = rest(ALGORITHMS["feddyn"](alpha=alpha), devices)
    assert found == pytest.approx(joint_optimum(devices), abs=1e-6)


@pytest.mark.parametrize("name", ["fedprox", "fedacg", "fedavgm", "scaffold-authors"])
def test_those_without_memory_on_devices_stay_away_too(name: str) -> None:
    devices = MANY_STEPS["unequal"]
    assert abs(rest(ALGORITHMS[name](), devices) - joint_optimum(devices)) > 0.05


# --- servers under a constant displacement -------------------------------------------------------


def servings(algorithm: Algorithm, d: Tensor, rounds: int) -> list[tuple[Tensor, State]]:
    """Return model and state after every round in which all devices moved by d."""
    theta = torch.zeros_like(d)
    server = algorithm.init_server(theta, Population(2, 40))
    found = []
    for _ in range(rounds):
        count = torch.tensor(40.0, dtype=d.dtype)
        total = Upload(40 * d, torch.zeros(0), count, torch.tensor(2.0), {})
        theta, server = algorithm.server_step(theta, server, total)
        found.append((theta, server))
    return found


DISPLACEMENT = torch.tensor([0.3, -0.02, 0.0, 1e-4], dtype=torch.float64)


def test_fedavgm_is_a_geometric_series() -> None:
    b, rate = 0.8, 0.5
    for t, (theta, server) in enumerate(
        servings(ALGORITHMS["fedavgm"](momentum=b, rate=rate), DISPLACEMENT, 6), start=1
    ):
        m = (1 - b**t) / (1 - b) * DISPLACEMENT
        way = (t - b * (1 - b**t) / (1 - b)) / (1 - b)
        torch.testing.assert_close(server["m"], m)
        torch.testing.assert_close(theta, rate * way * DISPLACEMENT)


def test_fedadam_has_no_bias_correction_and_starts_at_tau_squared() -> None:
    rate, b1, b2, tau = 0.02, 0.7, 0.95, 1e-2
    algorithm = ALGORITHMS["fedadam"](rate=rate, beta1=b1, beta2=b2, tau=tau)
    expected = torch.zeros_like(DISPLACEMENT)
    for t, (theta, server) in enumerate(servings(algorithm, DISPLACEMENT, 6), start=1):
        m = (1 - b1**t) * DISPLACEMENT
        v = b2**t * tau**2 + (1 - b2**t) * DISPLACEMENT**2
        expected = expected + rate * m / (v.sqrt() + tau)
        torch.testing.assert_close(server["m"], m)
        torch.testing.assert_close(server["v"], v)
        torch.testing.assert_close(theta, expected)


def test_fedyogi_adds_or_subtracts_the_same_amount_every_round() -> None:
    """While v < d^2 it grows by (1-b2) d^2 a round, while v > d^2 it falls by that."""
    rate, b1, b2, tau = 0.02, 0.7, 0.95, 1e-2
    algorithm = ALGORITHMS["fedyogi"](rate=rate, beta1=b1, beta2=b2, tau=tau)
    expected = torch.zeros_like(DISPLACEMENT)
    towards = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    for t, (theta, server) in enumerate(servings(algorithm, DISPLACEMENT, 6), start=1):
        m = (1 - b1**t) * DISPLACEMENT
        v = tau**2 + t * towards * (1 - b2) * DISPLACEMENT**2
        expected = expected + rate * m / (v.sqrt() + tau)
        torch.testing.assert_close(server["v"], v)
        torch.testing.assert_close(theta, expected)
