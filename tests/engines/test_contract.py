"""Every algorithm by every path of every engine: the same round, whatever trains it.

The paths and the algorithms are lists in `paths`; an algorithm that is registered is tested here
without a line of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, mean_state
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.evaluate import evaluate
from ebbflow.core.local import Cohort, Engine, Lane
from ebbflow.core.types import Model, ModelState
from ebbflow.engines import Sequential, Vectorised
from ebbflow.models import softmax
from tests.algorithms.toys import TOYS, stateful
from tests.engines.paths import (
    VARIANTS,
    EnginePath,
    close_to,
    every_path,
    every_variant,
    train,
)
from tests.engines.rounds import (
    CLASSES,
    MANY,
    MODELS,
    SHAPE,
    Sizes,
    assert_agree,
    cohort,
    lane,
    normed,
    permuted,
    reference,
    same_bits,
    tensors,
    vectorised,
)

SOFTMAX = softmax(SHAPE, CLASSES)
every_algorithm = pytest.mark.parametrize(
    "algorithm", [build() for build in ALGORITHMS.values()] + TOYS, ids=lambda a: a.name
)
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


# --- every algorithm by every path ---------------------------------------------------------------


@every_path
@every_variant
def test_rounds_with_newcomers_absentees_and_returners_are_the_references(
    path: EnginePath, variant: str
) -> None:
    """Global model, buffers, the server's state and that of every device, after every round."""
    engine = path.engine()
    ours = path.federation(engine, variant)
    theirs = path.federation(path.reference(), variant)
    for who in path.cohorts():
        ours.round(who)
        theirs.round(who)
        close_to(
            path,
            {"theta": ours.model.theta, "buffers": ours.model.buffers, **ours.server},
            {"theta": theirs.model.theta, "buffers": theirs.model.buffers, **theirs.server},
        )
        assert ours.clients.keys() == theirs.clients.keys()
        for device, state in ours.clients.items():
            close_to(path, *path.states(state, theirs.clients[device]))
    engine.close()
    assert not torch.equal(ours.model.theta, path.start.theta)


@every_path
@every_variant
def test_a_lane_takes_the_route_that_is_told(path: EnginePath, variant: str) -> None:
    engine = path.engine()
    route = engine.route(path.lane(variant), path.cohorts()[0])
    engine.close()
    assert route.path == path.route_of(variant)
    fastest = ("dense layers", "fused kernel", "sample space")
    plain = isinstance(engine, Vectorised) and not path.others and path.model.hints.dense is None
    assert (route.reason == "") == (route.path in fastest or plain)


@every_path
@every_variant
def test_the_order_of_devices_is_no_more_than_rounding(path: EnginePath, variant: str) -> None:
    engine = path.engine()
    straight, turned = (path.federation(engine, variant) for _ in range(2))
    for who in path.cohorts():
        order = np.random.default_rng(who.round).permutation(len(who.devices)).tolist()
        straight.round(who)
        turned.round(permuted(who, order))
    engine.close()
    ours, theirs = straight.tensors(), turned.tensors()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=2e-6, msg=name)


@every_path
@every_variant
def test_a_device_without_a_step_gives_every_algorithm_numbers(
    path: EnginePath, variant: str
) -> None:
    if variant == "stateful":  # the toy divides by its steps
        return
    rows = (np.array([1]), np.array([1, 2]))
    who = Cohort(1, 1, (10, 11), ((), (rows[1],)), (1, 2), (), rows)
    engine = path.engine()
    federation = path.federation(engine, variant)
    for t in (1, 2):
        federation.round(who._replace(round=t))
    engine.close()
    for name, value in federation.tensors().items():
        assert bool(value.isfinite().all()), name


@every_path
def test_several_lanes_are_several_rounds(path: EnginePath) -> None:
    """To the bit: methods that are compared do not touch each other."""
    who = path.cohorts()[0]
    lanes = [path.lane(variant, lr=0.1 + 0.01 * i) for i, variant in enumerate(VARIANTS)]
    together = train(path, lanes, who)
    assert len(together) == len(lanes)
    for at, trained in zip(lanes, together, strict=True):
        assert same_bits(trained, train(path, [at], who)[0]), at.algorithm.name


