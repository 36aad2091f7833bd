"""What goes wrong on devices: who is struck, what arrives, and what a round is without them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.chaos.faulty import (
    BAD,
    ENGINES,
    FAULTS,
    RATES,
    SETTING,
    arrived,
    dropped,
    same_round,
    trained,
    trials,
    world_of,
)
from ebbflow import experiment
from ebbflow.core.algorithm import Upload
from ebbflow.core.counters import Cost
from ebbflow.core.local import Engine
from ebbflow.simulation.faults import lost_updates, spoilt_updates
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import set_up_state, train_round
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World, draw_round
from tests.configs import with_keys


def fresh(world: World, engine: Engine) -> Track:
    (track,) = new_tracks(world, methods_of(world))
    set_up_state(world, track, world.sessions[0], engine)
    return track


def total_of(world: World) -> Upload:
    outcome = arrived(world)
    assert outcome.trained is not None
    return outcome.trained[0]


# --- the round without them ----------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "algorithm", "kind"), trials())
def test_a_round_is_bit_by_bit_the_one_without_those_left_out(
    fault: str, algorithm: str, kind: str
) -> None:
    assert same_round(fault, algorithm, kind)


# --- what arrives from the others ----------------------------------------------------------------


def singles(world: World) -> list[Upload]:
    return [trained(world, [place])[0] for place in range(6)]


@pytest.mark.parametrize(
    ("fault", "weight"), [("scaled", 7.0), ("flipped", -7.0)], ids=["scaled", "flipped"]
)
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_a_multiple_of_the_update_arrives(fault: str, weight: float, algorithm: str) -> None:
    usual: dict[str, Any] = {"algorithm": [algorithm]}
    keys = {f"faults.{fault}.devices": [*BAD], f"faults.{fault}.factor": 7.0}
    ours, each = total_of(world_of(**usual, **keys)), singles(world_of(**usual))
    factors = [weight if place in BAD else 1.0 for place in range(6)]
    expected = sum(f * one.delta for f, one in zip(factors, each, strict=True))
    torch.testing.assert_close(ours.delta, expected)
    assert float(ours.samples) == sum(float(one.samples) for one in each)
    for name in ours.extras:
        summed = sum(f * one.extras[name] for f, one in zip(factors, each, strict=True))
        torch.testing.assert_close(ours.extras[name], summed)


def test_manipulated_updates_turn_the_mean_of_the_others_around() -> None:
    keys = {"faults.manipulated.devices": [*BAD], "faults.manipulated.factor": 3.0}
    ours, each = total_of(world_of(**keys)), singles(world_of())
    honest = [one for place, one in enumerate(each) if place not in BAD]
    mean = sum(one.delta for one in honest) / sum(one.samples for one in honest)
    bad = sum(float(each[place].samples) for place in BAD)
    good = sum(float(one.samples) for one in honest)
    torch.testing.assert_close(ours.delta, (good - 3.0 * bad) * mean)


@pytest.mark.parametrize("fault", ["noise", "wrong"])
def test_random_vectors_are_as_long_as_they_should_be(fault: str) -> None:
    keys = {f"faults.{fault}.devices": [2], f"faults.{fault}.factor": 5.0}
    world, each = world_of(**keys), singles(world_of())
    rest = sum(one.delta for place, one in enumerate(each) if place != 2)
    arrived = total_of(world).delta - rest
    kept = each[2].delta if fault == "noise" else torch.zeros_like(arrived)
    assert float((arrived - kept).norm()) == pytest.approx(
        5 * float(each[2].delta.norm()), rel=1e-4
    )
    assert torch.equal(total_of(world).delta, total_of(world_of(**keys)).delta)  # drawn by name


@pytest.mark.parametrize("kind", ENGINES)
def test_wrong_labels_are_those_of_a_data_set_with_labels_in_reverse(kind: str) -> None:
    usual = {"engine.kind": kind}
    ours = total_of(world_of(**usual, **{"faults.labels.devices": [2]}))
    world = world_of(**usual)
    rest = trained(world, [place for place in range(6) if place != 2])[0]
    world.dataset.train.y[:] = world.dataset.classes - 1 - world.dataset.train.y
    turned = trained(world, [2])[0]
    torch.testing.assert_close(ours.delta, rest.delta + turned.delta)


# --- who is struck, and when ---------------------------------------------------------------------


def struck(world: World, rounds: int = 200) -> np.ndarray[Any, Any]:
    """Return which devices of session 1 are struck in which rounds, ``[rounds, devices]``."""
    session = world.sessions[0]
    hit = np.zeros((rounds, len(session.devices)), dtype=bool)
    for t in range(1, rounds + 1):
        cohort = draw_round(world, session, t)
        for place in {**lost_updates(world, cohort), **spoilt_updates(world, cohort)}:
            hit[t - 1, place] = True
    return hit


@pytest.mark.parametrize("fault", ["dropout", "nan", "flipped"])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_rate_is_the_share_of_rounds(fault: str, rate: float) -> None:
    hit = struck(world_of(**{f"faults.{fault}.rate": rate}))
    assert hit.mean() == pytest.approx(rate, abs=4 * np.sqrt(rate * (1 - rate) / hit.size) + 1e-12)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_devices_is_struck_and_always_the_same(share: float) -> None:
    hit = struck(world_of(**{"faults.nan.devices": share}), 5)
    assert hit.sum(1).tolist() == [share * 6] * 5
    assert (hit == hit[0]).all()


def test_stragglers_are_late_as_often_as_their_slowdown_says() -> None:
    # They are late if an exponential of mean 2 exceeds 4 - 1.
    keys = {"faults.straggler.slowdown": 2.0, "faults.straggler.deadline": 4.0}
    hit = struck(world_of(**keys), 300)
    assert hit.mean() == pytest.approx(np.exp(-3 / 2), abs=0.05)


def test_a_device_that_vanishes_is_gone_for_so_many_rounds() -> None:
    hit = struck(world_of(**{"faults.vanishing.rate": 0.05, "faults.vanishing.rounds": 4}))
    once = struck(world_of(**{"faults.vanishing.rate": 0.05, "faults.vanishing.rounds": 1}))
    expected = np.stack([once[max(0, t - 3) : t + 1].any(0) for t in range(len(once))])
    assert (hit == expected).all() and once.any()


def test_faults_do_not_depend_on_each_other() -> None:
    alone = struck(world_of(**{"faults.nan.rate": 0.3}), 50)
    both = world_of(**{"faults.nan.rate": 0.3, "faults.scaled.rate": 0.5})
    for t in range(1, 51):
        found = spoilt_updates(both, draw_round(both, both.sessions[0], t))
        assert {p for p, kinds in found.items() if "nan" in kinds} == set(
            np.flatnonzero(alone[t - 1])
        )


# --- costs ---------------------------------------------------------------------------------------


def cost_of(**settings: Any) -> Cost:
    world = world_of(**settings)
    with closing(experiment.engine_of(world)) as engine:
        cohort = draw_round(world, world.sessions[0], 1)
        (cost,) = train_round(world, [fresh(world, engine)], [0.05], cohort, engine)
    return cost


def test_costs_count_what_was_done_and_sent_in_vain() -> None:
    usual = cost_of()
    for fault in ("not a number", "scaled, norm refused", "late", "dropped out after training"):
        assert cost_of(**FAULTS[fault]) == usual
    before, during = (
        cost_of(**FAULTS["dropped out before training"]),
        cost_of(**FAULTS["dropped out during training"]),
    )
    assert before.uploads == during.uploads == usual.uploads - 2
    assert before.bytes_up * 6 == usual.bytes_up * 4
    assert before.steps == 4 * usual.steps // 6 <= during.steps < usual.steps
    assert cost_of(**FAULTS["vanished"]) == before


# --- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
def test_a_hundred_rounds_at_any_dropout_come_to_an_end_and_weights_add_up_to_one(
    rate: float,
) -> None:
    found = dropped(rate, 100)
    assert found.off <= 1e-12
    assert found.rounds == 200
    assert (found.abandoned == 100) == (rate == 1)


def test_a_run_with_faults_is_resumed_as_if_it_had_not_stopped(tmp_path: Any) -> None:
    from tests.callbacks import StopAfter, Stopped  # noqa: PLC0415

    config = with_keys(
        SETTING,
        {
            "checkpoint.seconds": 1e-9,
            "methods": ["warm_start", "previous"],
            "sessions": 4,
            "faults.dropout.rate": 0.3,
            "faults.vanishing.rate": 0.1,
            "faults.flipped.devices": 0.2,
            "faults.labels.rate": 0.2,
            "guard.limit": 9,
        },
    )
    whole = experiment.run(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "run", callbacks=[StopAfter(7)])
    again = experiment.resume(tmp_path / "run")
    assert again.rounds == whole.rounds
    assert again.rounds == experiment.run(config).rounds
