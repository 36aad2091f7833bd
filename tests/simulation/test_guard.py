"""Updates that would spoil a round: refused, named and counted, and the rest as if without them."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch

from ebbflow import experiment
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.types import Dataset, Examples
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import lanes_of, set_up_state, train_round
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World, draw_round
from tests.configs import digits, with_keys

SMALL: dict[str, Any] = {
    "methods": ["previous"],
    "seeds": [1],
    "sessions": 2,
    "rounds": 3,
    "partition.devices": 6,
    "data.limit_train": 300,
}
ALGORITHMS = ("fedavg", "scaffold", "fedprox", "fedadam", "moon")
BAD = 2
"""The device that misbehaves, of sessions with odd numbers."""


def world_of(bad: float | None, **settings: Any) -> World:
    """Return a world in which one device's inputs are multiplied by something."""
    config = with_keys(SMALL, settings)
    data = digits()
    usual = build_world(config, experiment.prepared(config, data), 1)
    if bad is None:
        return usual
    train, test = usual.dataset.train, usual.dataset.test
    assert train.pixels is None
    x = train.x.float().clone()
    x[torch.from_numpy(usual.sessions[0].shards[BAD])] *= bad
    spoilt = Dataset("spoilt", Examples(x, train.y), test, usual.dataset.classes)
    return build_world(config, experiment.prepared(config, spoilt), 1)


def after_round(world: World, algorithm: str = "fedavg") -> tuple[Track, Track]:
    """Return a track after a guarded round, and one after the round without the bad device."""
    session = world.sessions[0]
    tracks = []
    with closing(experiment.engine_of(world)) as engine:
        cohort = draw_round(world, session, 1)
        for guarded in (True, False):
            (track,) = new_tracks(world, methods_of(world))
            set_up_state(world, track, session, engine)
            if guarded:
                train_round(world, [track], [0.05], cohort, engine)
            else:
                (lane,) = lanes_of([track], [0.05])
                places = [p for p, device in enumerate(cohort.devices) if device != BAD]
                ((total, clients),) = engine([lane], cohort.only(places))
                theta, track.server = lane.algorithm.server_step(
                    track.model.theta, track.server, total
                )
                track.model = track.model._replace(theta=theta)
                track.clients = world.states.keep({}, clients)
            tracks.append(track)
    return tracks[0], tracks[1]


