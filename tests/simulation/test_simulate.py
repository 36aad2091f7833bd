"""The session loop: what starts where, who trains, what is shared and what never leaks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import (
    Algorithm,
    Broadcast,
    LocalRun,
    Population,
    Upload,
    mean_state,
    weighted_upload,
)
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.local import Cohort, Lane, Trained
from ebbflow.core.rates import polynomial_rates
from ebbflow.core.registry import RegisteredAlgorithm
from ebbflow.core.rng import generator
from ebbflow.core.start import StartingPoint
from ebbflow.core.types import ModelState, Session, State
from ebbflow.core.vector import mix
from ebbflow.data.batches import local_batches
from ebbflow.data.schedule import participants
from ebbflow.engines import Sequential
from ebbflow.experiment import run
from ebbflow.runs.records import Round, RunRecords
from ebbflow.sessions.memory import pilot_weights
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import (
    Callback,
    RoundFinished,
    SessionFinished,
    SessionStarted,
)
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import run_probe
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import draw_cohort, draw_participants
from tests.callbacks import Finals
from tests.configs import digits, with_settings

METHODS = ("warm_start", "previous", "average")
SMALL = (
    "seeds=100",
    "rounds=2",
    "partition.devices=4",
    "sessions=4",
    f"methods={json.dumps(METHODS)}",
)


def config_of(*settings: str) -> Config:
    return with_settings(*SMALL, *settings)


def recorded(*settings: str) -> RunRecords:
    return run(config_of("engine.workers=1", *settings), dataset=digits())


class Play(Sequential, Callback):
    """One simulation with the reference engine, and all that could be seen of it."""

    def __init__(self, *settings: str, algorithm: Algorithm | None = None) -> None:
        config = config_of(*settings)
        self.world = build_world(config, digits(), config.seeds[0])
        self.initial = self.world.initial.theta.clone()
        super().__init__(self.world.model, self.world.dataset.train, self.world.recipe)
        methods = methods_of(self.world)
        if algorithm is not None:
            methods = [replace(method, algorithm=algorithm) for method in methods]
        self.tracks = new_tracks(self.world, methods)
        self.rounds: list[Round] = []
        self.events: list[dict[str, Any]] = []
        self.longest = 0.0
        self.probing = True
        self.trained: list[tuple[Cohort, Sequence[Lane]]] = []
        self.probed: list[tuple[Cohort, Sequence[Lane]]] = []
        self.starts: dict[tuple[str, int], StartingPoint] = {}
        self.finals: dict[tuple[str, int], Tensor] = {}
        self.copies: dict[tuple[str, int], Tensor] = {}
        simulate(self.world, self.tracks, self, [self])

    @property
    def engine(self) -> Sequential:
        """The same engine, which takes no notes."""
        return Sequential(self.world.model, self.world.dataset.train, self.world.recipe)

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        (self.probed if self.probing else self.trained).append((cohort, lanes))
        return super().__call__(lanes, cohort)

    def session_started(self, event: SessionStarted) -> None:
        self.probing = False
        self.events += event.recorded

    def round_finished(self, event: RoundFinished) -> None:
        self.rounds += event.results
        longest = (float(track.model.theta.norm()) for track in event.tracks)
        self.longest = max(self.longest, *longest)

    def session_finished(self, event: SessionFinished) -> None:
        self.probing = True
        for track in event.tracks:
            where = (track.method.name, event.session.index)
            assert track.start is not None
            self.starts[where] = track.start
            self.finals[where] = track.model.theta
            self.copies[where] = track.model.theta.clone()

    def late_starts(self) -> list[StartingPoint]:
        return [start for (_, session), start in self.starts.items() if session > 1]

    def track(self, method: str) -> Track:
        return next(track for track in self.tracks if track.method.name == method)


@cache
def play(*settings: str) -> Play:
    """Return a simulation that several tests look at."""
    return Play(*settings)


def start_events(played: Play, method: str) -> Iterator[dict[str, Any]]:
    return (e for e in played.events if e["event"] == "start" and e["method"] == method)


# --- where sessions start ------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_pilot_sessions_start_from_the_carried_model_and_are_not_probed(method: str) -> None:
    played = play("pilot.sessions=2")
    assert torch.equal(played.starts[method, 1].model.theta, played.world.initial.theta)
    assert torch.equal(played.starts[method, 2].model.theta, played.finals[method, 1])
    for s in (1, 2):
        assert played.starts[method, s].signature is None
        assert not played.starts[method, s].weights
    assert {cohort.session for cohort, _ in played.probed} == {3, 4}


@pytest.mark.parametrize("pilots", [1, 2])
def test_the_first_session_after_the_pilot_is_probed_but_carries_on(pilots: int) -> None:
    played = play(f"pilot.sessions={pilots}")
    start = played.starts["warm_start", pilots + 1]
    assert start.signature is not None
    assert not start.weights
    for method in METHODS:
        first = played.starts[method, pilots + 1].model.theta
        assert torch.equal(first, played.finals[method, pilots])


@pytest.mark.parametrize("method", METHODS)
def test_with_one_candidate_every_method_carries_on_to_the_bit(method: str) -> None:
    alone = play(f"methods={method}")
    previous = play("methods=previous")
    assert torch.equal(alone.starts[method, 3].model.theta, previous.finals["previous", 2])
    assert torch.equal(alone.finals[method, 3], previous.finals["previous", 3])
    assert alone.starts[method, 3].weights == ({} if method == "previous" else {2: 1.0})


def test_methods_part_at_the_first_choice() -> None:
    played = play()
    finals = [played.finals[method, 4] for method in METHODS]
    assert not torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[1], finals[2])
    assert not torch.equal(finals[0], finals[2])


def test_without_sensitivity_the_warm_start_is_the_average_to_the_bit() -> None:
    played = play("sessions=5", "parameters.warm_start.scale=0")
    for s in (4, 5):
        warm, average = played.starts["warm_start", s], played.starts["average", s]
        assert torch.equal(warm.model.theta, average.model.theta)
        assert warm.weights == average.weights
    assert torch.equal(played.finals["warm_start", 5], played.finals["average", 5])


def test_with_infinite_sensitivity_the_nearest_model_is_the_start() -> None:
    played = play("sessions=5", "parameters.warm_start.scale=inf", "methods=warm_start")
    for s in (4, 5):
        start = played.starts["warm_start", s]
        nearest = min(start.distances, key=lambda z: start.distances[z])
        assert start.weights == {z: float(z == nearest) for z in range(2, s)}
        assert torch.equal(start.model.theta, played.finals["warm_start", nearest])
        assert nearest % 2 == s % 2  # the last session of the same group


@pytest.mark.parametrize("method", METHODS)
def test_without_carry_over_the_session_after_the_pilot_starts_afresh(method: str) -> None:
    played = play("pilot.carry_over=false", "pilot.sessions=2", "sessions=5")
    assert torch.equal(played.starts[method, 3].model.theta, played.initial)
    assert torch.equal(played.starts[method, 2].model.theta, played.finals[method, 1])
    assert torch.equal(played.starts[method, 4].model.theta, played.finals[method, 3])


# --- the pilot -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sessions", range(1, 7))
@pytest.mark.parametrize("decay", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_pilot_weights_are_those_of_the_recursion_and_add_up_to_one(
    sessions: int, decay: float
) -> None:
    for combine in ("average", "ema"):
        assert math.fsum(pilot_weights(sessions, combine, decay)) == pytest.approx(1, abs=1e-12)
    models = [math.sin(3 * s) for s in range(sessions)]
    value = models[0]
    for new in models[1:]:
        value = decay * value + (1 - decay) * new
    weights = pilot_weights(sessions, "ema", decay)
    assert sum(w * m for w, m in zip(weights, models, strict=True)) == pytest.approx(value)


@pytest.mark.parametrize("combine", ["average", "ema"])
def test_the_pilot_is_made_of_the_pilot_sessions_models(combine: str) -> None:
    played = play("pilot.sessions=3", f"pilot.combine={combine}", "pilot.decay=0.3")
    track = played.track("warm_start")
    first, second, third = (played.finals["warm_start", s].double() for s in (1, 2, 3))
    expected = (first + second + third) / 3
    if combine == "ema":
        expected = 0.3 * (0.3 * first + 0.7 * second) + 0.7 * third
    assert track.pilot is not None
    torch.testing.assert_close(track.pilot.theta.double(), expected, rtol=0, atol=1e-7)
    assert track.pilots == []
    assert [entry.number for entry in track.past] == [4]


def test_pilot_sessions_may_have_a_length_and_rates_of_their_own() -> None:
    played = play("pilot.rounds=3", "lr.initial=0.02", "lr.floor=0.1", "methods=previous")
    rates = {s: [r.lr for r in played.rounds if r.session == s] for s in (1, 2, 3, 4)}
    assert rates[1] == list(polynomial_rates(0.02, 0.1, 0.9, 3))
    assert rates[2] == rates[3] == rates[4] == list(polynomial_rates(0.02, 0.1, 0.9, 2))


# --- the probe -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_every_probe_round_goes_on_from_the_one_before(rounds: int) -> None:
    played = play(f"probe.rounds={rounds}", "methods=warm_start")
    track = played.track("warm_start")
    assert track.pilot is not None
    for s in (2, 3, 4):
        calls = [call for call in played.probed if call[0].session == s]
        assert [cohort.round for cohort, _ in calls] == list(range(1, rounds + 1))
        here = track.pilot.theta
        for cohort, (lane,) in calls:
            assert torch.equal(lane.shared.theta, here)
            ((total, _),) = played.engine([lane], cohort)
            here, _ = lane.algorithm.server_step(here, {}, total)
        signature = played.starts["warm_start", s].signature
        assert signature is not None
        assert torch.equal(signature, here - track.pilot.theta)


def test_two_probe_rounds_are_one_and_then_another_from_its_result() -> None:
    once, twice = play("methods=warm_start"), play("probe.rounds=2", "methods=warm_start")
    method, session = once.tracks[0].method, once.world.sessions[2]
    pilot = once.tracks[0].pilot
    assert pilot is not None
    first = run_probe(once.world, method, session, once.engine, pilot)
    second_round = next(c for c, _ in twice.probed if (c.session, c.round) == (3, 2))
    lane = Lane(method.algorithm, Broadcast(first.theta, first.buffers, {}), 0.005, {})
    ((total, _),) = once.engine([lane], second_round)
    then, _ = method.algorithm.server_step(first.theta, {}, total)
    both = run_probe(twice.world, method, session, twice.engine, pilot)
    assert torch.equal(both.theta, then)


def test_probe_batches_are_drawn_by_session_round_and_device() -> None:
    played = play("probe.rounds=2", "methods=warm_start")
    for cohort, _ in played.probed:
        shards = played.world.sessions[cohort.session - 1].shards
        for device, batches in zip(cohort.devices, cohort.batches, strict=True):
            draw = generator(100, "probe", cohort.session, cohort.round, device)
            expected = local_batches(draw, shards[device], 5, 16, "one_pass")
            assert [b.tolist() for b in batches] == [b.tolist() for b in expected]


@pytest.mark.parametrize(("choice", "lr"), [("half", 0.005), ("same", 0.01), ("0.3", 0.3)])
def test_the_probe_has_a_rate_of_its_own(choice: str, lr: float) -> None:
    played = play(f"probe.lr={choice}", "methods=warm_start")
    assert {lane.lr for _, lanes in played.probed for lane in lanes} == {lr}


def test_the_probe_may_take_a_share_other_steps_and_other_batches() -> None:
    settings = ("probe.rounds=2", "probe.share=0.5", "probe.steps=2", "probe.batch=7")
    played = play(*settings, "methods=warm_start")
    chosen: dict[int, set[tuple[int, ...]]] = {}
    for cohort, _ in played.probed:
        chosen.setdefault(cohort.session, set()).add(cohort.devices)
        assert [[len(b) for b in batches] for batches in cohort.batches] == [[7, 7], [7, 7]]
    # A_grad is drawn once for all V rounds.
    assert [len(groups) for groups in chosen.values()] == [1, 1, 1]
    assert all(len(cohort.devices) == 4 for cohort, _ in played.trained)


def _counting() -> Algorithm:
    """FedAvg whose server and devices count their rounds, and whose steps depend on the counts."""

    def direction(gradient: Tensor, theta: Tensor, shared: Broadcast, client: State) -> Tensor:
        return gradient * (1 + shared.extras["rounds"] + 10 * client["rounds"])

    def upload(shared: Broadcast, client: State, done: LocalRun) -> tuple[Upload, State]:
        return weighted_upload(shared, client, done)[0], {"rounds": client["rounds"] + 1}

    def server_step(theta: Tensor, server: State, total: Upload) -> tuple[Tensor, State]:
        return theta + total.delta / total.samples, {"rounds": server["rounds"] + 1}

    return Algorithm(
        "counting",
        init_server=lambda theta, population: {"rounds": torch.zeros(())},
        init_client=lambda shared: {"rounds": torch.zeros(())},
        broadcast=lambda theta, server: (theta, server),
        direction=direction,
        upload=upload,
        server_step=server_step,
    )


def test_the_probe_leaves_no_state_behind() -> None:
    played = Play("probe.rounds=3", algorithm=_counting())
    # Session 2 is probed by one method only, and both go on alike.
    assert torch.equal(played.finals["warm_start", 2], played.finals["previous", 2])
    for track in played.tracks:
        assert float(track.server["rounds"]) == 2
        assert {float(state["rounds"]) for state in track.clients.values()} == {2.0}
    for cohort, (lane,) in played.probed:
        assert float(lane.shared.extras["rounds"]) == cohort.round - 1
        assert len(lane.clients) == (0 if cohort.round == 1 else 4)


def test_algorithm_state_is_fresh_in_every_session() -> None:
    played = Play("methods=previous", algorithm=_counting())
    for cohort, (lane,) in played.trained:
        assert float(lane.shared.extras["rounds"]) == cohort.round - 1
        assert len(lane.clients) == (0 if cohort.round == 1 else 4)


# --- who takes part ------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "count"), [("0.5", 2), ("0.1", 1), ("3", 3), ("9", 4), ("1", 1)])
@pytest.mark.parametrize("weighting", ["uniform", "weighted"])
def test_a_share_of_those_present_takes_part(
    share: str, count: int, weighting: Literal["uniform", "weighted"]
) -> None:
    settings = (f"participation.share={share}", f"participation.weighting={weighting}")
    played = play(*settings, "rounds=4")
    given = float(share) if "." in share else int(share)
    assert {r.participants for r in played.rounds} == {count}
    assert {r.devices for r in played.rounds} == {4}
    for cohort, _ in played.trained:
        session = played.world.sessions[cohort.session - 1]
        sizes = [len(session.shards[device]) for device in session.devices]
        draw = generator(100, "participants", cohort.session, cohort.round)
        assert cohort.devices == participants(draw, session.devices, sizes, given, weighting)
        assert cohort.samples == tuple(len(session.shards[device]) for device in cohort.devices)
        assert (cohort.weights == ()) == (weighting == "uniform")
    if count < 4:
        assert len({cohort.devices for cohort, _ in played.trained if cohort.session % 2}) > 1


def test_devices_drawn_by_size_do_not_count_their_size_again() -> None:
    """On average over the draws a round moves the model as if all had taken part."""
    unequal = ("partition.kind=dirichlet_labels", "partition.alpha=0.1")
    world = build_world(
        config_of(*unequal, "participation.weighting=weighted"),
        digits(),
        100,
    )
    session, draws = world.sessions[0], 2000
    sizes = [session.samples(device) for device in session.devices]
    assert max(sizes) > 2 * min(sizes)
    engine = Sequential(world.model, world.dataset.train, world.recipe)
    at = Lane(Algorithm("fedavg"), Broadcast(*world.initial, {}), 0.1, {})

    @cache
    def move(devices: tuple[int, ...]) -> Tensor:
        ((total, _),) = engine([at], draw_cohort(world, session, 1, devices, 5, 16, "local"))
        return (total.delta / total.samples).double()

    everybody = move(session.devices)
    for count in (1, 2, 3):
        moves = torch.stack(
            [
                move(draw_participants(world, session, t, "participants", count))
                for t in range(draws)
            ]
        )
        deviation = float((moves.var(0).sum() / draws).sqrt())
        assert float((moves.mean(0) - everybody).norm()) < 3 * deviation


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_a_mean_over_all_devices_refuses_participants_drawn_by_size(algorithm: str) -> None:
    settings = (f"algorithm={algorithm}", "participation.weighting=weighted")
    with pytest.raises(EbbflowError, match=rf'"weighted" does not fit the algorithm {algorithm}, '):
        recorded(*settings, "participation.share=2")
    distilling = ("methods=continuous", "sessions=2", "participation.share=2")
    recorded(*settings, *distilling)  # on FedAvg, whatever the algorithm
    with pytest.raises(EbbflowError, match=r'set participation.weighting to "uniform", or choose'):
        recorded(*settings, *distilling, "continuous.base=algorithm")


def test_one_participants_model_becomes_the_global_one() -> None:
    played = play("participation.share=1", "methods=previous", "local.steps=1")
    cohort, (lane,) = played.trained[-1]
    ((total, _),) = played.engine([lane], cohort)
    moved = lane.shared.theta + total.delta / len(
        played.world.sessions[3].shards[cohort.devices[0]]
    )
    assert torch.equal(played.finals["previous", 4], moved)


def test_evaluation_covers_the_labels_of_all_present_not_of_the_participants() -> None:
    played = play("participation.share=1", "partition.alpha=0.01")
    for event in start_events(played, "previous"):
        assert event["labels"] == ([0, 1, 2, 3, 4] if event["session"] % 2 else [5, 6, 7, 8, 9])
    tested = digits().test.y
    sizes = {0: int((tested >= 5).sum()), 1: int((tested < 5).sum())}
    hits = [r.accuracy * sizes[r.session % 2] / 100 for r in played.rounds]
    assert hits == pytest.approx([round(hit) for hit in hits])


# --- local steps ---------------------------------------------------------------------------------


def test_one_pass_stops_at_the_end_of_a_shard_and_each_step_does_not() -> None:
    passes = play("local.batch=100", "methods=previous")
    exact = play("local.batch=100", "methods=previous", "local.rule=each_step")
    for cohort, _ in passes.trained:
        for batches, n in zip(cohort.batches, cohort.samples, strict=True):
            assert len(batches) == min(5, math.ceil(n / 100))
            assert sum(len(b) for b in batches) == min(n, 500)
    for cohort, _ in exact.trained:
        for batches, n in zip(cohort.batches, cohort.samples, strict=True):
            assert [len(b) for b in batches] == [min(100, n)] * 5
            assert all(len(set(b.tolist())) == len(b) for b in batches)
    assert not torch.equal(passes.finals["previous", 4], exact.finals["previous", 4])


def test_a_range_of_steps_is_drawn_for_every_device_and_round() -> None:
    played = play("local.steps=[1, 3]", "rounds=4")
    counts = [[len(batches) for batches in cohort.batches] for cohort, _ in played.trained]
    assert {count for row in counts for count in row} == {1, 2, 3}
    assert len({tuple(row) for row in counts}) > 4


# --- methods, algorithms and seeds beside each other ---------------------------------------------


def _prox() -> Algorithm:
    return Algorithm("prox", direction=lambda g, theta, shared, client: g + theta - shared.theta)


@pytest.fixture
def two_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS._records, "prox", RegisteredAlgorithm("prox", _prox))


def by_name(rounds: Sequence[Round]) -> dict[tuple[str, str, int], list[Round]]:
    found: dict[tuple[str, str, int], list[Round]] = {}
    for r in rounds:
        found.setdefault((r.algorithm, r.method, r.seed), []).append(r)
    return found


@pytest.mark.usefixtures("two_algorithms")
def test_neighbours_change_no_bit() -> None:
    together = by_name(recorded("seeds=[100, 200]", 'algorithm=["fedavg", "prox"]').rounds)
    assert len(together) == 12
    for algorithm, method, seed in together:
        alone = recorded(f"seeds={seed}", f"algorithm={algorithm}", f"methods={method}").rounds
        assert together[algorithm, method, seed] == alone


@pytest.mark.usefixtures("two_algorithms")
def test_the_order_of_methods_algorithms_and_seeds_changes_nothing() -> None:
    one = recorded("seeds=[100, 200]", 'algorithm=["fedavg", "prox"]')
    other = recorded(
        "seeds=[200, 100]",
        'algorithm=["prox", "fedavg"]',
        'methods=["average", "warm_start", "previous"]',
    )
    assert by_name(one.rounds) == by_name(other.rounds)
    assert one.rows == other.rows


@pytest.mark.usefixtures("two_algorithms")
def test_algorithms_go_their_own_ways_from_the_same_model() -> None:
    rounds = by_name(recorded('algorithm=["fedavg", "prox"]', "methods=previous").rounds)
    fedavg, prox = rounds["fedavg", "previous", 100], rounds["prox", "previous", 100]
    assert fedavg[0].loss != prox[0].loss


def test_methods_in_the_same_place_are_trained_once() -> None:
    played = play()
    lanes = {(c.session, c.round): len(lanes) for c, lanes in played.trained}
    assert [lanes[s, 1] for s in (1, 2, 3, 4)] == [1, 1, 1, 3]


def test_methods_at_different_rates_are_not_taken_for_one() -> None:
    world = play().world
    method = methods_of(world)[0]
    faster = replace(method, rates=lambda length: tuple(2 * r for r in method.rates(length)))
    tracks = new_tracks(world, [method, faster])
    simulate(world, tracks, play().engine, [])
    assert torch.equal(tracks[0].model.theta, play().finals["warm_start", 4])
    assert not torch.equal(tracks[0].model.theta, tracks[1].model.theta)


def test_a_seed_fixes_everything_and_another_changes_it() -> None:
    first, again, other = Play(), Play(), Play("seeds=101")
    assert first.rounds == again.rounds
    assert torch.equal(first.finals["warm_start", 4], again.finals["warm_start", 4])
    assert not torch.equal(first.world.initial.theta, other.world.initial.theta)
    mine, theirs = first.world.sessions[0].shards[0], other.world.sessions[0].shards[0]
    assert mine.tolist() != theirs.tolist()


def test_the_window_decides_the_rows() -> None:
    records = recorded("window=[1, 2, 50]", "methods=previous")
    curve = [r.accuracy for r in records.rounds if r.session == 4]
    rows = {row["window"]: row["accuracy"] for row in records.rows if row["session"] == 4}
    assert rows == {1: curve[0], 2: sum(curve) / 2, 50: sum(curve) / 2}


@pytest.mark.parametrize("rule", ["one_pass", "each_step"])
@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_both_engines_come_to_the_same_result(rule: str, kind: str) -> None:
    settings = ("sessions=5", f"local.rule={rule}", f"model.kind={kind}", "participation.share=3")
    slow, fast = Finals(), Finals()
    one, other = (
        run(config_of(*settings, f"engine.kind={engine}"), dataset=digits(), callbacks=[finals])
        for engine, finals in (("sequential", slow), ("vectorised", fast))
    )
    one_sample = 100 / int((digits().test.y >= 5).sum()) + 1e-9
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert a._replace(accuracy=0, loss=0) == b._replace(accuracy=0, loss=0)
        assert abs(a.accuracy - b.accuracy) <= one_sample
    for mine, theirs in zip(slow.models, fast.models, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


# --- the history ---------------------------------------------------------------------------------


def test_all_sessions_after_the_pilot_are_kept_by_default() -> None:
    played = play("sessions=6")
    for track in played.tracks:
        assert [entry.number for entry in track.past] == [2, 3, 4, 5, 6]
        signed = [entry.signature is not None for entry in track.past]
        assert signed == [track.method.name == "warm_start"] * 5


def test_the_last_sessions_are_kept_if_asked_for() -> None:
    played = play("sessions=6", "history.keep=last", "history.limit=2")
    assert dict(played.starts["average", 6].weights) == {4: 0.5, 5: 0.5}
    assert set(played.starts["warm_start", 6].weights) == {4, 5}
    assert [entry.number for entry in played.track("previous").past] == [5, 6]


def test_diverse_keeps_one_session_of_each_group() -> None:
    played = play("sessions=6", "history.keep=diverse", "history.limit=2")
    for s in (5, 6):
        assert {z % 2 for z in played.starts["warm_start", s].weights} == {0, 1}


def test_training_on_leaves_the_history_alone() -> None:
    played = play("sessions=6")
    for track in played.tracks:
        for entry in track.past:
            saved = played.copies[track.method.name, entry.number]
            assert torch.equal(entry.model.theta, saved)
    assert torch.equal(played.world.initial.theta, played.initial)


def test_an_algorithm_that_steps_in_place_cannot_reach_the_history() -> None:
    def in_place(theta: Tensor, server: State, total: Upload) -> tuple[Tensor, State]:
        return theta.add_(total.delta / total.samples), server

    played = Play(algorithm=Algorithm("in-place", server_step=in_place))
    for track in played.tracks:
        for entry in track.past:
            saved = played.copies[track.method.name, entry.number]
            assert torch.equal(entry.model.theta, saved)


# --- records and warnings ------------------------------------------------------------------------


def test_start_events_name_the_sessions_drawn_on() -> None:
    played = play("sessions=5", "probe.rounds=2")
    for s, event in enumerate(start_events(played, "warm_start"), start=1):
        assert event["session"] == s
        assert set(event["weights"]) == {str(z) for z in range(2, s)}
        assert set(event["distances"]) == set(event["weights"])
        assert event["probe_rounds"] == (2 if s > 1 else 0)
        assert event["rounds"] == 2
        assert event["devices"] == ([0, 1, 2, 3] if s % 2 else [4, 5, 6, 7])
        if s > 2:
            assert math.fsum(event["weights"].values()) == pytest.approx(1, abs=1e-12)
        json.dumps(event)
    assert all(event["probe_rounds"] == 0 for event in start_events(played, "average"))
    assert all(not event["weights"] for event in start_events(played, "previous"))


def test_the_start_events_accuracy_is_that_of_the_model_before_training() -> None:
    played = play("sessions=5")
    last = [r for r in played.rounds if r.method == "previous" and r.session == 4][-1]
    event = next(e for e in start_events(played, "previous") if e["session"] == 5)
    assert event["accuracy"] != last.accuracy  # the labels are others now
    assert 0 <= event["accuracy"] <= 100
    assert event["loss"] > 0


@pytest.mark.parametrize(("scale", "sessions"), [("1e-6", [4]), ("10", []), ("inf", [])])
def test_nearly_uniform_weights_are_warned_of(scale: str, sessions: list[int]) -> None:
    played = play(f"parameters.warm_start.scale={scale}")
    warnings = [event for event in played.events if event["event"] == "warning"]
    assert [event["session"] for event in warnings] == sessions
    for event in warnings:
        assert event["method"] == "warm_start"
        assert "parameters.warm_start.scale" in event["text"]
        assert "1e-06" in event["text"]


def test_the_average_is_never_warned_of() -> None:
    played = play("parameters.warm_start.scale=1e-6", 'methods=["average", "previous"]')
    assert {event["event"] for event in played.events} == {"start"}


# --- divergence and the ball ---------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("settings", [("lr.initial=1e38",), ("lr.initial=1e30", "model.kind=mlp")])
def test_a_divergent_run_says_where(engine: str, settings: tuple[str, ...]) -> None:
    place = r"^session 1, round 1, device \d, step \d: .*finite.*lr\.initial"
    with pytest.raises(TrainingError, match=place):
        recorded(*settings, f"engine.kind={engine}")


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_a_rate_beyond_float32_is_an_error_of_ours(engine: str) -> None:
    with pytest.raises(TrainingError, match=r"^session 1, round 1"):
        recorded("lr.initial=1e300", f"engine.kind={engine}")


def test_the_radius_keeps_every_model_in_the_ball() -> None:
    inside, wide, free = play("local.radius=1.0"), play("local.radius=1e6"), play()
    assert float(inside.initial.norm()) > 1.5
    assert free.longest > 1.5
    assert 0.9 < inside.longest <= 1 + 1e-6
    assert all(float(start.model.theta.norm()) <= 1 + 1e-6 for start in inside.late_starts())
    torch.testing.assert_close(wide.finals["previous", 4], free.finals["previous", 4])


def test_a_server_that_steps_beyond_the_devices_models_stays_in_the_ball_too() -> None:
    """A mean of models in the ball is in the ball, but what momentum adds to it need not be."""
    settings = ("algorithm=fedavgm", "methods=previous", "rounds=4")
    assert play(*settings).longest > 1.5
    assert 0.9 < play(*settings, "local.radius=1.0").longest <= 1 + 1e-6


def test_a_learned_start_stays_in_the_ball_too() -> None:
    """A mixture with negative weights need not lie there, nor does the initial model."""
    inside = play("local.radius=1.0", "methods=learned")
    assert all(float(start.model.theta.norm()) <= 1 + 1e-6 for start in inside.late_starts())


# --- starts that are learnt ----------------------------------------------------------------------

LEARNED = ('methods=["learned", "previous"]', "sessions=6")


def test_a_learned_start_is_the_mixture_that_is_recorded() -> None:
    played = play(*LEARNED)
    track = played.track("learned")
    assert track.pilot is not None
    here = {"initial": played.world.initial, "pilot": track.pilot}
    for event in start_events(played, "learned"):
        s = event["session"]
        if s == 1:
            continue
        finals = {f"final {p.number}": p.model for p in track.past if p.number < s}
        starts = {f"start {p.number}": p.start for p in track.past if p.number < s}
        carried = played.finals["learned", s - 1]
        known = here | finals | starts | {"carried": ModelState(carried, torch.zeros(0))}
        models = [known[name] for name in event["mixture"]]
        weights = list(event["mixture"].values())
        assert math.fsum(weights) == pytest.approx(1, abs=1e-9)
        mixed = mix([model for model in models if model is not None], weights)
        assert torch.equal(played.starts["learned", s].model.theta, mixed.theta)


def test_pilot_sessions_ask_nobody() -> None:
    played = play(*LEARNED, "pilot.sessions=2")
    first, second, third, *_ = start_events(played, "learned")
    for event in (first, second):
        assert "asked" not in event
        assert "mixture" not in event
    assert third["asked"] == third["devices"]


def test_only_methods_that_ask_say_whom() -> None:
    played = play(*LEARNED, "parameters.learned.devices=3")
    assert all("asked" not in event for event in start_events(played, "previous"))
    for event in list(start_events(played, "learned"))[1:]:
        assert len(event["asked"]) == 3
        assert set(event["asked"]) < set(event["devices"])
        assert event["probe_rounds"] == 0


def test_a_survey_is_charged_to_its_session_and_method() -> None:
    found = [e for e in recorded(*LEARNED).events if e["event"] == "costs"]
    surveys = {(e["method"], e["session"]): e["stages"].get("survey") for e in found}
    assert [s for (m, s), cost in surveys.items() if cost] == [2, 3, 4, 5, 6]
    assert {m for (m, _), cost in surveys.items() if cost} == {"learned"}
    for cost in filter(None, surveys.values()):
        assert {"broadcasts", "bytes_down", "bytes_up", "questions", "passes"} == cost.keys()
    # The pilot, and of every session its final model and the model that it began with.
    last = next(e for e in found if e["method"] == "learned" and e["session"] == 6)
    assert last["stored"]["models"] == 1 + 2 * 5


def test_without_carry_over_the_first_choice_is_between_initial_and_pilot_model() -> None:
    played = play(*LEARNED, "pilot.carry_over=false")
    event = list(start_events(played, "learned"))[1]
    assert event["mixture"].keys() == {"carried", "pilot"}


def test_the_learned_start_runs_with_every_algorithm() -> None:
    names = json.dumps(list(ALGORITHMS))
    found = recorded(f"algorithm={names}", "methods=learned", "sessions=4").rounds
    assert {r.algorithm for r in found} == set(ALGORITHMS)
    assert len(found) == len(ALGORITHMS) * 4 * 2
    assert all(math.isfinite(r.loss) for r in found)


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_the_learned_start_runs_with_models_that_are_not_linear(kind: str) -> None:
    settings = (f"model.kind={kind}", "methods=learned", "sessions=3", "local.steps=1")
    found = recorded(*settings, "parameters.learned.samples=4").rounds
    assert all(math.isfinite(r.loss) for r in found)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_so_few_devices_may_be_asked_that_they_form_one_group(asked: int) -> None:
    found = recorded(*LEARNED, f"parameters.learned.devices={asked}").rounds
    assert all(math.isfinite(r.loss) for r in found)


# --- other schedules -----------------------------------------------------------------------------


def test_a_trace_runs_end_to_end(tmp_path: Path) -> None:
    lines = ["time,device,event", "0,ann,join", "0,bob,join", "0,cat,join"]
    lines += ["1,ann,leave", "1,dan,join", "2,ann,join", "3,eve,join", "3,bob,leave"]
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines))
    settings = (f"schedule.file={json.dumps(str(trace))}", "partition.overlap=0.0")
    config = with_settings("seeds=100", "rounds=2", "sessions=4", "schedule.kind=trace", *settings)
    records = run(config, dataset=digits())
    starts = [e for e in records.events if e["event"] == "start" and e["method"] == "warm_start"]
    assert [e["devices"] for e in starts] == [[0, 1, 2], [1, 2, 3], [0, 1, 2, 3], [0, 2, 3, 4]]
    assert [r.devices for r in records.rounds if r.method == "previous"] == [3, 3, 3, 3, 4, 4, 4, 4]
    assert len(records.rows) == 4 * 4  # sessions, methods


def test_a_device_that_returns_has_its_old_samples() -> None:
    config = config_of("schedule.kind=random", "sessions=8", "schedule.stay=1.0")
    world = build_world(config, digits(), 100)
    held: dict[int, list[int]] = {}
    returned = 0
    for before, session in zip([None, *world.sessions], world.sessions, strict=False):
        for device, shard in session.shards.items():
            returned += device in held and before is not None and device not in before.shards
            assert held.setdefault(device, shard.tolist()) == shard.tolist()
    assert returned > 0


def test_a_random_schedule_runs_end_to_end() -> None:
    settings = ("schedule.kind=random", "sessions=5", "schedule.round_time=0.5")
    records = recorded(*settings)
    assert {r.session for r in records.rounds} == {1, 2, 3, 4, 5}
    assert len({r.devices for r in records.rounds}) > 1
    assert recorded(*settings).rounds == records.rounds


def test_the_rate_decays_over_the_session_as_long_as_it_is() -> None:
    played = play("schedule.kind=random", "schedule.round_time=0.25", "methods=previous")
    rates = [r.lr for r in played.rounds if r.session == 2]
    rate = played.world.config.lr.algorithms["fedavg"]
    assert rates == list(polynomial_rates(rate.initial or 0, rate.floor or 0, 0.9, 4))


def test_a_mixture_is_of_buffers_too() -> None:
    models = [ModelState(torch.zeros(1), torch.tensor([v])) for v in (1.0, 3.0)]
    assert mix(models, [0.25, 0.75]).buffers.tolist() == [2.5]


# --- what becomes of an algorithm's state --------------------------------------------------------

CHURN = (
    "schedule.kind=random",
    "schedule.stay=1.0",
    "sessions=6",
    "partition.devices=6",
    "participation.share=0.6",
    "methods=previous",
)
STATEFUL = {"scaffold": "c", "moon": "theta", "feddyn": "h"}


def sessions_of(played: Play) -> Iterator[tuple[Session, list[tuple[Cohort, Lane]]]]:
    for session in played.world.sessions:
        rounds = [(c, lanes[0]) for c, lanes in played.trained if c.session == session.index]
        yield session, rounds


@pytest.mark.parametrize("name", STATEFUL)
def test_kept_states_are_those_of_a_devices_last_participation(name: str) -> None:
    """Whoever comes back has its own; whoever was never here has none; nothing else is there."""
    played = play(f"algorithm={name}", "boundary.state=keep", *CHURN)
    memory: dict[int, State] = {}
    returned = fresh = 0
    for session, rounds in sessions_of(played):
        for cohort, lane in rounds:
            assert lane.clients.keys() == memory.keys()
            for device, state in memory.items():
                assert all(torch.equal(lane.clients[device][key], state[key]) for key in state)
            if session.index > 1 and cohort.round == 1:
                returned += len(memory.keys() & set(session.devices))
                fresh += len(set(session.devices) - memory.keys())
            ((_, states),) = played.engine([lane], cohort)
            memory |= states
    assert returned > 0
    assert fresh > 0
    assert all(bool(state[STATEFUL[name]].any()) for state in memory.values())


def test_scaffolds_server_starts_a_session_at_the_mean_of_those_who_are_here() -> None:
    """Weighted by D_k, newcomers at zero: else they would be pushed along an old gradient."""
    played = play("algorithm=scaffold", "boundary.state=keep", *CHURN)
    some = 0
    for session, rounds in sessions_of(played):
        _, lane = rounds[0]
        total = sum(len(session.shards[device]) for device in session.devices)
        expected = torch.zeros_like(lane.shared.theta, dtype=torch.float64)
        for device in session.devices:
            if device in lane.clients:
                share = len(session.shards[device]) / total
                expected += share * lane.clients[device]["c"].double()
        c = lane.shared.extras["c"]
        torch.testing.assert_close(c.double(), expected, rtol=1e-5, atol=1e-7)
        some += bool(c.any())
    assert some > 1


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_rejoining_is_the_weighted_mean_of_the_states(name: str) -> None:
    algorithm, key = ALGORITHMS[name](), STATEFUL[name]
    theta = torch.zeros(2)
    assert algorithm.rejoin is not None
    states = [{key: torch.tensor([1.0, 0.0])}, {key: torch.tensor([0.0, 8.0])}, {key: theta}]
    server = algorithm.rejoin(theta, Population(3, 40), mean_state(states, [10, 5, 25]))
    assert server[key].tolist() == [0.25, 1.0]
    assert float(server["samples"]) == 40


@pytest.mark.parametrize("name", STATEFUL)
def test_reset_leaves_nothing_of_the_last_session(name: str) -> None:
    played = play(f"algorithm={name}", *CHURN)
    for _, rounds in sessions_of(played):
        _, lane = rounds[0]
        assert lane.clients == {}
        assert not any(bool(value.any()) for value in lane.shared.extras.values())
    assert any(lane.clients for _, (lane,) in played.trained)


@pytest.mark.parametrize("name", STATEFUL)
def test_keeping_makes_a_difference_once_somebody_came_back(name: str) -> None:
    kept = play(f"algorithm={name}", "boundary.state=keep", *CHURN)
    reset = play(f"algorithm={name}", *CHURN)
    assert torch.equal(kept.finals["previous", 1], reset.finals["previous", 1])
    assert not torch.equal(kept.finals["previous", 6], reset.finals["previous", 6])


@pytest.mark.parametrize("name", ["fedacg", "fedavgm", "fedadam"])
def test_a_servers_momentum_is_fresh_even_if_devices_keep_their_state(name: str) -> None:
    """It belongs to a model that was replaced."""
    kept = play(f"algorithm={name}", "boundary.state=keep", *CHURN)
    reset = play(f"algorithm={name}", *CHURN)
    assert kept.rounds == reset.rounds


def test_the_probe_is_fresh_even_if_devices_keep_their_state() -> None:
    played = play("algorithm=scaffold", "boundary.state=keep", "methods=warm_start", "sessions=4")
    assert played.probed
    for _, (lane,) in played.probed:
        assert lane.clients == {}
        assert not lane.shared.extras["c"].any()
    assert any(lane.clients for cohort, (lane,) in played.trained if cohort.round == 1)


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("fedprox", "mu", "0.25"),
        ("scaffold", "option", "1"),
        ("moon", "mu", "7"),
        ("moon", "tau", "0.5"),
        ("fedacg", "momentum", "0.85"),
        ("fedacg", "beta", "2.0"),
        ("fedavgm", "momentum", "0.3"),
        ("fedavgm", "rate", "0.5"),
        ("fedadam", "rate", "0.1"),
        ("fedadam", "beta1", "0.5"),
        ("fedadam", "beta2", "0.5"),
        ("fedyogi", "tau", "0.1"),
        ("feddyn", "alpha", "0.5"),
    ],
)
def test_parameters_reach_the_algorithm(name: str, setting: str, value: str) -> None:
    """A run with the setting is a run of the algorithm that was built with it."""
    small = ("methods=previous", "sessions=2", "rounds=3", f"algorithm={name}", "lr.initial=0.05")
    given = play(*small, f"parameters.{name}.{setting}={value}")
    built = ALGORITHMS[name](**{setting: json.loads(value)})
    by_hand = Play(*small, algorithm=built)
    assert torch.equal(given.finals["previous", 2], by_hand.finals["previous", 2])
    assert not torch.equal(given.finals["previous", 2], play(*small).finals["previous", 2])


def test_parameters_reach_the_model() -> None:
    played = play("model.kind=mlp", "parameters.mlp.hidden=9", "sessions=1", "methods=previous")
    assert played.world.model.layout.total == 64 * 9 + 9 + 9 * 10 + 10


# --- evaluation beside the next round ------------------------------------------------------------


class Breaks(Sequential, Callback):
    """An engine that fails in a round, and a callback that may fail when it is told of one."""

    def __init__(self, train_fails: int = 99, hearing_fails: int = 99) -> None:
        config = config_of("methods=previous", "rounds=4", "sessions=1")
        self.world = build_world(config, digits(), 100)
        super().__init__(self.world.model, self.world.dataset.train, self.world.recipe)
        self.train_fails, self.hearing_fails = train_fails, hearing_fails
        self.heard: list[int] = []
        self.models: dict[int, Tensor] = {}

    def __call__(self, lanes: Sequence[Lane], cohort: Cohort) -> list[Trained]:
        self.models[cohort.round - 1] = lanes[0].shared.theta
        if cohort.round == self.train_fails:
            raise KeyboardInterrupt
        return super().__call__(lanes, cohort)

    def round_finished(self, event: RoundFinished) -> None:
        if event.round == self.hearing_fails:
            raise OSError("disk full")
        self.heard.append(event.round)
        if event.round in self.models:
            assert torch.equal(event.tracks[0].model.theta, self.models[event.round])

    def run(self) -> None:
        simulate(self.world, new_tracks(self.world, methods_of(self.world)), self, [self])


def test_a_watcher_hears_of_every_round_with_the_tracks_as_they_were_then() -> None:
    played = Breaks()
    played.run()
    assert played.heard == [1, 2, 3, 4]


def test_a_round_that_is_over_is_heard_of_though_the_next_one_fails() -> None:
    played = Breaks(train_fails=3)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert played.heard == [1, 2]


def test_after_a_watcher_has_failed_none_is_told_of_a_later_round() -> None:
    played = Breaks(hearing_fails=2)
    with pytest.raises(OSError, match="disk full"):
        played.run()
    assert played.heard == [1]


def test_a_run_records_how_each_method_was_trained_and_why() -> None:
    def paths(*settings: str) -> set[tuple[str, str]]:
        events = recorded("sessions=2", "rounds=1", *settings).events
        return {(e["path"], e["path_reason"]) for e in events if e["event"] == "start"}

    ((path, reason),) = paths("engine.kind=sequential")
    assert path == "one device at a time"
    ((path, reason),) = paths("engine.fused=false")
    assert path == "mapped blocks"
    assert reason
