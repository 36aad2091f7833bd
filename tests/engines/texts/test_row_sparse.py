"""Texts on the rows they touch: the same rounds as on whole vectors, whatever the hooks are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.engines import RowSparse, SampleSpace, Sequential, Vectorised
from ebbflow.engines.texts import row_sparse as module
from ebbflow.models import embedding, softmax
from ebbflow.starts.continuous import distilled
from tests.engines.rounds import EVERYBODY, RECIPE, same_bits, tensors
from tests.engines.text_rounds import DATA, EXACT, LENGTH, MODEL, cast_to, rounds, start, taught


def sign(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    sent, _ = weighted_upload(shared, client, run)
    return sent._replace(delta=torch.sign(sent.delta)), client


def pushing(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    """Send a vector and a number besides."""
    sent, _ = weighted_upload(shared, client, run)
    moved = run.samples * torch.tanh(run.theta - shared.theta)
    return sent._replace(extras={"moved": moved, "steps": run.samples * run.steps}), client


def starting(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    sent, _ = weighted_upload(shared, client, run)
    assert run.start_gradient is not None
    return sent._replace(extras={"g": run.samples * run.start_gradient}), client


def whole_models(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    sent, _ = weighted_upload(shared, client, run)
    return sent._replace(extras={"model": run.theta}), client


def clipped(g: Tensor, *_: object) -> Tensor:
    return g.clamp(-0.01, 0.01)


STILL = [
    Algorithm("clip", direction=clipped),
    Algorithm("sign", direction=lambda g, *_: 0.01 * torch.sign(g)),
    Algorithm("product", direction=lambda g, theta, *_: g * theta),
    Algorithm(
        "near", direction=lambda g, theta, shared, _: clipped(g) + 0.5 * (theta - shared.theta)
    ),
    Algorithm("start", direction=clipped, upload=starting, start_gradient=True),
]
"""Rows without a gradient stay where they are, and are not sent."""
MOVING = [
    Algorithm("decay", direction=lambda g, theta, *_: 0.01 * torch.sign(g) + 0.1 * theta),
    Algorithm("constant", direction=lambda g, *_: g + 0.01),
    Algorithm("bits", direction=clipped, upload=sign),
    Algorithm("models", direction=clipped, upload=whole_models),
    Algorithm(
        "push",
        broadcast=lambda theta, server: (
            theta,
            {"push": 0.05 * torch.cos(theta), "half": theta.new_tensor(0.5)},
        ),
        direction=lambda g, _, shared, __: (
            torch.tanh(g + shared.extras["push"]) * shared.extras["half"]
        ),
        upload=pushing,
    ),
]
"""Rows without a gradient move nevertheless, or might be sent though they do not."""
NOT_LINEAR = STILL + MOVING
OURS = [
    made
    for made in (build() for build in ALGORITHMS.values())
    if not made.init_client(Broadcast(*start(), {}))
]
ON_ROWS = [*NOT_LINEAR, *OURS, taught("fedavg", "mixed")._replace(name="continuous")]
"""Algorithms that can be trained on rows, linear or not."""
not_linear = pytest.mark.parametrize("algorithm", NOT_LINEAR, ids=lambda a: a.name)
on_rows = pytest.mark.parametrize("algorithm", ON_ROWS, ids=lambda a: a.name)


def lane_of(algorithm: Algorithm, model: ModelState | None = None, lr: float = 0.3) -> Lane:
    theta, buffers = model or start()
    server = algorithm.init_server(theta, EVERYBODY)
    if "m" in server:  # FedACG's look-ahead is along its momentum
        server["m"] = 0.01 * torch.cos(theta)
    sent, extras = algorithm.broadcast(theta, server)
    return Lane(algorithm, Broadcast(sent, buffers, extras), lr, {})


def go(
    lanes: Sequence[Lane],
    who: Cohort,
    workers: int = 2,
    recipe: Recipe = RECIPE,
) -> list[Trained]:
    engine = RowSparse(MODEL, DATA, recipe, workers)
    try:
        return engine(lanes, who)
    finally:
        engine.close()


def assert_equal(one: Trained, other: Trained) -> None:
    """Compare all sums, relative to the largest of their entries."""
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    assert one[1] == other[1]
    for name, value in right.items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(left[name], value, rtol=0, atol=EXACT * scale, msg=name)


@pytest.fixture
def no_whole_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Vectorised, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        raise AssertionError(f"on whole vectors: {[lane.algorithm.name for lane in lanes]}")

    monkeypatch.setattr(Vectorised, "_mapped", refuse)


@pytest.mark.usefixtures("no_whole_vectors")
@pytest.mark.parametrize(("rule", "momentum"), [("each_step", 0.9), ("repeats", 0.0)])
@on_rows
def test_rounds_are_those_of_the_reference(
    algorithm: Algorithm, rule: str, momentum: float
) -> None:
    recipe, model = Recipe(momentum), start()
    for who in rounds(rule, 2):
        lane = lane_of(algorithm, model)
        ((expected, states),) = Sequential(MODEL, DATA, recipe)([lane], who)
        assert_equal(go([lane], who, recipe=recipe)[0], (expected, states))
        theta, _ = algorithm.server_step(
            model.theta, algorithm.init_server(model.theta, EVERYBODY), expected
        )
        assert not torch.equal(theta, model.theta)
        model = ModelState(theta, model.buffers)


@pytest.mark.usefixtures("no_whole_vectors")
@not_linear
def test_the_sample_space_leaves_to_rows_what_is_not_linear(algorithm: Algorithm) -> None:
    engine, who = SampleSpace(MODEL, DATA, Recipe(0.9), 2), rounds("each_step", 1)[0]
    lanes = [lane_of(OURS[0]), lane_of(algorithm), lane_of(OURS[1])]
    expected = Sequential(MODEL, DATA, Recipe(0.9))(lanes, who)
    for one, other in zip(engine(lanes, who), expected, strict=True):
        assert_equal(one, other)
    engine.close()


@pytest.mark.usefixtures("no_whole_vectors")
def test_several_lanes_are_several_rounds() -> None:
    who, lanes = rounds("each_step", 1)[0], [lane_of(each) for each in ON_ROWS]
    for lane, together in zip(lanes, go(lanes, who), strict=True):
        assert same_bits(together, go([lane], who)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_workers_and_who_waits_do_not_show(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = rounds("repeats", 1)[0]
    lanes = [lane_of(each, cast_to(start(), dtype)) for each in NOT_LINEAR]
    monkeypatch.setattr(module, "RANGE", 32)  # several of them in our small table
    expected = go(lanes, who, workers=1)
    for workers, ahead in [(2, 4), (3, 1)]:
        monkeypatch.setattr(module, "AHEAD", ahead)
        for one, other in zip(go(lanes, who, workers), expected, strict=True):
            assert same_bits(one, other)


@on_rows
def test_a_device_without_a_step_and_one_without_words(algorithm: Algorithm) -> None:
    empty = np.flatnonzero(~DATA.x.any(1).numpy())[:4]
    batches = ((), (empty[:2], empty[2:]), (np.array([1, 2]), np.array([2, 4])))
    who, lane = Cohort(1, 1, (10, 11, 12), batches, (1, 4, 3)), lane_of(algorithm)
    assert_equal(go([lane], who)[0], Sequential(MODEL, DATA, Recipe(0.9))([lane], who)[0])


@not_linear
def test_devices_of_one_size_count_each(algorithm: Algorithm) -> None:
    batches = [(np.arange(k, k + 4), np.arange(k + 2, k + 5)) for k in range(5)]
    who, lane = Cohort(1, 1, tuple(range(5)), batches, (7, 7, 5, 7, 5)), lane_of(algorithm)
    assert_equal(go([lane], who)[0], Sequential(MODEL, DATA, Recipe(0.9))([lane], who)[0])


@pytest.mark.parametrize("algorithm", STILL, ids=lambda a: a.name)
def test_where_nothing_moves_on_its_own_nothing_of_the_tables_size_is_computed(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.RowSparseLane, "add_idle", None)
    go([lane_of(algorithm)], rounds("each_step", 1)[0])


def test_what_a_device_sends_has_the_size_of_its_words() -> None:
    engine, who = RowSparse(MODEL, DATA, Recipe(0.9), 1), rounds("one_pass", 1)[0]
    lanes = [
        module.RowSparseLane(lane_of(each), Recipe(0.9), engine.bag_of_words) for each in NOT_LINEAR
    ]
    for place, batches in enumerate(who.batches):
        words = DATA.x[torch.from_numpy(np.concatenate(batches))]
        for sent in engine._device_on_rows(lanes, who, place):
            assert set(sent.words.tolist()) == {0, *words.flatten().tolist()}
            length = len(sent.words) * engine.bag_of_words.width + sum(MODEL.layout.sizes[1:])
            assert {len(vector) for vector in sent.vectors.values()} == {length}
    engine.close()


WHOLE = {
    "norm": Algorithm("norm", direction=lambda g, *_: g / (1 + g.norm())),
    "states": Algorithm(
        "old",
        init_client=lambda shared: {"c": torch.zeros_like(shared.theta)},
        direction=clipped,
        upload=lambda shared, client, run: (
            weighted_upload(shared, client, run)[0],
            {"c": client["c"] + torch.sign(run.theta - shared.theta)},
        ),
    ),
}


@pytest.mark.parametrize("kind", [RowSparse, SampleSpace])
@pytest.mark.parametrize("name", [*WHOLE, "radius"])
def test_other_algorithms_are_trained_on_whole_vectors(
    name: str, kind: type[RowSparse], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowSparse, "_device_on_rows", None)  # nobody may call it
    radius = float(start().theta.norm()) * 0.98 if name == "radius" else None
    recipe, who = Recipe(0.9, radius), rounds("each_step", 1)[0]
    lane, engine = lane_of(WHOLE.get(name, OURS[0])), kind(MODEL, DATA, recipe, 2)
    (ours, states), ((expected, theirs),) = (
        engine([lane], who)[0],
        Sequential(MODEL, DATA, recipe)([lane], who),
    )
    torch.testing.assert_close(ours.delta, expected.delta, rtol=0, atol=1e-9)
    torch.testing.assert_close(states, theirs, rtol=0, atol=1e-9)
    engine.close()


def test_a_round_leaves_the_broadcast_alone() -> None:
    for algorithm in ON_ROWS:
        lane, same = lane_of(algorithm), lane_of(algorithm)
        go([lane], rounds("each_step", 1)[0])
        torch.testing.assert_close(lane.shared._asdict(), same.shared._asdict(), rtol=0, atol=0)


def test_an_empty_cohort_is_refused_in_a_sentence() -> None:
    with pytest.raises(EbbflowError, match="session 1, round 1: nobody takes part"):
        go([lane_of(OURS[0])], Cohort(1, 1, (), (), ()))


def test_a_device_at_fault_stops_the_round() -> None:
    data = Examples(DATA.x.clone(), DATA.y)
    data.x[5] = 99
    engine = RowSparse(MODEL, data, Recipe(), 2)
    batches = [(np.array([k]),) for k in range(40)]
    who = Cohort(1, 1, tuple(range(40)), batches, (1,) * 40)
    with pytest.raises(EbbflowError, match=r"numbered 0 to 59: set parameters\.embedding"):
        engine([lane_of(OURS[0])], who)
    engine.close()


def test_a_model_without_words_is_refused() -> None:
    with pytest.raises(EbbflowError, match="softmax does not average word vectors"):
        RowSparse(softmax((3,), 2), DATA, Recipe())


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_round_of_any_shape(data: st.DataObject) -> None:
    words, width = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 5))
    classes, recipe = data.draw(st.integers(1, 4)), Recipe(data.draw(st.sampled_from([0.0, 0.9])))
    model: Model = embedding((LENGTH,), classes, vocabulary=words, width=width)
    some = Examples(DATA.x[:20] % words, DATA.y[:20] % classes)
    steps = st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=6), max_size=4)
    drawn = data.draw(st.lists(steps, min_size=1, max_size=4))
    batches = [tuple(np.array(rows) for rows in device) for device in drawn]
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(drawn), max_size=len(drawn)))
    who = Cohort(1, 1, tuple(range(len(drawn))), batches, tuple(counts))
    picked = data.draw(st.lists(st.sampled_from([*NOT_LINEAR, *OURS]), min_size=1, max_size=3))
    teacher = start(9, model)
    lanes = [lane_of(distilled(each, teacher, (0, 1), 0.5), start(1, model)) for each in picked]
    lanes += [lane_of(each, start(2, model), 0.1) for each in picked]
    engine = RowSparse(model, some, recipe, 2)
    for one, other in zip(
        engine(lanes, who), Sequential(model, some, recipe)(lanes, who), strict=True
    ):
        assert_equal(one, other)
    engine.close()
