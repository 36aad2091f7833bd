"""Surveys in a simulation: sums over devices, who is asked about what, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import hessian, jacrev
from torch.nn import functional

from ebbflow import experiment
from ebbflow.core import answers
from ebbflow.core.counters import Cost
from ebbflow.core.inputs import prepared
from ebbflow.core.rng import generator
from ebbflow.core.survey import Array, Compression, SurveyPlan
from ebbflow.core.types import Dataset, Examples, Indices, ModelState, Pixels, Session
from ebbflow.core.vector import mix
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World
from tests.configs import digits, with_keys
from tests.simulation import test_text_runs

WHOLE = SurveyPlan(compression="fp32", balance=0.0)
MIXTURES = [np.array([1.0, 0.0, 0.0]), np.array([0.7, 0.6, -0.3])]
HALVES: tuple[Literal["learn"], Literal["judge"]] = ("learn", "judge")


def build(dataset: Dataset, **more: Any) -> World:
    small = {"seeds": [1], "sessions": 3, "partition.devices": 6, "methods": ["learned"]}
    return build_world(with_keys(small, more), dataset, 1)


def pictures() -> Dataset:
    """Return raw images, which are normalised when they are used."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (160, 1, 8, 8), generator=draw, dtype=torch.uint8)
    examples = Examples(x, torch.arange(160) % 4, Pixels((0.4,), (0.3,), 1, True))
    return Dataset("digits", examples, examples, 4)


@cache
def world(kind: str = "softmax") -> World:
    if kind == "embedding":
        return build_world(test_text_runs.configured(), test_text_runs.DATA, 1)
    if kind == "cnn":
        return build(pictures(), **{"model.kind": "cnn"})
    return build(digits(), **{"model.kind": kind})


def models(world: World, count: int = 3) -> list[ModelState]:
    return [world.model.initial(torch.Generator().manual_seed(seed)) for seed in range(count)]


def panel_of(world: World, session: Session, plan: SurveyPlan = WHOLE) -> SimulatedPanel:
    return SimulatedPanel(world, session, models(world), plan)


def cut(world: World, *sizes: int) -> Session:
    """Return a session whose devices hold so many samples."""
    rows = np.random.default_rng(0).permutation(len(world.dataset.train))
    parts = np.split(rows[: sum(sizes)], np.cumsum(sizes)[:-1])
    shards = dict(enumerate(parts))
    return replace(world.sessions[1], devices=tuple(shards), shards=shards, sizes=None)


# --- a naive twin: every device by itself --------------------------------------------------------


def halves(world: World, session: Session, device: int, samples: int) -> dict[str, Indices]:
    """Draw a device's samples, and give one half to learn from and the other to judge by."""
    shard = session.shards[device]
    order = generator(world.seed, "survey", session.index, device).permutation(len(shard))
    rows = shard[order[: 2 * samples]]
    middle = len(rows) // 2
    if middle == 0:
        return {"learn": rows, "judge": rows}
    return {"learn": rows[:middle], "judge": rows[middle:]}


def losses_of(world: World, rows: Indices, state: ModelState) -> Tensor:
    examples = world.dataset.train
    at = torch.from_numpy(rows)
    x = prepared(examples.x[at], examples.pixels)
    logits = world.model.forward(*state, x, None, False)[0].logits
    return functional.cross_entropy(logits, examples.y[at], reduction="none").double()


def by_device(
    world: World, session: Session, devices: Sequence[int], half: str, samples: int
) -> tuple[float, Array]:
    """Add up what the devices count and their losses at the mixtures, one after the other."""
    weight, total = 0.0, np.zeros(len(MIXTURES))
    for device in devices:
        rows = halves(world, session, device, samples)[half]
        count = session.samples(device)
        weight += count
        for place, alpha in enumerate(MIXTURES):
            mixed = mix(models(world), alpha.tolist())
            total[place] += count * float(losses_of(world, rows, mixed).mean())
    return weight, total


