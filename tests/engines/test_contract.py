"""Every engine gives every algorithm on every model the same round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Cohort, Engine, Lane
from ebbflow.core.types import Examples, Model
from ebbflow.engines import SampleSpace, Sequential, Touched, Vectorised
from ebbflow.models import mlp, softmax
from ebbflow.starts.continuous import distilled
from tests.algorithms.toys import TOYS, proximal, stateful
from tests.engines import text_rounds
from tests.engines.rounds import (
    CLASSES,
    ENGINES,
    MANY,
    MODELS,
    RECIPE,
    SHAPE,
    Federation,
    Sizes,
    assert_agree,
    cohort,
    conv_normed,
    convnet,
    engine_on,
    examples,
    lane,
    normed,
    permuted,
    reference,
    same_bits,
    softmax_in_torch,
    vectorised,
    visits,
)

SOFTMAX = softmax(SHAPE, CLASSES)
FEDAVG = Algorithm("fedavg")
every_algorithm = pytest.mark.parametrize(
    "algorithm", [build() for build in ALGORITHMS.values()] + TOYS, ids=lambda a: a.name
)
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
every_engine = pytest.mark.parametrize("engine", ENGINES)


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


def taught(model: Model) -> Algorithm:
    """Return MOON that distils from a teacher as well: three frozen models and a device's state."""
    teacher = model.initial(torch.Generator().manual_seed(9))
    return distilled(ALGORITHMS["moon"](), teacher, (0, 1, 2), 0.5, 2.0, "mixed")


def always(algorithm: Algorithm) -> Callable[[Model], Algorithm]:
    return lambda model: algorithm


VARIANTS: dict[str, Callable[[Model], Algorithm]] = {
    **{name: always(build()) for name, build in ALGORITHMS.items()},
    **{toy.name: always(toy) for toy in TOYS},
    "scaffold-1": lambda model: ALGORITHMS["scaffold"](option=1),
    "moon-distilled": taught,
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.mark.parametrize(
    "model", [SOFTMAX, mlp(SHAPE, CLASSES, 12), conv_normed()], ids=lambda m: m.name
)
@every_variant
def test_engines_agree_over_rounds_with_newcomers_absentees_and_returners(
    model: Model, variant: str
) -> None:
    """Global model, buffers, the server's state and that of every device, after every round."""
    algorithm = VARIANTS[variant](model)
    start = model.initial(torch.Generator().manual_seed(1))
    slow, fast = (Federation(engine_on(name, model), algorithm, start) for name in ENGINES)
    for who in visits():
        for federation in (slow, fast):
            federation.round(who)
        ours, theirs = slow.tensors(), fast.tensors()
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
            torch.testing.assert_close(
                theirs[name], value, rtol=1e-5, atol=1e-5 * scale, msg=f"{who.round}: {name}"
            )
    assert not torch.equal(slow.model.theta, start.theta)


@every_engine
@every_variant
def test_for_no_algorithm_the_order_of_devices_is_more_than_rounding(
    engine: str, variant: str
) -> None:
    algorithm = VARIANTS[variant](SOFTMAX)
    start = SOFTMAX.initial(torch.Generator().manual_seed(1))
    run = engine_on(engine, SOFTMAX)
    straight, turned = (Federation(run, algorithm, start) for _ in range(2))
    for who in visits():
        order = np.random.default_rng(who.round).permutation(len(who.devices))
        straight.round(who)
        turned.round(permuted(who, order.tolist()))
    ours, theirs = straight.tensors(), turned.tensors()
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=2e-6, msg=name)


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


@every_engine
def test_a_round_is_the_sum_of_its_devices(engine: str) -> None:
    who, at = cohort(MANY[:5]), lane(SOFTMAX, FEDAVG)
    run = engine_on(engine, SOFTMAX)
    alone = [
        run([at], who._replace(devices=(d,), batches=(b,), samples=(s,)))[0][0]
        for d, b, s in zip(who.devices, who.batches, who.samples, strict=True)
    ]
    total = run([at], who)[0][0]
    torch.testing.assert_close(total.delta, torch.stack([u.delta for u in alone]).sum(0))
    assert float(total.samples) == sum(who.samples)
    assert float(total.devices) == 5


IMAGES: dict[str, tuple[type[Sequential] | type[Vectorised], Model]] = {
    "sequential": (Sequential, SOFTMAX),
    "fused": (Vectorised, SOFTMAX),
    "mapped": (Vectorised, softmax_in_torch()),
    "one by one": (Vectorised, convnet()),
}
TEXTS: dict[str, type[SampleSpace] | type[Touched]] = {
    "sample space": SampleSpace,
    "touched": Touched,
}


def weighing(name: str) -> tuple[Engine, Lane, Cohort]:
    if name in IMAGES:
        engine, model = IMAGES[name]
        return engine(model, examples(), RECIPE), lane(model, FEDAVG), cohort(MANY[:5])
    shared = Broadcast(*text_rounds.start(), {})
    at = Lane(FEDAVG._replace(elementwise=True), shared, 0.1, {})
    who = text_rounds.rounds("one_pass")[0]
    return TEXTS[name](text_rounds.MODEL, text_rounds.DATA, RECIPE, workers=2), at, who


