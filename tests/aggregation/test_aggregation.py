"""Aggregations against closed forms, under attack, and on every engine."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from ebbflow import experiment
from ebbflow.aggregation import AGGREGATIONS
from ebbflow.core.aggregation import Aggregation, Updates, aggregate
from ebbflow.core.algorithm import Broadcast, Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.simulation.building import build_world
from ebbflow.simulation.collecting import collect
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import lanes_of, set_up_state
from ebbflow.simulation.server_data import server_cohort
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World, draw_round
from tests.configs import with_keys

ROBUST = ("median", "trimmed_mean", "multi_krum", "clipped_mean", "trust")
SHARED = Broadcast(torch.zeros(3), torch.zeros(2), {})


def rule(name: str, **parameters: Any) -> Aggregation:
    return AGGREGATIONS[name].build(parameters)


def sent(moved: Tensor, samples: Tensor) -> list[Upload]:
    """Return the uploads of devices that moved so far."""
    return [
        Upload(n * row, n * row[:2] ** 2, n, torch.tensor(1.0), {"c": n * 2 * row})
        for row, n in zip(moved, samples, strict=True)
    ]


def combined(name: str, moved: Tensor, samples: Tensor | None = None, **parameters: Any) -> Tensor:
    """Return the mean update that a rule makes."""
    samples = torch.ones(len(moved)).to(moved) if samples is None else samples
    server = None
    if name == "trust":
        mean = moved.mean(0)
        server = Upload(mean, mean[:2], torch.tensor(1.0), torch.tensor(1.0), {"c": mean})
    total = aggregate(rule(name, **parameters), sent(moved, samples), SHARED, server)
    return total.delta / total.samples


def drawn(devices: int, seed: int = 0) -> Tensor:
    return torch.randn(devices, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
def test_closed_forms(devices: int) -> None:
    moved = drawn(devices)
    samples = torch.arange(1.0, devices + 1)
    values = moved.numpy()
    weighted = np.average(values, 0, samples.numpy())
    torch.testing.assert_close(combined("mean", moved, samples), torch.tensor(weighted))
    torch.testing.assert_close(
        combined("median", moved, samples), torch.tensor(np.median(values, 0))
    )
    # scipy rounds the number that is cut down; ours is rounded up, as far as one is left.
    cut = min(math.ceil(0.2 * devices), (devices - 1) // 2)
    trimmed = stats.trim_mean(values, (cut + 1e-9) / devices, 0)
    torch.testing.assert_close(combined("trimmed_mean", moved, trim=0.2), torch.tensor(trimmed))


def test_multi_krum_leaves_out_those_far_from_all_others() -> None:
    moved = torch.cat([drawn(7) * 0.1, 50 + drawn(3, 1)])
    samples = torch.arange(1.0, 11)
    honest = (samples[:7, None] * moved[:7]).sum(0) / samples[:7].sum()
    torch.testing.assert_close(combined("multi_krum", moved, samples, malicious=0.3), honest)


def krum_by_hand(moved: Tensor, malicious: int) -> set[int]:
    count = len(moved)
    scores = []
    for i in range(count):
        apart = sorted(float(((moved[i] - moved[j]) ** 2).sum()) for j in range(count) if j != i)
        scores.append(sum(apart[: max(1, count - malicious - 2)]))
    return set(np.argsort(scores, kind="stable")[: max(1, count - malicious)].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_multi_krum_chooses_as_by_hand(seed: int) -> None:
    moved = drawn(9, seed).double()
    weights = rule("multi_krum", malicious=0.3).weights
    assert weights is not None
    chosen = weights(Updates(moved, torch.ones(9).double()))
    assert set(torch.nonzero(chosen).flatten().tolist()) == krum_by_hand(moved, 3)


def test_clipped_updates_are_no_longer_than_the_median() -> None:
    moved = torch.eye(3) * torch.tensor([1.0, 2.0, 100.0])
    expected = torch.tensor([1.0, 2.0, 2.0]) / 3
    torch.testing.assert_close(combined("clipped_mean", moved), expected)
    torch.testing.assert_close(combined("clipped_mean", moved, times=1000.0), moved.mean(0))


def test_trust_weighs_by_the_angle_and_scales_to_the_servers_length() -> None:
    own = torch.tensor([2.0, 0.0, 0.0])
    server = Upload(own * 5, own[:2], torch.tensor(5.0), torch.tensor(1.0), {"c": own})
    half = torch.tensor([1.0, math.sqrt(3.0), 0.0])  # at 60 degrees: it counts half
    moved = torch.stack([10 * own, 0.1 * half, -own])
    total = aggregate(rule("trust"), sent(moved, torch.ones(3)), SHARED, server)
    expected = (1.0 * own + 0.5 * half) / 1.5
    torch.testing.assert_close(total.delta / total.samples, expected)


def test_if_nobody_is_trusted_the_model_and_its_buffers_stay() -> None:
    own = torch.tensor([1.0, 0.0, 0.0])
    server = Upload(own, own[:2], torch.tensor(1.0), torch.tensor(1.0), {"c": own})
    shared = SHARED._replace(buffers=torch.tensor([3.0, 4.0]))
    total = aggregate(rule("trust"), sent(-own[None], torch.ones(1)), shared, server)
    assert total.delta.tolist() == [0, 0, 0]
    assert (total.buffers / total.samples).tolist() == [3, 4]


@pytest.mark.parametrize("name", ["mean", *ROBUST])
def test_what_is_not_finite_is_left_out(name: str) -> None:
    moved = drawn(6)
    broken = torch.cat([moved, torch.tensor([[torch.nan] * 3, [torch.inf, 0, 0]])])
    samples = torch.ones(8)
    server = sent(moved[:1], torch.ones(1))[0]
    ours = aggregate(rule(name), sent(broken, samples), SHARED, server)
    theirs = aggregate(rule(name), sent(moved, samples[:6]), SHARED, server)
    assert torch.equal(ours.delta, theirs.delta)
    assert float(ours.devices) == 6


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**31), st.sampled_from(["mean", *ROBUST]))
def test_invariants(devices: int, seed: int, name: str) -> None:
    moved = drawn(devices, seed).double()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(devices))
    result = combined(name, moved)
    # Neither the order of devices nor the unit of length matters.
    torch.testing.assert_close(combined(name, moved[order]), result)
    torch.testing.assert_close(combined(name, 7 * moved), 7 * result)
    # Nothing longer than the longest comes out, and equal updates stay what they are.
    assert float(result.norm()) <= float(moved.norm(dim=1).max()) * math.sqrt(3) + 1e-9
    torch.testing.assert_close(combined(name, moved[:1].expand(devices, -1)), moved[0])


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 15), st.integers(0, 2**31), st.floats(1, 1e6))
def test_a_third_cannot_move_the_median_and_its_like_out_of_the_others_range(
    honest: int, seed: int, size: float
) -> None:
    good = drawn(honest, seed).double()
    bad = size * drawn(honest // 3, seed + 1).double().sign()
    low, high = good.min(0).values, good.max(0).values
    for name in ("median", "trimmed_mean"):
        result = combined(name, torch.cat([good, bad]))
        assert bool(((low <= result) & (result <= high)).all()), name


def test_large_models_are_combined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = torch.randn(4, 3)
    whole = combined("median", moved)
    monkeypatch.setattr("ebbflow.core.aggregation.COLUMNS", 4)
    assert torch.equal(combined("median", moved), whole)


# --- in a run ------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "methods": ["warm_start"],
    "seeds": [1],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 6,
    "data.limit_train": 300,
}


def world_of(**keys: Any) -> World:
    config = with_keys(SMALL, keys)
    return build_world(config, experiment.prepared(config, None), 1)


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_engines_agree_and_a_run_goes_through(name: str, algorithm: str) -> None:
    losses = []
    for kind in ("vectorised", "sequential"):
        keys = {"aggregation.rule": name, "engine.kind": kind, "algorithm": [algorithm]}
        losses.append([r.loss for r in experiment.run(with_keys(SMALL, keys)).rounds])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_the_server_trains_on_samples_of_the_session_that_stay_the_same() -> None:
    world = world_of(**{"aggregation.rule": "trust", "aggregation.server_samples": 17})
    session = world.sessions[1]
    first, second = (server_cohort(world, draw_round(world, session, t)) for t in (1, 2))
    assert len(first.shards[0]) == 17
    assert first.shards[0].tolist() == second.shards[0].tolist()
    assert set(world.dataset.train.y[first.shards[0]].tolist()) <= set(session.labels)
    assert not all(
        np.array_equal(a, b) for a, b in zip(first.batches[0], second.batches[0], strict=True)
    )


def test_refused_updates_never_reach_the_rule() -> None:
    keys = {"aggregation.rule": "median"}
    world, bad = world_of(**keys), world_of(**keys, **{"faults.nan.devices": [2]})
    with closing(experiment.engine_of(world)) as engine:
        (track,) = new_tracks(world, methods_of(world))
        set_up_state(world, track, world.sessions[0], engine)
        (lane,) = lanes_of([track], [0.05])
        cohort = draw_round(world, world.sessions[0], 1)
        (ours,) = collect(bad, engine, [lane], cohort).outcomes
        (theirs,) = collect(world, engine, [lane], cohort.only([0, 1, 3, 4, 5])).outcomes
    assert ours.trained is not None and theirs.trained is not None
    assert torch.equal(ours.trained[0].delta, theirs.trained[0].delta)


def test_unknown_rules_and_parameters_are_refused() -> None:
    with pytest.raises(EbbflowError, match=r"aggregation\.rule"):
        experiment.run(with_keys(SMALL, {"aggregation.rule": "medain"}))
    with pytest.raises(EbbflowError, match=r"parameters\.trimmed_mean\.trim"):
        keys = {"parameters": {"trimmed_mean": {"trim": 0.6}}}
        experiment.run(with_keys(SMALL, keys))