@pytest.mark.parametrize("kind", ["softmax", "mlp", "cnn", "embedding"])
@pytest.mark.parametrize("half", HALVES)
def test_the_sums_are_those_of_the_devices_one_by_one(
    kind: str, half: Literal["learn", "judge"]
) -> None:
    here = world(kind)
    session = here.sessions[1]
    weight, total = by_device(here, session, session.devices, half, 5)
    for groups in (1, 2, 3):
        panel = panel_of(here, session, WHOLE._replace(samples=5, groups=groups))
        sums = panel.losses(MIXTURES, half)
        assert sums.weight.sum() == pytest.approx(weight, rel=1e-6)
        np.testing.assert_allclose(sums.loss.sum(0), total, rtol=1e-4)


def test_the_products_are_those_of_the_samples_one_by_one() -> None:
    here = world()
    session = here.sessions[1]
    sums = panel_of(here, session, WHOLE._replace(samples=5)).losses(MIXTURES, "judge")
    first, second = (mix(models(here), alpha.tolist()) for alpha in MIXTURES)
    squares = 0.0
    for device in session.devices:
        rows = halves(here, session, device, 5)["judge"]
        each = losses_of(here, rows, first) - losses_of(here, rows, second)
        squares += float(((session.samples(device) / len(rows) * each) ** 2).sum())
    assert sums.error(0, 1) == pytest.approx(np.sqrt(squares) / sums.weight.sum(), rel=1e-4)