@every_path
@every_variant
def test_a_round_leaves_what_went_in_alone(path: EnginePath, variant: str) -> None:
    engine = path.engine()
    federation = path.federation(engine, variant)
    first, second = path.cohorts()[:2]
    federation.round(first)
    kept = {d: {k: v.clone() for k, v in s.items()} for d, s in federation.clients.items()}
    at = path.lane(variant, federation.clients)
    theta, buffers = at.shared.theta.clone(), at.shared.buffers.clone()
    extras = {name: value.clone() for name, value in at.shared.extras.items()}
    engine([at], second)
    engine.close()
    assert torch.equal(at.shared.theta, theta)
    assert torch.equal(at.shared.buffers, buffers)
    torch.testing.assert_close(at.shared.extras, extras, rtol=0, atol=0)
    assert at.clients.keys() == kept.keys()
    for device, state in kept.items():
        assert all(torch.equal(at.clients[device][name], value) for name, value in state.items())


# --- every path ----------------------------------------------------------------------------------


@every_path
def test_a_round_is_the_sum_of_its_devices(path: EnginePath) -> None:
    who, at = path.cohorts()[0], path.lane("fedavg")
    alone = [train(path, [at], permuted(who, [place]))[0][0] for place in range(len(who.devices))]
    total = train(path, [at], who)[0][0]
    torch.testing.assert_close(total.delta, torch.stack([u.delta for u in alone]).sum(0))
    assert float(total.samples) == sum(who.samples)
    assert float(total.devices) == len(who.devices)


@every_path
def test_where_there_are_weights_they_count_instead_of_the_samples(path: EnginePath) -> None:
    who, at = path.cohorts()[0], path.lane("fedavg")
    weights = tuple(1.5 + 7 * k % 5 for k in range(len(who.devices)))
    alone = [
        train(path, [at], permuted(who, [place])._replace(samples=(1,)))[0][0]
        for place in range(len(who.devices))
    ]
    total = train(path, [at], who._replace(weights=weights))[0][0]
    expected = torch.stack([w * u.delta for w, u in zip(weights, alone, strict=True)]).sum(0)
    torch.testing.assert_close(total.delta, expected)
    assert float(total.samples) == sum(weights)
    assert float(total.devices) == len(who.devices)


@every_path
def test_states_come_back_for_every_participant_and_nobody_else(path: EnginePath) -> None:
    who = path.cohorts()[0]
    fresh = stateful().init_client(path.lane("stateful").shared)
    first, second = who.devices[:2]
    old = {d: fresh | {"rounds": torch.tensor(6.0)} for d in (first, second, 99)}
    _, states = train(path, [path.lane("stateful", old)], who)[0]
    assert {device: float(state["rounds"]) for device, state in states.items()} == {
        device: 7.0 if device in old else 1.0 for device in who.devices
    }


@every_path
@pytest.mark.parametrize("elsewhere", [5.0, float("nan")])
def test_rows_of_nobody_in_the_cohort_have_no_influence(path: EnginePath, elsewhere: float) -> None:
    if not path.data.x.is_floating_point() and elsewhere != elsewhere:
        return  # there is no such word
    who, at = path.cohorts()[0], path.lane("fedavg")
    used = np.unique(np.concatenate([rows for steps in who.batches for rows in steps]))
    x = torch.full_like(path.data.x, elsewhere)
    x[used] = path.data.x[used]
    assert len(used) < len(x)
    changed = replace(path, data=replace(path.data, x=x))
    assert same_bits(train(changed, [at], who)[0], train(path, [at], who)[0])


@every_path
def test_an_empty_cohort_is_refused_in_a_sentence(path: EnginePath) -> None:
    with pytest.raises(EbbflowError, match="session 3, round 2: nobody takes part"):
        train(path, [path.lane("fedavg")], cohort([]))


@every_path
def test_a_device_without_a_step_sends_no_displacement(path: EnginePath) -> None:
    who = Cohort(1, 1, (1,), ((),), (5,), (), (np.array([1]),))
    upload, _ = train(path, [path.lane("fedavg")], who)[0]
    assert not upload.delta.any()
    assert float(upload.samples) == 5


@every_path
@pytest.mark.parametrize("variant", ["scaffold", "scaffold-1"])
def test_a_device_without_a_step_keeps_its_control_variate(path: EnginePath, variant: str) -> None:
    """A device of one sample has no batch to take statistics of, and so no step."""
    old = {10: {"c": torch.arange(float(path.model.layout.total)).to(path.start.theta)}}
    who = Cohort(1, 1, (10,), ((),), (1,), (), (np.array([1]),))
    upload, states = train(path, [path.lane(variant, old)], who)[0]
    assert torch.equal(states[10]["c"], old[10]["c"])
    assert not upload.extras["c"].any()


