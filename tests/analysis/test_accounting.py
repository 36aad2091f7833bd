"""What a run counts is what the formulas say, whoever starts it how and keeps what."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebbflow import experiment
from ebbflow.algorithms import ALGORITHMS, register_algorithm
from ebbflow.analysis import accounting
from ebbflow.analysis.accounting import VALUES, Account, CostPlan, LocalWork
from ebbflow.config.resolved import Config
from ebbflow.config.schema import StepCount
from ebbflow.core import counters, mixtures
from ebbflow.core.counters import Cost, Costs, CountedBatches, Stored
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.signature import DISTANCES
from ebbflow.core.survey import SurveyPlan
from ebbflow.core.types import Layout, Session
from ebbflow.data import datasets
from ebbflow.data.batches import local_batches
from ebbflow.runs import records
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.tracks import new_tracks
from ebbflow.simulation.world import World, draw_participants
from ebbflow.starts import STARTS as STARTS_REGISTRY
from ebbflow.starts import register_start
from tests.callbacks import StopAfter
from tests.configs import digits, with_keys

STARTS = ("warm_start", "previous", "average", "continuous")
SMALL: dict[str, Any] = {
    "seeds": [7],
    "sessions": 5,
    "rounds": 2,
    "partition.devices": 4,
    "local.batch": 16,
    "methods": list(STARTS),
    "engine.workers": 1,
    "data.limit_test": 60,
}
Keep = Literal["all", "last", "diverse"]


def configured(**settings: Any) -> Config:
    return with_keys(SMALL, settings)


def events_of(config: Config) -> list[dict[str, Any]]:
    return experiment.run(config, dataset=digits()).events


def counted(events: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the cost events by algorithm, method and session."""
    return {
        (event["algorithm"], event["method"], event["session"]): event
        for event in events
        if event["event"] == counters.EVENT
    }


# --- the formulas, from the world's own draws ----------------------------------------------------


def drawn(
    world: World, session: Session, t: int, devices: Sequence[int], purpose: str, steps: StepCount
) -> list[LocalWork]:
    """Return what each participant does, by the closed form and not by its batches."""
    choice = world.config.local
    batch = (world.config.probe.batch if purpose == "probe" else choice.batch) or 1
    found = []
    for device in devices:
        draw = generator(world.seed, purpose, session.index, t, device)
        asked = steps if isinstance(steps, int) else int(draw.integers(steps[0], steps[1] + 1))
        least = 2 if world.model.batch_statistics else 1
        found.append(
            accounting.local_work(session.samples(device), asked, batch, choice.rule, least)
        )
    return found


def formulas(world: World, start: str, algorithm: str, session: Session) -> Costs:
    """Return a session's costs stage by stage, as the paper adds them up."""
    config, s = world.config, session.index
    pilot, limit = config.pilot.sessions, config.history.limit
    sizes = world.model.layout.total, world.model.buffer_layout.total
    sent = accounting.payload(algorithm, *sizes)
    rounds = []
    for t in range(1, session.rounds + 1):
        present = draw_participants(world, session, t, "participants", config.participation.share)
        rounds.append(drawn(world, session, t, present, "local", config.local.steps))
    trained = accounting.training(rounds, sent)
    if s <= pilot:
        made = Cost(mixed=pilot if s == pilot else 0)
        return {"pilot": trained + made}
    found: Costs = {}
    if accounting.probes(start):
        sampled = draw_participants(world, session, 0, "probe-participants", config.probe.share)
        steps = config.probe.steps or 1
        each = [
            drawn(world, session, v, sampled, "probe", steps)
            for v in range(1, config.probe.rounds + 1)
        ]
        if isinstance(steps, int):  # the paper's form: every auxiliary round costs the same
            probed = accounting.probing(config.probe.rounds, each[0], sent)
        else:
            probed = accounting.training(each, sent)
        found = counters.charged(found, "probe", probed)
        similar = accounting.coefficients(s, pilot, limit)
        found = counters.charged(found, "coefficients", similar)
    if "models" in accounting.keeps(start):
        mixed = accounting.construction(s, pilot, limit)
        found = counters.charged(found, "construction", mixed)
    found = counters.charged(found, "main", trained)
    held = accounting.candidates(s, pilot, limit) + 1
    choosing = counters.retention(held, config.history.keep, limit)
    return counters.charged(found, "retention", choosing)