@pytest.mark.parametrize("kind", ["vectorised", "sequential"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_a_round_is_bit_by_bit_the_one_without_the_refused(
    algorithm: str, kind: str, bad: float
) -> None:
    world = world_of(bad, **{"algorithm": [algorithm], "engine.kind": kind})
    ours, theirs = after_round(world, algorithm)
    assert ours.left_out is not None
    assert (ours.left_out.devices, ours.left_out.reasons) == ((BAD,), ("not finite",))
    assert not ours.left_out.abandoned
    assert torch.equal(ours.model.theta, theirs.model.theta)
    assert torch.isfinite(ours.model.theta).all()
    assert ours.clients.keys() == theirs.clients.keys()
    for device, state in ours.clients.items():
        assert all(torch.equal(state[name], theirs.clients[device][name]) for name in state)
    assert all(torch.equal(ours.server[name], theirs.server[name]) for name in ours.server)


@pytest.mark.parametrize("kind", ["vectorised", "sequential"])
def test_an_update_far_from_the_median_is_refused(kind: str) -> None:
    world = world_of(30.0, **{"guard.norm": 4.0, "engine.kind": kind})
    ours, theirs = after_round(world)
    assert ours.left_out is not None
    assert (ours.left_out.devices, ours.left_out.reasons) == ((BAD,), ("too large",))
    assert torch.equal(ours.model.theta, theirs.model.theta)


def test_honest_devices_are_not_refused_and_nothing_changes() -> None:
    plain = experiment.run(with_keys(SMALL, {}))
    watched = experiment.run(with_keys(SMALL, {"guard.norm": 50.0}))
    assert watched.rounds == plain.rounds
    assert [e for e in watched.events if e["event"] == "left_out"] == []


def spoilt_run(tmp_path: Any = None, **settings: Any) -> Any:
    world = world_of(float("nan"), **settings)
    return experiment.run(world.config, tmp_path, dataset=world.dataset)


def test_the_events_name_who_was_refused_and_costs_count_what_was_sent_in_vain() -> None:
    records = spoilt_run()
    refused = [e for e in records.events if e["event"] == "left_out"]
    assert [(e["session"], e["round"], e["devices"]) for e in refused] == [
        (1, t, [BAD]) for t in (1, 2, 3)
    ]
    costs = next(e for e in records.events if e["event"] == "costs" and e["session"] == 1)
    assert costs["stages"]["pilot"]["uploads"] == 3 * 6


def test_a_run_with_a_bad_device_is_resumed_as_if_it_had_not_stopped(tmp_path: Any) -> None:
    from tests.callbacks import StopAfter, Stopped  # noqa: PLC0415

    world = world_of(float("nan"), **{"checkpoint.seconds": 1e-9})
    whole = experiment.run(world.config, tmp_path / "whole", dataset=world.dataset)
    with pytest.raises(Stopped):
        experiment.run(
            world.config, tmp_path / "run", dataset=world.dataset, callbacks=[StopAfter(2)]
        )
    again = experiment.resume(tmp_path / "run", dataset=world.dataset)
    assert again.rounds == whole.rounds
    names = ("session", "round", "devices")
    told = [[e[n] for n in names] for e in again.events if e["event"] == "left_out"]
    assert told == [[e[n] for n in names] for e in whole.events if e["event"] == "left_out"]


@pytest.mark.parametrize("kind", ["vectorised", "sequential"])
def test_it_may_be_told_to_stop_instead(kind: str) -> None:
    with pytest.raises(TrainingError, match=f"device {BAD}"):
        spoilt_run(**{"guard.not_finite": "stop", "engine.kind": kind})


# --- quorum --------------------------------------------------------------------------------------


def test_below_the_quorum_the_model_stays_and_the_round_is_recorded_as_abandoned() -> None:
    world = world_of(float("nan"), **{"guard.quorum": 0.9, "guard.limit": 5})
    session = world.sessions[0]
    with closing(experiment.engine_of(world)) as engine:
        (track,) = new_tracks(world, methods_of(world))
        set_up_state(world, track, session, engine)
        before = replace(track)
        (cost,) = train_round(world, [track], [0.05], draw_round(world, session, 1), engine)
    assert track.left_out is not None and track.left_out.abandoned
    assert track.abandoned == 1
    assert torch.equal(track.model.theta, before.model.theta)
    assert track.server.keys() == before.server.keys()
    assert cost.uploads == 6


def test_after_so_many_abandoned_rounds_the_run_stops_with_a_sentence() -> None:
    for limit, rounds in ((0, 1), (1, 2)):
        with pytest.raises(EbbflowError, match=rf"session 1, round {rounds}\b"):
            spoilt_run(**{"guard.quorum": 0.9, "guard.limit": limit})
    finished = spoilt_run(**{"guard.quorum": 0.9, "guard.limit": 3})
    told = [e["abandoned"] for e in finished.events if e["event"] == "left_out"]
    assert told == [True, True, True]
    accuracies = {r.accuracy for r in finished.rounds if r.session == 1}
    assert len(accuracies) == 1  # the model stayed


@pytest.mark.parametrize("method", ["learned", "warm_start", "previous", "average", "continuous"])
@pytest.mark.parametrize("devices", [3, 4, 6])
def test_every_start_goes_on_with_a_device_whose_samples_are_no_numbers(
    method: str, devices: int
) -> None:
    """It is asked about mixtures, probes and trains: none of that may stop the others."""
    settings = {"partition.devices": devices, "methods": [method], "sessions": 5}
    records = spoilt_run(**settings)
    assert records.rounds[-1].session == 5
    assert all(math.isfinite(each.loss) for each in records.rounds)
    starts = [e for e in records.events if e["event"] == "start"]
    assert all(math.isfinite(e["loss"]) for e in starts)
    if method == "learned" and devices > 3:  # three are one group: nobody answers with numbers
        left_out = [e for e in records.events if e["event"] == "warning" and e["session"] > 1]
        assert left_out, "nobody was told that a group was left out"