@every_path
def test_evaluation_is_that_of_the_model(path: EnginePath) -> None:
    engine = path.engine()
    other = ModelState(0.5 * path.start.theta, path.start.buffers)
    scores = engine.evaluate([path.start, other], path.data)()
    engine.close()
    for model, (accuracy, loss, _) in zip([path.start, other], scores, strict=True):
        expected = evaluate(path.model, model, path.data)
        assert accuracy == expected[0]
        assert loss == pytest.approx(expected[1], rel=1e-6)


@every_path
@pytest.mark.parametrize("variant", ["scaffold", "feddyn"])
def test_the_mean_state_is_that_of_whole_vectors(path: EnginePath, variant: str) -> None:
    engine = path.engine()
    federation = path.federation(engine, variant)
    for who in path.cohorts():
        federation.round(who)
    fresh = federation.algorithm.init_client(path.lane(variant).shared)
    states = [fresh, *federation.clients.values()]
    samples = [3 + i for i in range(len(states))]
    whole = [path.states(state, fresh)[0] for state in states]
    mean = engine.mean_state(states, samples)
    engine.close()
    assert mean.keys() == fresh.keys()
    expected = mean_state(whole, samples)
    assert all(torch.equal(mean[name], value) for name, value in expected.items())


@every_path
@pytest.mark.parametrize("variant", ["fedavg", "scaffold", "moon"])
def test_divergence_is_explained_by_device_and_step(path: EnginePath, variant: str) -> None:
    """By training itself or by `explain`."""
    in_float32 = replace(path, start=ModelState(*(part.float() for part in path.start)))
    at, who, engine = in_float32.lane(variant, lr=1e38), path.cohorts()[0], path.engine()
    with pytest.raises(TrainingError, match=r"^session \d, round 1, device \d+, step \d: the loc"):
        _trained_and_explained(engine, at, who)
    engine.close()


def _trained_and_explained(engine: Engine, at: Lane, who: Cohort) -> None:
    engine([at], who)
    engine.explain([at], who)


@every_path
def test_nothing_is_explained_where_nothing_diverged(path: EnginePath) -> None:
    engine = path.engine()
    federation = path.federation(engine, "moon")
    first, second = path.cohorts()[:2]
    federation.round(first)
    engine.explain([path.lane("moon", federation.clients)], second)
    engine.close()


# --- models of images, and any cohort ------------------------------------------------------------


@every_model
@every_algorithm
@pytest.mark.parametrize(
    "sizes", [MANY, [(20, 7)], [(1,), (1, 1), (1,)]], ids=["many", "one_device", "one_sample"]
)
def test_vectorised_agrees_with_sequential(
    model: Model, algorithm: Algorithm, sizes: Sizes
) -> None:
    who, at = cohort(sizes), lane(model, algorithm)
    assert_agree(vectorised(model, [at], who)[0], reference(model, [at], who)[0], at)


@every_model
@every_algorithm
def test_engines_agree_when_only_some_devices_come_back(model: Model, algorithm: Algorithm) -> None:
    first, at = cohort(MANY[:8]), lane(model, algorithm)
    _, remembered = reference(model, [at], first)[0]
    again, second = lane(model, algorithm, clients=remembered), cohort(MANY[:12], seed=1)
    assert_agree(vectorised(model, [again], second)[0], reference(model, [again], second)[0], again)


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=8),
    st.integers(0, 100),
)
def test_engines_agree_on_any_cohort(sizes: list[list[int]], seed: int) -> None:
    who, at = cohort(sizes, seed), lane(SOFTMAX, stateful())
    assert_agree(vectorised(SOFTMAX, [at], who)[0], reference(SOFTMAX, [at], who)[0], at)


@every_algorithm
@pytest.mark.parametrize("block", [None, 1, 3])
def test_engines_agree_on_batch_statistics(algorithm: Algorithm, block: int | None) -> None:
    """A padded row would show: BatchNorm normalises by what is in the batch."""
    model = normed()
    sizes = [tuple(max(2, size) for size in steps) for steps in MANY]
    who, at = cohort(sizes), lane(model, algorithm)
    assert_agree(vectorised(model, [at], who, block)[0], reference(model, [at], who)[0], at)


@pytest.mark.parametrize("kind", [Sequential, Vectorised], ids=lambda kind: kind.__name__)
@settings(deadline=None, max_examples=10)
@given(order=st.permutations(range(20)))
def test_any_order_of_devices_is_no_more_than_rounding(
    kind: type[Sequential] | type[Vectorised], order: list[int]
) -> None:
    who, at = cohort(MANY[:20]), lane(SOFTMAX, stateful())
    run = partial(reference if kind is Sequential else vectorised, SOFTMAX)
    assert_agree(run([at], permuted(who, order))[0], run([at], who)[0], at, within=1e-6)
    assert len(tensors(run([at], who)[0])) > 4