SETTINGS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "P = 3, V = 3": {"pilot.sessions": 3, "probe.rounds": 3, "sessions": 6},
    "a short pilot of three": {"pilot.sessions": 3, "pilot.rounds": 1, "sessions": 6},
    "half take part, two are probed": {"participation.share": 0.5, "probe.share": 2},
    "weighted participants": {"participation.share": 3, "participation.weighting": "weighted"},
    "unequal steps": {"local.steps": [1, 4], "probe.rounds": 2},
    "other steps in the probe": {"probe.steps": 2, "probe.batch": 5, "probe.rounds": 3},
    "each step a fresh draw": {"local.rule": "each_step", "local.steps": 3},
    "the last two": {"history.keep": "last", "history.limit": 2, "sessions": 6},
    "the most diverse two": {"history.keep": "diverse", "history.limit": 2, "sessions": 6},
    "the authors' restart": {"pilot.carry_over": False},
    "the reference engine": {"engine.kind": "sequential", "participation.share": 2},
    "several workers": {"engine.workers": 2, "engine.fused": False, "local.steps": [1, 3]},
    "random arrivals": {"schedule.kind": "random", "sessions": 4},
    "algorithms": {"algorithm": ["scaffold", "moon", "fedacg", "feddyn"], "sessions": 4},
    "its own algorithm distilled": {
        "algorithm": "scaffold",
        "parameters.continuous.base": "algorithm",
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_counters_are_what_the_formulas_say(settings: dict[str, Any]) -> None:
    config = configured(**settings)
    world = build_world(config, digits(), config.seeds[0])
    found = counted(events_of(config))
    assert len(found) == len(config.algorithm) * len(STARTS) * config.sessions
    for (group, method, s), event in found.items():
        base = config.parameters.get("continuous", {}).get("base", "fedavg")
        distils_fedavg = method == "continuous" and base == "fedavg"
        algorithm = "fedavg" if distils_fedavg else group
        expected = formulas(world, method, algorithm, world.sessions[s - 1])
        assert counters.read(event["stages"]) == expected, (group, method, s)
        assert Stored(**event["stored"]) == accounting.storage(
            s,
            config.pilot.sessions,
            world.model.layout.total,
            world.model.buffer_layout.total,
            signed=accounting.probes(method),
            limit=config.history.limit,
        )


def test_buffers_travel_and_are_kept_but_are_no_part_of_a_signature() -> None:
    config = configured(
        **{
            "model.kind": "cnn",
            "sessions": 3,
            "rounds": 1,
            "local.steps": 1,
            "local.batch": 4,
            "partition.devices": 2,
            "algorithm": ["fedavg", "scaffold"],
            "methods": ["warm_start"],
            "data.limit_train": 40,
        }
    )
    data = datasets.load("digits", limit_train=40, limit_test=20)
    world = build_world(config, data, 7)
    n, b = world.model.layout.total, world.model.buffer_layout.total
    assert b > 0
    found = counted(experiment.run(config, dataset=data).events)
    for algorithm, vectors in (("fedavg", 1), ("scaffold", 2)):
        event = found[algorithm, "warm_start", 3]
        main = event["stages"]["main"]
        assert main["bytes_up"] == main["uploads"] * 4 * (vectors * n + b)
        assert main["bytes_down"] == main["broadcasts"] * 4 * (vectors * n + b)
        assert event["stored"]["bytes"] == 4 * (3 * (n + b) + 2 * n)
        for s in (1, 2, 3):
            expected = formulas(world, "warm_start", algorithm, world.sessions[s - 1])
            assert counters.read(found[algorithm, "warm_start", s]["stages"]) == expected


@pytest.mark.parametrize("keep", ["all", "last", "diverse"])
@pytest.mark.parametrize(("pilot", "probe"), [(1, 1), (3, 3)])
def test_equal_devices_cost_what_was_planned(pilot: int, probe: int, keep: Keep) -> None:
    limit = None if keep == "all" else 2
    settings = {
        "partition.kind": "pool",
        "partition.samples": 40,
        "participation.share": 3,
        "probe.share": 2,
        "pilot.sessions": pilot,
        "pilot.rounds": 3,
        "probe.rounds": probe,
        "sessions": pilot + 4,
        "history.keep": keep,
    }
    config = configured(**settings, **({} if limit is None else {"history.limit": limit}))
    for (_, start, s), event in counted(events_of(config)).items():
        plan = CostPlan(
            rounds=2,
            pilot=pilot,
            participants=3,
            device=accounting.local_work(40, 5, 16),
            parameters=650,
            start=start,
            pilot_rounds=3,
            probe_rounds=probe,
            probe_participants=2,
            keep=keep,
            limit=limit,
        )
        assert counters.read(event["stages"]) == accounting.planned(plan, s), (start, s)


# --- the counters, against what is really done ---------------------------------------------------


@pytest.mark.parametrize("keep", ["all", "last", "diverse"])
def test_distances_are_those_that_were_computed(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = DISTANCES["per_tensor"]

    def measure(a: torch.Tensor, b: torch.Tensor, layout: Layout) -> float:
        nonlocal calls
        calls += 1
        return real(a, b, layout)

    monkeypatch.setitem(DISTANCES, "per_tensor", measure)
    limits = {} if keep == "all" else {"history.limit": 2}
    config = configured(**{"history.keep": keep, "sessions": 6}, **limits)
    accounts = accounting.totals(events_of(config), carry_over=True)
    total = [sum(a.costs.values(), start=Cost()).distances for a in accounts.values()]
    assert calls == sum(total) > 0


def test_with_sketches_fewer_distances_are_computed_and_counted() -> None:
    settings = {"sessions": 7, "methods": ["warm_start"], "parameters.warm_start.scale": 800.0}
    counts = [
        sum(
            event["stages"].get("coefficients", {}).get("distances", 0)
            for event in counted(
                events_of(configured(**settings, **{"parameters.warm_start.signature": signature}))
            ).values()
        )
        for signature in ("exact", "sketch")
    ]
    assert counts[0] == sum(accounting.candidates(s, 1) for s in range(1, 8)) == 15
    assert 0 < counts[1] <= counts[0]


def test_whoever_follows_is_charged_as_if_alone() -> None:
    together = counted(events_of(configured()))
    for method in STARTS:
        alone = counted(events_of(configured(methods=[method])))
        assert alone == {key: event for key, event in together.items() if key[1] == method}


@pytest.mark.parametrize("stops", [[1], [5], [3, 2, 4]])
def test_a_run_that_was_stopped_has_the_same_totals(stops: list[int], tmp_path: Path) -> None:
    settings = {"rounds": 3, "sessions": 4, "seeds": [7, 8], "checkpoint.seconds": 1e-9}
    config = configured(**settings, **{"history.keep": "diverse", "history.limit": 1})
    whole = events_of(config)
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        experiment.run(
            config, folder, dataset=digits(), callbacks=[StopAfter(stops[0], KeyboardInterrupt)]
        )
    for rounds in stops[1:]:
        with pytest.raises(KeyboardInterrupt):
            experiment.resume(
                folder, dataset=digits(), callbacks=[StopAfter(rounds, KeyboardInterrupt)]
            )
    resumed = experiment.resume(folder, dataset=digits()).events
    own = [[e for e in events if e["event"] == counters.EVENT] for events in (whole, resumed)]
    assert own[0] == own[1]
    assert accounting.totals(whole, carry_over=True) == accounting.totals(resumed, carry_over=True)
    assert list(records.read_lines(folder / records.EVENTS)) == resumed


# --- who pays for the pilot ----------------------------------------------------------------------


def event(method: str, session: int, **stages: dict[str, int]) -> dict[str, Any]:
    about = {"event": "costs", "algorithm": "fedavg", "method": method, "seed": 1}
    return {**about, "session": session, "stages": stages, "stored": {"models": session}}


EVENTS = [
    {"event": "start"},
    event("previous", 1, pilot={"uploads": 4, "mixed": 1}),
    event("warm_start", 1, pilot={"uploads": 4, "mixed": 1}),
    event("previous", 2, main={"uploads": 6}),
    event("warm_start", 2, main={"uploads": 6}, probe={"uploads": 2}),
]


def test_a_pilot_is_charged_to_those_who_go_on_from_it() -> None:
    found = accounting.totals(EVENTS, carry_over=True)
    costs = {"pilot": Cost(uploads=4), "main": Cost(uploads=6)}
    assert found["fedavg", "previous", 1] == Account(costs, Stored(models=2), 2)
    assert found["fedavg", "warm_start", 1].costs == {
        "pilot": Cost(uploads=4, mixed=1),
        "main": Cost(uploads=6),
        "probe": Cost(uploads=2),
    }


def test_a_pilot_that_only_the_probe_uses_is_not_charged_to_others() -> None:
    found = accounting.totals(EVENTS, carry_over=False)
    assert found["fedavg", "previous", 1].costs == {"main": Cost(uploads=6)}
    assert found["fedavg", "warm_start", 1].costs["pilot"] == Cost(uploads=4, mixed=1)


def test_whoever_sends_the_pilot_model_to_devices_pays_for_the_pilot() -> None:
    about = {"event": "start", "algorithm": "fedavg", "method": "previous", "seed": 1}
    for names, pays in (({"carried": 1.0}, False), ({"carried": 1.0, "pilot": 0.0}, True)):
        events = [*EVENTS, {**about, "session": 2, "mixture": names}]
        for carry_over in (True, False):
            found = accounting.totals(events, carry_over=carry_over)["fedavg", "previous", 1].costs
            trained = {"pilot": Cost(uploads=4)} if carry_over else {}
            whole = {"pilot": Cost(uploads=4, mixed=1)}
            assert found == {**(whole if pays else trained), "main": Cost(uploads=6)}


# --- surveys -------------------------------------------------------------------------------------


@given(
    st.integers(0, 10**6), st.integers(0, 1000), st.integers(1, 12), st.sampled_from(list(VALUES))
)
def test_a_basis_has_the_bytes_that_a_survey_charges(
    parameters: int, buffers: int, models: int, how: accounting.Compression
) -> None:
    parts = accounting.basis_bytes(parameters, models, how, buffers)
    assert len(parts) == models
    assert sum(parts) == mixtures.basis_bytes(parameters, buffers, models, how)


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
@pytest.mark.parametrize("balanced", [True, False])
def test_a_survey_costs_what_the_formulas_say(kind: str, balanced: bool) -> None:
    config = configured(**{"model.kind": kind, "methods": ["learned"]})
    world = build_world(config, digits(), 7)
    session = world.sessions[1]
    (track,) = new_tracks(world, methods_of(world))
    plan = SurveyPlan(devices=3, samples=5, balance=0.5 * balanced, compression="int8")
    panel = SimulatedPanel(world, session, [world.initial] * 4, plan, track)
    panel.losses([np.full(4, 0.25)] * 6, "judge")
    for _ in range(2):
        panel.expansion(np.full(4, 0.25), "learn")
    basis = accounting.basis_bytes(world.model.layout.total, 4, "int8")
    # Softmax regression evaluates the four models on both halves, once, and then only mixes.
    once, samples = (30, 0) if kind == "softmax" else (0, 15)
    first = Cost(questions=1, passes=4 * once)
    if balanced:
        first = accounting.label_question(10, 3, models=4, samples=once)
    expanding = accounting.expansion_question(4, 3, samples)
    asked = [first, accounting.loss_question(6, 4, 3, samples), expanding, expanding]
    assert track.costs == {"survey": accounting.surveying(basis, asked)}
    assert len(track.asked) == 3


def test_a_run_that_asks_keeps_the_models_that_sessions_started_from() -> None:
    found = counted(events_of(configured(methods=["learned"])))
    for (_, method, s), line in found.items():
        stored = Stored(**line["stored"])
        assert stored == accounting.storage(s, 1, 650, signed=False, started=True)
        assert accounting.needed(method, stored) == stored.models
        stages = counters.read(line["stages"])
        if s > 1:
            assert stages["survey"].broadcasts >= 2
            assert stages["construction"].mixed <= stages["survey"].broadcasts


def test_a_plan_takes_the_cost_of_a_survey_as_given() -> None:
    survey = accounting.surveying(
        accounting.basis_bytes(100, 3), [accounting.loss_question(2, 3, 4, 50)]
    )
    # Three models of 200 bytes, two mixtures of three weights; 2 losses, a weight, 3 products up.
    assert survey == Cost(
        broadcasts=3, bytes_up=4 * 4 * 6, bytes_down=600 + 24, questions=1, passes=100
    )
    plan = CostPlan(
        rounds=1,
        pilot=1,
        participants=4,
        device=LocalWork(5, 80),
        parameters=100,
        start="learned",
        survey=survey,
    )
    assert "survey" not in accounting.planned(plan, 1)
    costs = accounting.planned(plan, 3)
    assert (costs["survey"], costs["construction"]) == (survey, Cost(mixed=3))
    assert "probe" not in costs


def test_a_start_may_keep_the_first_models_of_sessions_alone() -> None:
    register_start("firsts", "nowhere:firsts", keeps=["starts"])
    try:
        assert accounting.needed("firsts", Stored(models=11)) == 5
    finally:
        STARTS_REGISTRY.unregister("firsts")


# --- by hand -------------------------------------------------------------------------------------


def test_the_stages_of_a_small_run_by_hand() -> None:
    # P = 1, T = 10, |A| = 4, e = 5, V = 2 on 3 devices, N_p = 100: session 4 has two candidates.
    plan = CostPlan(
        rounds=10,
        pilot=1,
        participants=4,
        device=LocalWork(5, 80),
        parameters=100,
        algorithm="scaffold",
        probe_rounds=2,
        probe_participants=3,
    )
    assert accounting.planned(plan, 1) == {
        "pilot": Cost(40, 10, 200, 3200, 40 * 800, 10 * 800, mixed=1)
    }
    assert accounting.planned(plan, 2).keys() == {"probe", "main"}
    assert accounting.planned(plan, 4) == {
        "probe": Cost(6, 2, 30, 480, 6 * 800, 2 * 800),
        "coefficients": Cost(distances=2),
        "construction": Cost(mixed=2),
        "main": Cost(40, 10, 200, 3200, 40 * 800, 10 * 800),
    }


def test_storage_grows_by_two_vectors_a_session_up_to_the_limit() -> None:
    z = 4 * 100
    everything = [accounting.storage(s, 2, 100).bytes for s in range(1, 7)]
    assert everything == [0, z, 3 * z, 5 * z, 7 * z, 9 * z]
    limited = [accounting.storage(s, 2, 100, limit=2).bytes for s in range(1, 7)]
    assert limited == [0, z, 3 * z, 5 * z, 5 * z, 5 * z]
    assert [accounting.storage(s, 3, 100).temporary for s in range(1, 6)] == [1, 2, 3, 0, 0]
    assert accounting.storage(5, 1, 100, 10, signed=False) == Stored(5, 0, 4 * 5 * 110)


def test_what_is_sent_and_kept_is_what_was_registered() -> None:
    register_algorithm("three_vectors", "nowhere:three_vectors", vectors=3)
    register_start("taught", "nowhere:taught", probes=True, keeps=["pilot", "teacher"])
    try:
        assert accounting.payload("three_vectors", 100, 10) == (4 * 310, 4 * 310)
        assert accounting.probes("taught")
        assert accounting.needed("taught", Stored(models=6)) == 2
    finally:
        ALGORITHMS.unregister("three_vectors")
        STARTS_REGISTRY.unregister("taught")
    # A run can be read without the file that registered what it used.
    assert accounting.payload("three_vectors", 100, 10) == (4 * 110, 4 * 110)
    assert not accounting.probes("taught")
    assert accounting.needed("taught", Stored(models=6)) == 6


def test_what_a_start_needs_of_what_is_kept() -> None:
    stored = accounting.storage(4, 1, 10)
    assert [accounting.needed(start, stored) for start in STARTS] == [4, 0, 3, 1]
    assert accounting.needed("continuous", Stored()) == 0


@given(
    samples=st.integers(1, 60),
    steps=st.integers(1, 6),
    batch=st.integers(1, 20),
    rule=st.sampled_from(["one_pass", "each_step"]),
    least=st.integers(1, 2),
)
def test_local_work_is_that_of_the_batches(
    samples: int,
    steps: int,
    batch: int,
    rule: Literal["one_pass", "each_step"],
    least: int,
) -> None:
    drawn = local_batches(np.random.default_rng(0), np.arange(samples), steps, batch, rule)
    made = [len(rows) for rows in drawn if len(rows) >= least]
    assert accounting.local_work(samples, steps, batch, rule, least) == (len(made), sum(made))


counts = st.builds(Cost, *[st.integers(0, 10**12)] * 8)


@given(counts, counts, counts)
def test_costs_add_up_in_any_order(a: Cost, b: Cost, c: Cost) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Cost() == a


@given(st.dictionaries(st.sampled_from(counters.STAGES), counts))
def test_costs_are_read_as_they_were_written(costs: dict[str, Cost]) -> None:
    assert counters.read(counters.written(costs)) == costs


def test_costs_of_another_version_are_refused() -> None:
    with pytest.raises(EbbflowError, match="'dinner'"):
        counters.read({"dinner": {"uploads": 1}})
    with pytest.raises(EbbflowError, match="guests"):
        counters.read({"main": {"guests": 1}})


def test_a_tally_notes_what_is_taken_and_nothing_twice() -> None:
    batches = [[np.arange(4)] * n for n in (3, 1, 2)]
    tally = CountedBatches(batches)
    assert (len(tally), tally.steps, tally.samples) == (3, 0, 0)
    assert [len(rows) for rows in tally[1:]] == [1, 2]
    assert (tally.steps, tally.samples) == (3, 12)
    for rows in itertools.chain(tally, tally):
        assert len(rows)
    assert (tally.steps, tally.samples) == (6, 24)
    assert tally.round(3, counters.Payload(10, 20)) == Cost(3, 1, 6, 24, 30, 20)