def test_an_expansion_adds_up_that_of_every_device() -> None:
    here = world()
    session, alpha = here.sessions[1], torch.tensor(MIXTURES[1], dtype=torch.float64)
    thetas = torch.stack([state.theta.double() for state in models(here)])

    def loss(weights: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for device in session.devices:
            rows = torch.from_numpy(halves(here, session, device, 5)["learn"])
            x, y = here.dataset.train.x[rows].double(), here.dataset.train.y[rows]
            logits = here.model.forward(weights @ thetas, thetas[0, :0], x, None, False)[0].logits
            total = total + session.samples(device) * functional.cross_entropy(logits, y)
        return total

    panel = panel_of(here, session, WHOLE._replace(samples=5, groups=2))
    sums = panel.expansion(MIXTURES[1], "learn")
    slope, curvature = jacrev(loss)(alpha).numpy(), hessian(loss)(alpha).numpy()
    assert sums.loss.sum() == pytest.approx(float(loss(alpha)), rel=1e-4)
    np.testing.assert_allclose(sums.slope.sum(0), slope, rtol=0, atol=1e-4 * np.abs(slope).max())
    np.testing.assert_allclose(
        sums.curvature.sum(0), curvature, rtol=0, atol=1e-4 * np.abs(curvature).max()
    )


# --- who is asked --------------------------------------------------------------------------------

shard_sizes = st.lists(st.integers(1, 60), min_size=1, max_size=9)


@settings(max_examples=25)
@given(shard_sizes, st.integers(1, 12), st.integers(1, 20), st.integers(1, 6))
def test_a_device_counts_with_all_its_samples_however_few_are_drawn(
    sizes: list[int], devices: int, samples: int, groups: int
) -> None:
    here = world()
    session = cut(here, *sizes)
    plan = WHOLE._replace(devices=devices, samples=samples, groups=groups)
    panel = panel_of(here, session, plan)
    assert set(panel.devices) <= set(session.devices)
    assert len(set(panel.devices)) == len(panel.devices) == min(devices, len(sizes))
    held = sum(sizes[device] for device in panel.devices)
    assert panel.share == pytest.approx(held / sum(sizes), abs=0)
    for half in HALVES:
        sums = panel.losses(MIXTURES, half)
        assert sums.weight.sum() == pytest.approx(held, rel=1e-5)
        assert np.isfinite(sums.loss).all()


def test_everybody_is_asked_where_there_are_few() -> None:
    here = world()
    panel = panel_of(here, here.sessions[1])
    assert (panel.devices, panel.share) == (here.sessions[1].devices, 1.0)


@pytest.mark.parametrize("devices", range(1, 10))
@pytest.mark.parametrize("groups", [1, 2, 4, 9])
def test_a_group_has_two_devices_at_least_where_there_are_two(devices: int, groups: int) -> None:
    """All hold the same number of samples, so that what a group counts tells how many it has."""
    here = world()
    session = cut(here, *[10] * devices)
    panel = panel_of(here, session, WHOLE._replace(groups=groups))
    members = panel.losses(MIXTURES, "learn").weight / 10
    assert members.sum() == pytest.approx(devices)
    assert len(members) == max(1, min(groups, devices // 2))
    assert members.min() >= min(2, devices) - 1e-6
    assert members.max() - members.min() < 1.5


@pytest.mark.parametrize(("least", "groups"), [(1, 7), (2, 3), (3, 2), (4, 1), (99, 1)])
def test_a_plan_may_ask_for_larger_groups(least: int, groups: int) -> None:
    here = world()
    plan = WHOLE._replace(groups=99, least=least)
    assert (
        len(panel_of(here, cut(here, *[10] * 7), plan).losses(MIXTURES, "learn").weight) == groups
    )


def test_a_device_with_one_sample_learns_and_judges_by_it() -> None:
    here = world()
    panel = panel_of(here, cut(here, 1))
    learn, judge = (panel.losses(MIXTURES, half) for half in HALVES)
    assert learn.weight.tolist() == judge.weight.tolist() == [1]
    np.testing.assert_array_equal(learn.loss, judge.loss)


def test_the_halves_have_no_sample_in_common() -> None:
    """Each sample has a label of its own here, and the losses at fitting biases tell which."""
    here = world()
    session = cut(here, 2, 2)
    labels = here.dataset.train.y.clone()
    rows = np.concatenate(list(session.shards.values()))
    labels[torch.from_numpy(rows)] = torch.arange(4)
    data = replace(here.dataset, train=replace(here.dataset.train, y=labels))
    found = [label_weights(replace(here, dataset=data), session, WHOLE, [half]) for half in HALVES]
    assert [sorted(counts.round(3)) for counts in found] == [[0] * 8 + [2, 2]] * 2
    assert (found[0] + found[1])[:4] == pytest.approx([2, 2, 2, 2], rel=1e-4)


def test_draws_depend_on_seed_session_and_device_alone() -> None:
    here = world()
    first = panel_of(here, here.sessions[1])
    again = panel_of(replace(here, config=with_keys({"algorithm": ["moon"]})), here.sessions[1])
    np.testing.assert_array_equal(
        first.losses(MIXTURES, "learn").loss, again.losses(MIXTURES, "learn").loss
    )
    later = panel_of(here, replace(here.sessions[1], index=4))
    assert not np.array_equal(
        first.losses(MIXTURES, "learn").loss, later.losses(MIXTURES, "learn").loss
    )


@pytest.mark.parametrize(
    "more",
    [
        {"methods": ["previous", "learned", "warm_start"]},
        {"engine.kind": "sequential"},
        {"algorithm": ["fedprox", "scaffold"]},
    ],
)
def test_the_same_devices_are_asked_whatever_else_is_computed(more: dict[str, Any]) -> None:
    def asked(**settings: Any) -> dict[int, list[int]]:
        small = {"seeds": [1], "sessions": 4, "rounds": 1, "partition.devices": 6}
        keys = {"methods": ["learned"], "parameters.learned.devices": 4, **settings}
        events = experiment.run(with_keys(small, keys), dataset=digits()).events
        return {e["session"]: e["asked"] for e in events if "asked" in e}

    once = asked()
    assert [len(devices) for devices in once.values()] == [4, 4, 4]
    assert asked(**more) == once


# --- only sums reach the server ------------------------------------------------------------------


def test_no_loss_of_a_single_device_is_ever_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each device here has eight samples in each half: fewer than 16 would be one device's."""
    rows: list[int] = []

    def guarded(name: str) -> None:
        really = getattr(answers, name)

        def call(basis: Any, alpha: Any, x: Tensor, y: Tensor, *more: Any) -> Any:
            rows.append(len(y))
            assert len(x) == len(y) >= 16, "a question to a single device"
            return really(basis, alpha, x, y, *more)

        monkeypatch.setattr(answers, name, call)

    guarded("sample_losses")
    guarded("expanded")
    keys = {"parameters.learned.samples": 8, "parameters.learned.groups": 99}
    small = {"seeds": [1], "sessions": 4, "rounds": 2, "partition.devices": 7}
    config = with_keys(small, keys, {"methods": ["learned"], "parameters.learned.devices": 6})
    found = experiment.run(config, dataset=digits())
    assert len(found.rounds) == 8
    assert set(rows) >= {16}


@pytest.mark.parametrize(("devices", "groups"), [(7, 3), (8, 2), (5, 2)])
def test_no_answer_has_an_entry_for_every_device(devices: int, groups: int) -> None:
    here = world()
    panel = panel_of(here, cut(here, *[9] * devices), WHOLE._replace(groups=groups))
    assert [a.shape for a in panel.losses(MIXTURES, "learn")] == [(groups,), (groups, 2), (2, 2)]
    assert [a.shape for a in panel.expansion(MIXTURES[0], "learn")] == [
        (groups,),
        (groups,),
        (groups, 3),
        (groups, 3, 3),
    ]


# --- what a sample counts ------------------------------------------------------------------------


def label_weights(
    world: World, session: Session, plan: SurveyPlan, parts: Sequence[Literal["learn", "judge"]]
) -> Array:
    """Return what the samples of each label count, from the sums alone.

    A model with the bias e_k has the loss log(C - 1 + e) - [y = k] on every sample.
    """
    classes = world.dataset.classes
    biases = torch.zeros(classes, world.model.layout.total)
    biases[:, world.model.layout.slices()["bias"]] = torch.eye(classes)
    states = [ModelState(theta, torch.zeros(0)) for theta in biases]
    panel = SimulatedPanel(world, session, states, plan)
    total = np.zeros(classes)
    for part in parts:
        sums = panel.losses(list(np.eye(classes)), part)
        total += sums.weight.sum() * np.log(classes - 1 + np.e) - sums.loss.sum(0)
    return total


def test_balanced_all_labels_that_are_there_count_alike() -> None:
    here = world()
    session = cut(here, 8, 30, 56, 4, 12)  # all samples are drawn, and halves are equal
    plan = WHOLE._replace(samples=40, balance=1.0)
    counts = label_weights(here, session, plan, HALVES)
    assert counts == pytest.approx(np.full(10, counts.mean()), rel=1e-3)
    plain = label_weights(here, session, plan._replace(balance=0.0), HALVES)
    assert counts.sum() == pytest.approx(plain.sum(), rel=1e-3)
    assert plain.max() > 1.3 * plain.min()


def test_half_balanced_a_label_counts_with_the_root_of_what_it_would() -> None:
    here = world()
    session = cut(here, 8, 30, 56, 4, 12)
    plan = WHOLE._replace(samples=40)
    plain, half = (
        label_weights(here, session, plan._replace(balance=b), HALVES) for b in (0.0, 0.5)
    )
    assert half / half.sum() == pytest.approx(plain**0.5 / (plain**0.5).sum(), rel=1e-3)


def test_balanced_labels_that_are_not_there_do_not_count() -> None:
    here = world()
    there = list(here.sessions[1].labels)
    shards = {device: rows[:20] for device, rows in here.sessions[1].shards.items()}
    session = replace(here.sessions[1], shards=shards)
    counts = label_weights(here, session, WHOLE._replace(balance=1.0), HALVES)
    assert 0 < len(there) < 10
    assert counts[there] == pytest.approx(np.full(len(there), counts.sum() / len(there)), rel=1e-3)
    assert np.delete(counts, there) == pytest.approx(np.zeros(10 - len(there)), abs=1e-2)


def test_unbalanced_a_label_counts_as_often_as_it_is_held() -> None:
    here = world()
    session = cut(here, 20, 40)
    counts = label_weights(here, session, WHOLE, HALVES)
    held = np.bincount(here.dataset.train.y[np.concatenate(list(session.shards.values()))])
    assert counts == pytest.approx(2 * held, abs=1e-2)  # both halves, which are of equal size


@pytest.mark.parametrize("compression", ["bf16", "int8"])
def test_compressed_models_have_almost_the_same_losses(compression: Compression) -> None:
    here = world()
    exact = panel_of(here, here.sessions[1]).losses(MIXTURES, "learn").means
    plan = WHOLE._replace(compression=compression)
    means = panel_of(here, here.sessions[1], plan).losses(MIXTURES, "learn").means
    assert means == pytest.approx(exact, rel=0.02)
    assert not np.array_equal(means, exact)


# --- other data ----------------------------------------------------------------------------------


def test_shards_of_a_pool_are_drawn_when_they_are_asked_about() -> None:
    here = build(digits(), **{"partition.kind": "pool", "partition.samples": 12})
    session = here.sessions[1]
    panel = panel_of(here, session, WHOLE._replace(devices=4))
    assert session.sizes is not None
    assert panel.share == pytest.approx(4 / len(session.devices))
    sums = panel.losses(MIXTURES, "learn")
    weight, total = by_device(here, session, panel.devices, "learn", 32)
    assert sums.weight.sum() == pytest.approx(weight)
    np.testing.assert_allclose(sums.loss.sum(0), total, rtol=1e-4)


def test_learned_starts_on_texts_are_the_same_with_both_engines() -> None:
    keys = {"methods": ["learned"], "parameters.learned.samples": 6}
    ours, theirs = (
        test_text_runs.run(**keys, **{"engine.kind": kind}) for kind in ("vectorised", "sequential")
    )
    # The reference engine adds up the answers device by device, which rounds otherwise.
    assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    assert len(set(ours)) > 10


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [True, False])
def test_what_is_charged_by_hand(balanced: bool) -> None:
    """Softmax regression on digits: 650 parameters, ten labels; four devices, five samples each."""
    here = world()
    (track,) = new_tracks(here, methods_of(here))
    plan = SurveyPlan(devices=4, samples=5, balance=0.5 * balanced)
    panel = SimulatedPanel(here, here.sessions[1], models(here, 2), plan, track)
    basis, counts = 2 * 2 * 650, 10 * 4 if balanced else 0
    sent = Cost(broadcasts=2, bytes_down=basis + counts, bytes_up=4 * counts, questions=1)
    # Logits are linear: each model passes both halves of each device once, and never again.
    sent += Cost(passes=2 * 4 * 10)
    assert track.costs == {"survey": sent}
    assert track.asked == panel.devices

    three = [np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([0.5, 0.5])]
    panel.losses(three, "judge")
    # Down: three times two weights. Up: weight, three losses, six products.
    asked = Cost(bytes_down=4 * 6, bytes_up=4 * 4 * 10, questions=1)
    assert track.costs == {"survey": sent + asked}

    panel.expansion(three[2], "learn")
    # Up: weight, loss, two slopes, three curvatures.
    more = Cost(bytes_down=4 * 2, bytes_up=4 * 4 * 7, questions=1)
    assert track.costs == {"survey": sent + asked + more}


def test_other_models_pass_the_samples_of_every_question() -> None:
    """One pass for each mixture; for an expansion one, and two more for each model."""
    here = world("mlp")
    (track,) = new_tracks(here, methods_of(here))
    plan = SurveyPlan(devices=4, samples=5)
    panel = SimulatedPanel(here, here.sessions[1], models(here), plan, track)
    passes = [track.costs["survey"].passes]
    panel.losses(MIXTURES, "judge")
    passes.append(track.costs["survey"].passes)
    panel.expansion(MIXTURES[1], "learn")
    passes.append(track.costs["survey"].passes)
    assert passes == [0, 2 * 4 * 5, (2 + 1 + 2 * 3) * 4 * 5]


def test_without_a_payer_nothing_is_charged() -> None:
    here = world()
    (track,) = new_tracks(here, methods_of(here))
    panel_of(here, here.sessions[1]).losses(MIXTURES, "learn")
    assert (track.costs, track.asked) == ({}, ())