@pytest.mark.parametrize("name", [*IMAGES, *TEXTS])
def test_where_there_are_weights_they_count_instead_of_the_samples(name: str) -> None:
    run, at, who = weighing(name)
    weights = tuple(1.5 + 7 * k % 5 for k in range(len(who.devices)))
    alone = [
        run([at], who._replace(devices=(d,), batches=(b,), samples=(1,), shards=()))[0][0]
        for d, b in zip(who.devices, who.batches, strict=True)
    ]
    total = run([at], who._replace(weights=weights))[0][0]
    run.close()
    expected = torch.stack([w * u.delta for w, u in zip(weights, alone, strict=True)]).sum(0)
    torch.testing.assert_close(total.delta, expected)
    assert float(total.samples) == sum(weights)
    assert float(total.devices) == len(who.devices)


@every_engine
@settings(deadline=None, max_examples=10)
@given(order=st.permutations(range(20)))
def test_the_order_of_devices_is_no_more_than_rounding(engine: str, order: list[int]) -> None:
    who, at = cohort(MANY[:20]), lane(SOFTMAX, stateful())
    run = engine_on(engine, SOFTMAX)
    assert_agree(run([at], permuted(who, order))[0], run([at], who)[0], at, within=1e-6)


@every_engine
def test_states_come_back_for_every_participant_and_nobody_else(engine: str) -> None:
    model, algorithm, who = SOFTMAX, stateful(), cohort(MANY[:20])
    fresh = algorithm.init_client(lane(model, algorithm).shared)
    old = {device: fresh | {"rounds": torch.tensor(6.0)} for device in (11, 12, 99)}
    _, states = engine_on(engine, model)([lane(model, algorithm, clients=old)], who)[0]
    assert {device: float(state["rounds"]) for device, state in states.items()} == {
        device: 7.0 if device in old else 1.0 for device in who.devices
    }


@every_engine
def test_states_that_went_in_are_not_changed(engine: str) -> None:
    algorithm, who = stateful(), cohort(MANY[:3])
    old = {11: algorithm.init_client(lane(SOFTMAX, algorithm).shared)}
    engine_on(engine, SOFTMAX)([lane(SOFTMAX, algorithm, clients=old)], who)
    assert set(old) == {11}
    assert not any(bool(value.any()) for value in old[11].values())


@every_engine
@pytest.mark.parametrize("elsewhere", [1e3, float("nan")])
def test_rows_of_nobody_in_the_cohort_have_no_influence(engine: str, elsewhere: float) -> None:
    who, at, data = cohort(MANY), lane(SOFTMAX, FEDAVG), examples()
    used = np.unique(np.concatenate([rows for steps in who.batches for rows in steps]))
    x = torch.full_like(data.x, elsewhere)
    x[used] = data.x[used]
    assert 0 not in used
    changed = engine_on(engine, SOFTMAX, Examples(x, data.y))([at], who)[0]
    assert same_bits(changed, engine_on(engine, SOFTMAX)([at], who)[0])


@every_engine
def test_several_lanes_are_several_rounds(engine: str) -> None:
    """To the bit: methods that are compared do not touch each other."""
    who, run = cohort(MANY), engine_on(engine, SOFTMAX)
    lanes = [lane(SOFTMAX, FEDAVG), lane(SOFTMAX, proximal(0.5), 0.2), lane(SOFTMAX, stateful())]
    together = run(lanes, who)
    assert len(together) == 3
    for at, trained in zip(lanes, together, strict=True):
        assert same_bits(trained, run([at], who)[0])


@every_engine
def test_an_empty_cohort_is_refused_in_a_sentence(engine: str) -> None:
    with pytest.raises(EbbflowError, match="session 3, round 2: nobody takes part"):
        engine_on(engine, SOFTMAX)([lane(SOFTMAX, FEDAVG)], cohort([]))


@every_engine
def test_a_device_without_a_step_sends_no_displacement(engine: str) -> None:
    who = Cohort(1, 1, (1,), ((),), (5,))
    upload, _ = engine_on(engine, SOFTMAX)([lane(SOFTMAX, FEDAVG)], who)[0]
    assert not upload.delta.any()
    assert float(upload.samples) == 5


@every_engine
def test_a_round_leaves_the_broadcast_alone(engine: str) -> None:
    at: Lane = lane(SOFTMAX, FEDAVG)
    engine_on(engine, SOFTMAX)([at], cohort(MANY[:4]))
    assert torch.equal(at.shared.theta, lane(SOFTMAX, FEDAVG).shared.theta)


@every_engine
@pytest.mark.parametrize("option", [1, 2])
def test_a_device_without_a_step_keeps_its_control_variate(engine: str, option: int) -> None:
    """A device of one sample has no batch to take statistics of, and so no step."""
    algorithm, total = ALGORITHMS["scaffold"](option=option), SOFTMAX.layout.total
    old = {10: {"c": torch.arange(float(total))}}
    who = Cohort(1, 1, (10,), ((),), (1,))
    at = lane(SOFTMAX, algorithm, clients=old)
    upload, states = engine_on(engine, SOFTMAX)([at], who)[0]
    assert torch.equal(states[10]["c"], old[10]["c"])
    assert not upload.extras["c"].any()


@every_engine
@every_variant
def test_a_device_without_a_step_gives_every_algorithm_numbers(engine: str, variant: str) -> None:
    who = Cohort(1, 1, (10, 11), ((), (np.array([1, 2]),)), (1, 2))
    start = SOFTMAX.initial(torch.Generator().manual_seed(1))
    federation = Federation(engine_on(engine, SOFTMAX), VARIANTS[variant](SOFTMAX), start)
    if variant == "stateful":  # the toy divides by its steps
        return
    for t in (1, 2):
        federation.round(who._replace(round=t))
    for name, value in federation.tensors().items():
        assert bool(value.isfinite().all()), name
