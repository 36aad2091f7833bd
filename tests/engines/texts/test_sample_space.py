"""Texts in the sample space: the same rounds as on whole vectors, and nothing of their size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.evaluate import evaluate
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.types import Examples, Model, State
from ebbflow.engines import SampleSpace, Sequential, Vectorised, WholeVectors
from ebbflow.engines.texts import device_texts
from ebbflow.engines.texts import sample_space as module
from ebbflow.engines.texts.combination import NotLinearError
from ebbflow.engines.texts.packed_states import (
    TextFeatures,
    TextSpan,
    is_packed,
    laid_out,
    unpacked,
)
from ebbflow.engines.texts.symbolic import linear_hooks
from ebbflow.models import embedding, softmax
from ebbflow.starts.continuous import distilled
from tests.algorithms.toys import TOYS
from tests.engines.rounds import EVERYBODY, RECIPE, Federation, same_bits
from tests.engines.text_rounds import (
    BAG_OF_WORDS,
    CLASSES,
    DATA,
    EXACT,
    LENGTH,
    MODEL,
    SHARDS,
    WIDTH,
    assert_same,
    cast_to,
    reference,
    rounds,
    run,
    start,
    taught,
)

ALGORITHMS_HERE: dict[str, Algorithm] = {
    **{name: build() for name, build in ALGORITHMS.items()},
    **{toy.name: toy for toy in TOYS},
    "scaffold-1": ALGORITHMS["scaffold"](option=1),
    "fedprox-5": ALGORITHMS["fedprox"](mu=5.0),
    "fedacg-3": ALGORITHMS["fedacg"](beta=3.0),
    "continuous": taught("fedavg"),
    "continuous-mixed": taught("fedavg", "mixed"),
    "moon-distilled": taught("moon", "mixed"),
}
WHOLE = {"stateful"}
"""Algorithms of the tests that need whole vectors: this one remembers a dense direction."""


def engine(recipe: Recipe = RECIPE, workers: int = 2, model: Model = MODEL) -> SampleSpace:
    return SampleSpace(model, DATA, recipe, workers)


@pytest.mark.parametrize(
    ("rule", "momentum"),
    [("one_pass", 0.9), ("each_step", 0.9), ("each_step", 0.0), ("repeats", 0.5)],
)
@pytest.mark.parametrize("name", ALGORITHMS_HERE)
def test_rounds_are_those_on_whole_vectors(name: str, momentum: float, rule: str) -> None:
    algorithm, recipe = ALGORITHMS_HERE[name], Recipe(momentum)
    train = engine(recipe)
    ours = Federation(train, algorithm, start())
    theirs = Federation(Sequential(MODEL, DATA, recipe), algorithm, start())
    for who in rounds(rule, 3):
        ours.round(who, 0.3)
        theirs.round(who, 0.3)
        assert_same(ours, theirs)
    train.close()
    assert not torch.equal(ours.model.theta, start().theta)


@pytest.mark.parametrize("name", ALGORITHMS_HERE)
def test_only_what_needs_whole_vectors_gets_them(name: str) -> None:
    algorithm, model = ALGORITHMS_HERE[name], start()
    server = algorithm.init_server(model.theta, EVERYBODY)
    theta, extras = algorithm.broadcast(model.theta, server)
    lane = Lane(algorithm, Broadcast(theta, model.buffers, extras), 0.1, {})
    if name in WHOLE:
        with pytest.raises(NotLinearError):
            linear_hooks(lane, Recipe(), BAG_OF_WORDS, CLASSES, True)
    else:
        linear_hooks(lane, Recipe(), BAG_OF_WORDS, CLASSES, True)


def test_what_scaffold_and_feddyn_remember_lies_in_the_span_of_their_texts() -> None:
    for name in ("scaffold", "scaffold-1", "feddyn"):
        ours = run(ALGORITHMS_HERE[name], engine(), rounds("each_step"))
        for state in ours.clients.values():
            (vector,) = unpacked(state).values()
            assert isinstance(vector, TextSpan)


def test_moon_remembers_features_of_all_own_texts() -> None:
    ours = run(ALGORITHMS_HERE["moon"], engine(), rounds("one_pass"))
    for device, state in ours.clients.items():
        remembered = unpacked(state)["theta"]
        assert isinstance(remembered, TextFeatures)
        assert remembered.features.shape == (len(SHARDS[device]), WIDTH)


def test_without_shards_moon_is_trained_on_whole_models() -> None:
    cohorts = [who._replace(shards=()) for who in rounds("one_pass")]
    algorithm = ALGORITHMS_HERE["moon"]
    ours = run(algorithm, engine(), cohorts)
    assert_same(ours, run(algorithm, Sequential(MODEL, DATA, Recipe(0.9)), cohorts))
    assert not any(is_packed(state) for state in ours.clients.values())


def sign(shared: Broadcast, client: State, trained: LocalRun) -> tuple[Upload, State]:
    sent, _ = weighted_upload(shared, client, trained)
    return sent._replace(delta=torch.sign(sent.delta)), client


NOT_LINEAR = {
    "sign": Algorithm("sign", upload=sign),
    "clip": Algorithm("clip", direction=lambda g, *_: g.clamp(-0.01, 0.01)),
    "norm": Algorithm("norm", direction=lambda g, *_: g / (1 + g.norm())),
    "constant": Algorithm("constant", direction=lambda g, *_: g + 0.01),
    "product": Algorithm("product", direction=lambda g, theta, *_: g * theta),
    "ones": Algorithm("ones", init_client=lambda shared: {"c": torch.ones_like(shared.theta)}),
    "branch": Algorithm("branch", direction=lambda g, *_: g if g.sum() > 0 else 2 * g),
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_hooks_that_are_not_linear_are_run_on_whole_vectors(name: str) -> None:
    algorithm, cohorts = NOT_LINEAR[name], rounds("one_pass", 2)
    ours = run(algorithm, engine(), cohorts)
    assert_same(ours, run(algorithm, Sequential(MODEL, DATA, Recipe(0.9)), cohorts))


def test_weight_decay_and_other_linear_directions_are_followed() -> None:
    algorithm = Algorithm(
        "decay", direction=lambda g, theta, shared, _: 0.5 * g + 0.1 * theta - 0.03 * shared.theta
    )
    cohorts = rounds("each_step", 3)
    ours = run(algorithm, engine(), cohorts)
    assert_same(ours, run(algorithm, Sequential(MODEL, DATA, Recipe(0.9)), cohorts))


def test_a_projection_goes_the_dense_way() -> None:
    recipe = Recipe(0.9, radius=float(start().theta.norm()) * 0.98)
    ours = run(ALGORITHMS_HERE["scaffold"], engine(recipe), rounds("one_pass", 2))
    dense = Sequential(MODEL, DATA, recipe)
    assert_same(ours, run(ALGORITHMS_HERE["scaffold"], dense, rounds("one_pass", 2)))


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "feddyn"])
def test_a_device_without_a_step_and_one_without_words(name: str) -> None:
    empty = np.flatnonzero(~DATA.x.any(1).numpy())[:4]
    batches = ((), (empty[:2], empty[2:]), (np.array([1, 2]), np.array([2, 4])))
    shards = (np.array([5]), empty, np.array([1, 2, 4]))
    who = Cohort(1, 1, (10, 11, 12), batches, (1, 4, 3), (), shards)
    algorithm, train = ALGORITHMS_HERE[name], engine()
    ours = Federation(train, algorithm, start())
    theirs = Federation(Sequential(MODEL, DATA, Recipe(0.9)), algorithm, start())
    for t in (1, 2, 3):
        ours.round(who._replace(round=t), 0.3)
        theirs.round(who._replace(round=t), 0.3)
        torch.testing.assert_close(ours.model.theta, theirs.model.theta, rtol=0, atol=EXACT)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "feddyn", "fedprox", "stateful"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_workers_windows_and_kept_matrices_do_not_show(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(workers: int) -> list[Trained]:
        train = engine(workers=workers)
        federation = Federation(train, ALGORITHMS_HERE[name], cast_to(start(), dtype))
        for who in rounds("each_step", 3):
            federation.round(who, 0.3)
        lane = Lane(
            federation.algorithm,
            Broadcast(
                *federation.model,
                federation.algorithm.broadcast(federation.model.theta, federation.server)[1],
            ),
            0.3,
            federation.clients,
        )
        trained = train([lane], rounds("each_step")[3])
        train.close()
        return trained

    whole_one = go(1)[0]
    assert same_bits(go(2)[0], whole_one)
    monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    monkeypatch.setattr(module, "GRAM_BYTES", 1)
    assert same_bits(go(3)[0], whole_one)
    monkeypatch.setattr(device_texts, "WIDER", 0)  # Gram matrices of the round's texts alone
    assert same_bits(go(2)[0], whole_one)


def test_leaves_are_added_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """More devices than a leaf: windows of one leaf and of all give the same bits."""
    batches = [(np.arange(3 * k, 3 * k + 5), np.arange(3 * k, 3 * k + 3)) for k in range(50)]
    who = Cohort(1, 1, tuple(range(50)), batches, tuple(range(1, 51)))
    lane = Lane(Algorithm("fedavg"), Broadcast(*cast_to(start(), torch.float32), {}), 0.3, {})
    all_at_once = engine()([lane], who)[0]
    monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    assert same_bits(engine(workers=1)([lane], who)[0], all_at_once)
    apart = Sequential(MODEL, DATA, Recipe(0.9))([lane], who)[0]
    torch.testing.assert_close(all_at_once[0].delta, apart[0].delta, rtol=1e-4, atol=1e-3)


def test_lanes_do_not_show_in_each_other() -> None:
    train = engine()
    cohorts = rounds("each_step", 3)
    lanes = []
    for name in ("fedavg", "scaffold", "moon", "stateful", "feddyn"):
        before = run(ALGORITHMS_HERE[name], train, cohorts[:2])
        theta, extras = before.algorithm.broadcast(before.model.theta, before.server)
        shared = Broadcast(theta, before.model.buffers, extras)
        lanes.append(Lane(before.algorithm, shared, 0.3, before.clients))
    together = train(lanes, cohorts[2])
    for lane, trained in zip(lanes, together, strict=True):
        assert same_bits(trained, train([lane], cohorts[2])[0])


@pytest.mark.parametrize("name", ["scaffold", "moon", "feddyn"])
def test_states_survive_a_file_to_the_bit(name: str, tmp_path: Path) -> None:
    straight, train = run(ALGORITHMS_HERE[name], engine(), rounds("each_step")), engine()
    resumed = run(ALGORITHMS_HERE[name], train, rounds("each_step")[:2])
    for device, state in resumed.clients.items():
        save_file({key: value.clone() for key, value in state.items()}, tmp_path / "state")
        resumed.clients[device] = load_file(tmp_path / "state")
    for who in rounds("each_step")[2:]:
        resumed.round(who, 0.3)
    assert torch.equal(resumed.model.theta, straight.model.theta)


@pytest.mark.parametrize("other", [Sequential, Vectorised])
@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_engines_of_whole_vectors_go_on_from_here_and_back(
    name: str, other: type[Sequential] | type[Vectorised]
) -> None:
    algorithm, cohorts = ALGORITHMS_HERE[name], rounds("each_step")
    dense = WholeVectors(other(MODEL, DATA, Recipe(0.9)), BAG_OF_WORDS, DATA)
    expected, ours = run(algorithm, dense, cohorts), run(algorithm, engine(), cohorts[:2])
    ours.engine = dense
    ours.round(cohorts[2], 0.3)
    ours.engine = engine()
    ours.round(cohorts[3], 0.3)
    assert_same(ours, expected)


def test_moon_goes_on_from_whole_models_and_refuses_the_way_back() -> None:
    algorithm, cohorts = ALGORITHMS_HERE["moon"], rounds("each_step")
    dense = reference(Recipe(0.9))
    expected, ours = run(algorithm, dense, cohorts), run(algorithm, dense, cohorts[:2])
    ours.engine = engine()
    for who in cohorts[2:]:
        ours.round(who, 0.3)
    torch.testing.assert_close(ours.model.theta, expected.model.theta, rtol=0, atol=EXACT)
    ours.engine = dense
    with pytest.raises(EbbflowError, match=r'features .* \(theta\).*engine.kind = "vectorised"'):
        ours.round(cohorts[0], 0.3)


def test_a_state_is_laid_out_one_vector_at_a_time() -> None:
    ours = run(ALGORITHMS_HERE["scaffold"], engine(), rounds("one_pass"))
    expected = run(
        ALGORITHMS_HERE["scaffold"], Sequential(MODEL, DATA, Recipe()), rounds("one_pass")
    )
    for device, state in ours.clients.items():
        dense = laid_out(state, BAG_OF_WORDS, DATA)
        torch.testing.assert_close(dense, expected.clients[device], rtol=0, atol=EXACT)
        assert laid_out(dense, BAG_OF_WORDS, DATA) is dense


def test_the_device_and_step_at_fault_are_named() -> None:
    who = rounds("one_pass")[0]
    lane = Lane(Algorithm("fedavg"), Broadcast(*cast_to(start(), torch.float32), {}), 1e30, {})
    with pytest.raises(TrainingError, match=r"session 1, round 1, device \d+, step \d: the local"):
        engine()([lane], who)
    with pytest.raises(TrainingError, match=r"device \d+, step 1: the rate 1e\+300 is beyond"):
        engine()([lane._replace(lr=1e300)], who)


def test_an_empty_cohort_is_refused_in_a_sentence() -> None:
    lane = Lane(Algorithm("fedavg"), Broadcast(*start(), {}), 0.1, {})
    with pytest.raises(EbbflowError, match="session 1, round 1: nobody takes part"):
        engine()([lane], Cohort(1, 1, (), (), ()))


def test_a_round_leaves_what_went_in_alone() -> None:
    algorithm, cohorts = ALGORITHMS_HERE["feddyn"], rounds("each_step", 2)
    before = run(algorithm, engine(), cohorts[:1])
    kept = {d: {k: v.clone() for k, v in s.items()} for d, s in before.clients.items()}
    theta = before.model.theta.clone()
    lane = Lane(algorithm, Broadcast(before.model.theta, before.model.buffers, {}), 0.3, kept)
    engine()([lane], cohorts[1])
    assert torch.equal(theta, before.model.theta)
    for device, state in before.clients.items():
        assert all(torch.equal(value, kept[device][name]) for name, value in state.items())


def test_evaluation_is_that_of_the_model() -> None:
    train = engine()
    models = [start(1), start(2)]
    scores = train.evaluate(models, DATA)()
    for state, (accuracy, loss, _) in zip(models, scores, strict=True):
        expected = evaluate(MODEL, state, DATA)
        assert accuracy == expected[0]
        assert loss == pytest.approx(expected[1], rel=1e-12)


def test_a_model_without_words_is_refused() -> None:
    with pytest.raises(EbbflowError, match="softmax does not average word vectors"):
        SampleSpace(softmax((3,), 2), DATA, Recipe())


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_any_round_of_any_algorithm(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ALGORITHMS_HERE)))
    recipe = Recipe(data.draw(st.sampled_from([0.0, 0.5, 0.9])))
    words = data.draw(st.integers(2, 9))
    model = embedding((LENGTH,), CLASSES, vocabulary=words, width=3)
    some = Examples(DATA.x[:20] % words, DATA.y[:20])
    row = st.integers(0, 19)
    steps = st.lists(st.lists(row, min_size=1, max_size=6), max_size=4)
    cohorts = []
    for t in (1, 2, 3):
        drawn = data.draw(st.lists(steps, min_size=1, max_size=3))
        batches = [tuple(np.array(rows) for rows in device) for device in drawn]
        devices = tuple(range(len(batches)))
        shards = [np.arange(20)] * len(devices)
        cohorts.append(Cohort(1, t, devices, batches, tuple(d + 1 for d in devices), (), shards))
    algorithm = ALGORITHMS_HERE[name]
    if "continuous" in name or "distilled" in name:
        algorithm = distilled(ALGORITHMS["moon"](), start(9, model), (0, 1))
    if name == "stateful":  # the toy divides by its steps
        return
    train = SampleSpace(model, some, recipe, 1)
    ours, theirs = (
        Federation(each, algorithm, start(1, model))
        for each in (train, Sequential(model, some, recipe))
    )
    for who in cohorts:
        ours.round(who, 0.2)
        theirs.round(who, 0.2)
    train.close()
    torch.testing.assert_close(ours.model.theta, theirs.model.theta, rtol=1e-9, atol=1e-9)


def test_no_tensor_grows_with_devices_times_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 devices of a table of 8 MB: their vectors would take 320 MB, and three lanes' a GB."""
    resource = pytest.importorskip("resource")
    words, width = 20_000, 100
    model = embedding((LENGTH,), CLASSES, vocabulary=words, width=width)
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, words, (40 * 20, LENGTH), generator=draw)
    data = Examples(x, torch.randint(CLASSES, (len(x),), generator=draw))
    shards = list(np.arange(len(x)).reshape(40, 20))
    batches = [(shard[:8], shard[8:16], shard[16:]) for shard in shards]
    who = Cohort(1, 1, tuple(range(40)), batches, (20,) * 40, (), shards)
    state = model.initial(draw)
    train = SampleSpace(model, data, Recipe())
    lanes = []
    for name in ("scaffold", "moon", "feddyn"):
        algorithm = ALGORITHMS[name]()
        extras = algorithm.init_server(state.theta, EVERYBODY)
        shared = Broadcast(state.theta, state.buffers, extras)
        lanes.append(Lane(algorithm, shared, 0.1, {}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        trained = train(lanes, who)
        lanes = [
            lane._replace(clients=states) for lane, (_, states) in zip(lanes, trained, strict=True)
        ]
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    train.close()
    assert (after - before) / 1024 < 160
    for lane in lanes:
        held = sum(v.nbytes for state in lane.clients.values() for v in state.values())
        assert held < 4 * model.layout.total
    assert is_packed(lanes[0].clients[0])
