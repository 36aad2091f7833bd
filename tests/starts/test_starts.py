"""Ways to start a session, each as a function of a past that is made up here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.starts import STARTS
from ebbflow.starts.average import average
from ebbflow.starts.previous import previous
from ebbflow.starts.warm_start import warm_start
from tests.starts.panels import towards

LAYOUT = Layout(("weight", "bias"), ((3, 4), (3,)))


def vector(seed: int, size: int = LAYOUT.total) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def model(seed: int) -> ModelState:
    return ModelState(vector(seed), vector(seed + 1000, 2))


def past(signatures: list[Tensor | None], *, goes_on: bool = True) -> Situation:
    """Return the beginning of a session after some that have these signatures."""
    sessions = (PastSession(z, model(z), g) for z, g in enumerate(signatures, start=2))
    return Situation(
        session=9,
        carried=model(600),
        goes_on=goes_on,
        known_labels=(1, 2) if goes_on else (),
        pilot=model(500),
        initial=model(400),
        past=tuple(sessions),
        layout=LAYOUT,
        probe=Probe(vector(700)),
        survey=towards(model(600).theta),  # whoever is asked likes the carried model best
    )


class Probe:
    """A probe that moves any model by a known displacement, and counts."""

    def __init__(self, displacement: Tensor) -> None:
        self.displacement = displacement
        self.calls: list[ModelState] = []

    def __call__(self, start: ModelState) -> ModelState:
        self.calls.append(start)
        return ModelState(start.theta + self.displacement, start.buffers + 7)


def started(start: Start, situation: Situation, probe: Probe | None = None) -> StartingPoint:
    return start.choose(situation if probe is None else replace(situation, probe=probe))


def assert_equal(a: ModelState, b: ModelState) -> None:
    assert torch.equal(a.theta, b.theta)
    assert torch.equal(a.buffers, b.buffers)


@pytest.mark.parametrize("name", STARTS)
def test_without_a_past_every_start_carries_on(name: str) -> None:
    start = started(STARTS[name](), past([]))
    assert_equal(start.model, model(600))
    assert start.weights == {}
    assert start.distances == {}


@pytest.mark.parametrize("name", STARTS)
def test_no_start_changes_its_past(name: str) -> None:
    history, same = (past([vector(i) for i in range(4)]) for _ in range(2))
    start = started(STARTS[name](), history)
    assert_equal(history.pilot, same.pilot)
    for entry, before in zip(history.past, same.past, strict=True):
        assert_equal(entry.model, before.model)
        assert start.model.theta.data_ptr() != entry.model.theta.data_ptr()


@pytest.mark.parametrize("name", STARTS)
def test_weights_are_of_past_sessions_and_add_up_to_one(name: str) -> None:
    history = past([vector(i) for i in range(4)])
    weights = started(STARTS[name](), history).weights
    assert set(weights) <= {2, 3, 4, 5}
    if weights:
        assert math.fsum(weights.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", STARTS)
def test_a_mixture_of_named_models_adds_up_to_one(name: str) -> None:
    mixture = started(STARTS[name](), past([vector(i) for i in range(4)])).mixture
    assert not mixture or math.fsum(mixture.values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("build", [previous, average])
def test_the_baselines_do_not_probe(build: Callable[[], Start]) -> None:
    probe = Probe(vector(700))
    start = started(build(), past([None, None]), probe)
    assert probe.calls == []
    assert start.signature is None


def test_previous_carries_on() -> None:
    assert_equal(started(previous(), past([None, None])).model, model(600))


def test_average_is_the_plain_mean_of_all_past_models() -> None:
    start = started(average(), past([None] * 3))
    for field in ("theta", "buffers"):
        mean = torch.stack([getattr(model(z), field).double() for z in (2, 3, 4)]).mean(0)
        torch.testing.assert_close(getattr(start.model, field), mean.float(), rtol=0, atol=1e-7)
    assert start.weights == {2: 1 / 3, 3: 1 / 3, 4: 1 / 3}


def test_warm_start_probes_once_from_the_pilot_and_signs_with_parameters_alone() -> None:
    probe = Probe(vector(700))
    history = past([])
    start = started(warm_start(), history, probe)
    (asked,) = probe.calls
    assert_equal(asked, history.pilot)
    assert start.signature is not None
    assert torch.equal(start.signature, asked.theta + vector(700) - asked.theta)


def test_a_single_candidate_is_taken_to_the_bit() -> None:
    history = past([vector(1)])
    for scale in (0.0, 10.0, 800.0, math.inf):
        start = started(warm_start(scale=scale), history)
        assert_equal(start.model, model(2))
        assert start.weights == {2: 1.0}


@given(st.integers(1, 12))
def test_without_sensitivity_it_is_the_average_to_the_bit(count: int) -> None:
    history = past([vector(i) for i in range(count)])
    assert_equal(started(warm_start(scale=0.0), history).model, started(average(), history).model)


@pytest.mark.parametrize("distance", ["per_tensor", "raw", "normalised", "inner_product"])
def test_with_infinite_sensitivity_it_is_the_nearest(distance: str) -> None:
    history = past([vector(1), vector(2), vector(3)])
    probe = Probe(vector(2) + 0.05 * vector(4))
    start = started(warm_start(distance, math.inf), history, probe)
    assert_equal(start.model, model(3))
    assert start.weights == {2: 0.0, 3: 1.0, 4: 0.0}


@pytest.mark.parametrize("scale", [0.5, 10.0])
def test_the_mixture_is_the_papers_formula(scale: float) -> None:
    signatures = [vector(1), vector(2), vector(3)]
    history = past(list(signatures))
    start = started(warm_start("raw", scale), history, Probe(vector(5)))
    g = (model(500).theta + vector(5) - model(500).theta).double()
    powers = [math.exp(-scale * float((g - other.double()).norm())) for other in signatures]
    mu = [power / math.fsum(powers) for power in powers]
    assert list(start.weights.values()) == pytest.approx(mu, abs=1e-12)
    mixed = sum(
        (weight * model(z).theta.double() for z, weight in enumerate(mu, start=2)),
        torch.zeros(LAYOUT.total, dtype=torch.float64),
    )
    torch.testing.assert_close(start.model.theta, mixed.float(), rtol=0, atol=1e-6)


def test_biases_do_not_count_in_the_default_distance() -> None:
    same_weights = vector(1).clone()
    same_weights[LAYOUT.slices()["bias"]] *= -50
    start = started(warm_start(), past([same_weights, vector(2)]), Probe(3 * vector(1)))
    assert start.distances[2] == pytest.approx(0, abs=1e-6)


def test_a_closer_signature_weighs_more() -> None:
    history = past([vector(1) + step * vector(2) for step in (0.1, 0.4, 0.9)])
    weights = started(warm_start(scale=2.0), history, Probe(vector(1))).weights
    assert weights[2] > weights[3] > weights[4] > 0


def test_entries_without_a_signature_are_passed_over() -> None:
    start = started(warm_start(), past([None, vector(1)]))
    assert set(start.weights) == {3}


@pytest.mark.parametrize("name", STARTS)
def test_a_start_probes_and_keeps_what_its_record_says(name: str) -> None:
    probe = Probe(vector(700))
    point = started(STARTS[name](), past([vector(1), vector(2)]), probe)
    record = STARTS[name]
    assert bool(probe.calls) == record.probes == (point.signature is not None)
    assert (point.teacher is not None) == ("teacher" in record.keeps)
    assert bool(point.weights or point.mixture) == ("models" in record.keeps)
    assert (point.kept is not None) == ("starts" in record.keeps)
    assert bool(point.distances) == ("signatures" in record.keeps)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("warm_start", {"scale": -1}, r"parameters\.warm_start\.scale = -1 is refused"),
        ("warm_start", {"scale": math.nan}, r"scale = nan is refused"),
        ("warm_start", {"scale": "large"}, r"scale = 'large' is refused"),
        ("warm_start", {"signature": "short"}, r"'exact' or 'sketch'"),
        ("warm_start", {"distance": "per_tnsor"}, r"warm_start\.distance: .* mean per_tensor\?"),
        ("warm_start", {"scael": 1}, r"no parameter 'scael': did you mean scale\?"),
        ("continuous", {"kl": -0.5}, r"kl = -0\.5 is refused"),
        ("continuous", {"first": "last"}, r"'none' or 'uniform'"),
        ("learned", {"models": 1}, r"parameters\.learned\.models = 1 is refused"),
        ("learned", {"devices": 0}, r"parameters\.learned\.devices = 0 is refused"),
        ("learned", {"samples": 0}, r"samples = 0 is refused"),
        ("learned", {"groups": 0}, r"groups = 0 is refused"),
        ("learned", {"margin": -0.5}, r"margin = -0\.5 is refused"),
        ("learned", {"margin": math.inf}, r"margin = inf is refused"),
        ("learned", {"compression": "int4"}, r"'fp32', 'bf16' or 'int8'"),
        ("learned", {"balance": 1.5}, r"balance = 1.5 is refused"),
        ("learned", {"model": 4}, r"no parameter 'model': did you mean models\?"),
        ("previous", {"scale": 1}, r"parameters\.previous\.scale = 1: previous has no parameters"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(EbbflowError, match=message) as caught:
        STARTS[name].build(parameters)
    assert "\n" not in str(caught.value)
