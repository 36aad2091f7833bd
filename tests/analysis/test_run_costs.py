"""What a run costs, from records that are written out here."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest

from ebbflow.analysis.cost import (
    MODELS,
    ModelSize,
    RoundCost,
    draw_fleet,
    round_cost,
    round_task,
    total,
)
from ebbflow.analysis.metrics import Target
from ebbflow.analysis.run_costs import (
    SWEEPS,
    Usage,
    estimate,
    model_size,
    reached,
    sweep,
    task_of,
    usages,
)
from ebbflow.analysis.survey_costs import Survey, survey_cost
from ebbflow.config.resolved import Config
from ebbflow.core.counters import EVENT
from ebbflow.report.cost_tables import (
    amount,
    sweep_picture,
    target_rows,
    target_tables,
    usage_rows,
    usage_tables,
)
from ebbflow.runs.records import Round
from tests.configs import with_keys

METHODS = ("warm_start", "previous")
CURVES = {"warm_start": [80.0, 90.0, 100.0], "previous": [10.0, 94.0, 96.0]}


def settled(**keys: Any) -> Config:
    return with_keys({"dataset": "mnist", "wireless.fading": "ergodic"}, keys)


def rounds(sessions: int = 4, participants: int = 3) -> list[Round]:
    return [
        Round("fedavg", method, 1, s, t, accuracy, 1.0, 0.1, 3, participants)
        for s in range(1, sessions + 1)
        for method in METHODS
        for t, accuracy in enumerate(CURVES[method], start=1)
    ]


def starts(sessions: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "event": "start",
            "algorithm": "fedavg",
            "method": method,
            "seed": 1,
            "session": s,
            "devices": [0, 1, 2] if s % 2 else [3, 4, 5],
            "probe_rounds": 2 if method == "warm_start" and s > 1 else 0,
        }
        for s in range(1, sessions + 1)
        for method in METHODS
    ]


def spent(config: Config) -> list[Usage]:
    found = usages(config, MODELS["mnist"], rounds(), starts())
    assert len(found) == 8
    return found


# --- a run ---------------------------------------------------------------------------------------


def test_every_round_is_that_of_its_devices() -> None:
    config = settled()
    for usage in spent(config):
        task = task_of(config, MODELS["mnist"], "fedavg")
        devices = [0, 1, 2] if usage.session % 2 else [3, 4, 5]
        expected = tuple(
            round_cost(
                config.wireless, draw_fleet(config.wireless, devices, 1, usage.session, t), task
            )
            for t in (1, 2, 3)
        )
        assert usage.rounds == expected
        assert usage.accuracies == tuple(CURVES[usage.method])


def test_only_the_method_that_probes_pays_for_it() -> None:
    for usage in spent(settled()):
        probes = usage.method == "warm_start" and usage.session > 1
        assert (usage.probe != RoundCost()) is probes
        if probes:
            assert usage.probe.up == 2 * usage.rounds[0].up


def test_a_smaller_probe_costs_less() -> None:
    whole, part = (
        [u.probe for u in spent(settled(**{"probe.share": share})) if u.probe.up]
        for share in (1.0, 1)
    )
    assert [a.up / b.up for a, b in zip(whole, part, strict=True)] == [3, 3, 3]


def test_partial_participation_costs_those_that_take_part() -> None:
    found = usages(settled(), MODELS["mnist"], rounds(participants=2), starts())
    assert all(cost.up == 2 * 7850 * 4 for usage in found for cost in usage.rounds)


def counted(event: dict[str, Any], **stages: dict[str, int]) -> dict[str, Any]:
    """Return the costs of the session that an event began."""
    names = {name: event[name] for name in ("algorithm", "method", "seed", "session")}
    return {"event": EVENT, **names, "stages": stages, "stored": {}}


def test_what_is_sent_is_what_the_run_recorded() -> None:
    # Whatever the algorithm is called: 100 bytes up and 300 down, and in probes 10 and 20.
    events = [{**event, "samples": [640] * 3} for event in starts()]
    main = {"uploads": 9, "broadcasts": 3, "bytes_up": 900, "bytes_down": 900}
    probe = {"uploads": 6, "broadcasts": 2, "bytes_up": 60, "bytes_down": 40}
    recorded = [counted(event, main=main, probe=probe) for event in events]
    lines = [r._replace(algorithm="scaffold") for r in rounds()]
    renamed = [{**event, "algorithm": "scaffold"} for event in [*events, *recorded]]
    for usage in usages(settled(), MODELS["mnist"], lines, renamed):
        assert [(cost.up, cost.down) for cost in usage.rounds] == [(300.0, 900.0)] * 3
        probes = usage.method == "warm_start" and usage.session > 1
        assert (usage.probe.up, usage.probe.down) == ((60.0, 120.0) if probes else (0.0, 0.0))


def test_a_session_under_way_sends_what_those_before_it_sent() -> None:
    first, *others = starts()
    sizes = {"uploads": 9, "broadcasts": 3, "bytes_up": 900, "bytes_down": 900}
    events = [{**event, "samples": [640] * 3} for event in (first, *others)]
    found = usages(settled(), MODELS["mnist"], rounds(), [*events, counted(first, pilot=sizes)])
    assert {cost.up for u in found if u.method == first["method"] for cost in u.rounds} == {300.0}


def test_another_model_size_scales_what_was_sent() -> None:
    main = {"uploads": 9, "broadcasts": 3, "bytes_up": 900, "bytes_down": 900}
    events = [{**event, "samples": [640] * 3} for event in starts()]
    recorded = [counted(event, main=main) for event in events]
    config = settled(**{"wireless.parameters": 2 * 7850})
    (usage, *_) = usages(config, model_size(config), rounds(), [*events, *recorded])
    assert (usage.rounds[0].up, usage.rounds[0].down) == (600.0, 1800.0)


def test_without_records_the_payload_is_the_algorithms() -> None:
    for algorithm, factor in (("fedavg", 1), ("scaffold", 2)):
        lines = [r._replace(algorithm=algorithm) for r in rounds()]
        (usage, *_) = usages(settled(), MODELS["mnist"], lines, [])
        assert usage.rounds[0].up == factor * 3 * 7850 * 4


# Devices of 592, 100 and 52 samples, 248 on average, at 8e5 operations a sample and 8e9 a second:
# 59.2, 10 and 5.2 ms, where three equal devices would take 24.8 ms. No time on the air to speak of.
UNEQUAL = [592, 100, 52]
EASY = ModelSize(8_000, 100.0)
NO_AIR = {"wireless.bandwidth": 1e15, "local.steps": 5, "local.batch": 128}


def unequal_events() -> list[dict[str, Any]]:
    main = {"uploads": 9, "broadcasts": 3, "samples": 3 * sum(UNEQUAL), "bytes_up": 9}
    main["bytes_down"] = 3
    return [
        line
        for event in starts()
        for line in ({**event, "samples": UNEQUAL}, counted(event, main=main))
    ]


def test_a_round_takes_as_long_as_its_slowest_device() -> None:
    found = usages(settled(**NO_AIR), EASY, rounds(), unequal_events())
    for cost in (cost for usage in found for cost in usage.rounds):
        assert cost.latency == pytest.approx(59.2e-3, rel=1e-3)
        # 1e-28 x (8e5 x 744 / 8) x 1e18 joules
        assert cost.energy == pytest.approx(7.44e-3, rel=1e-3)


def test_the_mean_latency_is_the_mean_devices() -> None:
    config = settled(**NO_AIR, **{"wireless.latency": "mean"})
    (usage, *_) = usages(config, EASY, rounds(), unequal_events())
    assert usage.rounds[0].latency == pytest.approx(24.8e-3, rel=1e-3)


def test_an_old_run_is_charged_with_the_mean_and_says_so() -> None:
    old = [
        {key: value for key, value in event.items() if key != "samples"}
        for event in unequal_events()
    ]
    with pytest.warns(UserWarning, match="did not record how many samples each device holds"):
        (usage, *_) = usages(settled(**NO_AIR), EASY, rounds(), old)
    assert usage.rounds[0].latency == pytest.approx(24.8e-3, rel=1e-3)
    assert usage.rounds[0].energy == pytest.approx(7.44e-3, rel=1e-3)


def test_time_to_accuracy_and_its_charges() -> None:
    config = settled(**{"pilot.carry_over": False})
    costs = spent(config)
    found = {(r.session, r.method): r for r in reached(config, costs, Target(0.95))}
    assert set(found) == {(s, m) for s in (2, 3, 4) for m in METHODS}
    ours, theirs = found[4, "warm_start"], found[4, "previous"]
    assert (ours.goal, ours.rounds, theirs.rounds) == (95.0, 3, 3)
    assert ours.transition == 1
    assert ours.training.up == 3 * 3 * 7850 * 4
    assert ours.probe.up == 2 * 3 * 7850 * 4
    assert ours.pilot.up == pytest.approx(3 * 3 * 7850 * 4 / 3)  # one pilot session, three others
    assert theirs.probe == theirs.pilot == RoundCost()
    easy = {(r.session, r.method): r.rounds for r in reached(config, costs, Target(0.9))}
    assert (easy[4, "warm_start"], easy[4, "previous"]) == (2, 2)
    never = reached(config, costs, Target(99.0, None))
    assert [r.rounds for r in never if r.session == 4] == [3, None]


def test_a_pilot_that_all_go_on_from_is_charged_to_all() -> None:
    found = reached(settled(), spent(settled()), Target(0.95))
    assert all(r.pilot.latency > 0 for r in found)


def test_rows_have_the_sums() -> None:
    config = settled(**{"pilot.carry_over": False})
    costs = spent(config)
    ours, theirs = usage_rows(costs)
    assert (ours["method"], theirs["method"]) == METHODS
    assert theirs["session"]["up"] == pytest.approx(3 * theirs["round"]["up"])
    assert ours["run"]["up"] == pytest.approx((4 * 3 + 3 * 2) * ours["round"]["up"])
    rows = target_rows(reached(config, costs, Target(99.0, None)))
    assert [row["reached"] for row in rows if row["session"] == 4] == [1, 0]
    assert rows[-1]["training"] is None
    ours = next(row for row in rows if (row["session"], row["method"]) == (4, "warm_start"))
    assert ours["training"]["energy"] < ours["probed"]["energy"] < ours["all"]["energy"]
    assert len(usage_tables(costs)) == 1
    (table,) = target_tables(reached(config, costs, Target(0.95)), Target(0.95))
    assert table.row_count == 4  # session 4: three lines of the warm start, one of previous


# --- surveys -------------------------------------------------------------------------------------

# Three models of MNIST in bfloat16, 47,100 bytes, and 400 bytes of questions.
SURVEY = {"broadcasts": 3, "bytes_up": 600, "bytes_down": 47_500, "questions": 4, "passes": 900}
MAIN = {"uploads": 9, "broadcasts": 3, "bytes_up": 9 * 31_400, "bytes_down": 3 * 31_400}
MIXTURE = {"carried": 0.5, "final 2": 0.7, "start 2": -0.2}


def asking(event: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Return the event of a session in which ``previous`` asks two devices."""
    learned = {"asked": event["devices"][:2], "mixture": MIXTURE, **given}
    asks = event["method"] == "previous" and event["session"] > 2
    return {**event, "samples": [640] * 3, **(learned if asks else {})}


def surveyed(under_way: int | None = None, **given: Any) -> list[dict[str, Any]]:
    """Return the events of a run with surveys; the costs of the last session may be missing."""
    events = [asking(event, **given) for event in starts()]
    recorded = [
        counted(event, main=MAIN, **({"survey": SURVEY} if "asked" in event else {}))
        for event in events
        if event["session"] != under_way
    ]
    return [*events, *recorded]


def of_survey(found: list[Usage], session: int = 4) -> RoundCost:
    (usage,) = (u for u in found if (u.method, u.session) == ("previous", session))
    return usage.survey


def test_a_survey_is_charged_as_it_was_recorded() -> None:
    config = settled(**{"parameters.previous.compression": "bf16"})
    found = usages(config, MODELS["mnist"], rounds(), surveyed())
    for usage in found:
        asks = usage.method == "previous" and usage.session > 2
        assert (usage.survey != RoundCost()) is asks
    expected = Survey((3, 4), (47_100.0,) * 2, 4, 400.0, 300.0, 450.0)
    cost = survey_cost(config.wireless, MODELS["mnist"], expected, 1, 4)
    assert of_survey(found) == cost
    assert (cost.down, cost.up) == pytest.approx((2 * 47_500, 600))


def test_a_run_without_surveys_costs_what_it_did() -> None:
    with_them = usages(settled(), MODELS["mnist"], rounds(), surveyed())
    without = usages(
        settled(),
        MODELS["mnist"],
        rounds(),
        [
            {key: value for key, value in event.items() if key not in ("asked", "mixture")}
            for event in surveyed()
        ],
    )
    assert all(usage.survey == RoundCost() for usage in without)
    assert [u._replace(survey=RoundCost()) for u in with_them] == without


def test_devices_that_come_back_need_not_be_sent_what_they_hold() -> None:
    # Those of session 4 were in session 2 and not in session 3.
    keys = {"parameters.previous.compression": "bf16"}
    sent, held = (
        usages(settled(**keys, **more), MODELS["mnist"], rounds(), surveyed())
        for more in ({}, {"wireless.returning": "hold"})
    )
    assert of_survey(sent).down - of_survey(held).down == pytest.approx(2 * 15_700)
    assert of_survey(sent, 3) == of_survey(held, 3)  # its devices were in session 1


def test_after_a_fresh_start_nobody_holds_what_is_carried_over() -> None:
    events = [
        asking(event) | {"asked": [0, 1, 2], "devices": [0, 1, 2], "mixture": {"carried": 1.0}}
        for event in starts(2)
    ]
    cost = {"broadcasts": 1, "bytes_down": 31_400, "questions": 0}
    events += [counted(event, main=MAIN, survey=cost) for event in events[2:]]
    for fresh, down in ((True, 3 * 31_400), (False, 0)):
        keys = {"pilot.carry_over": not fresh, "wireless.returning": "hold"}
        found = usages(settled(**keys), MODELS["mnist"], rounds(2), events)
        assert of_survey(found, 2).down == down


def test_another_model_size_scales_models_and_not_questions() -> None:
    keys = {"parameters.previous.compression": "bf16", "wireless.parameters": 2 * 7850}
    config = settled(**keys)
    found = usages(config, model_size(config), rounds(), surveyed())
    assert of_survey(found).down == pytest.approx(2 * (2 * 47_100 + 400))


def test_a_session_under_way_is_charged_with_the_last_survey() -> None:
    whole, part = (
        usages(settled(), MODELS["mnist"], rounds(), surveyed(session)) for session in (None, 4)
    )
    assert of_survey(part) == of_survey(whole)
    nothing = [event for event in surveyed() if event["event"] == "start"]
    assert of_survey(usages(settled(), MODELS["mnist"], rounds(), nothing)) == RoundCost()


def test_the_charges_of_a_method_that_asks() -> None:
    config = settled(**{"pilot.carry_over": False})
    for names, pays in ((MIXTURE, False), ({**MIXTURE, "pilot": 0.0}, True)):
        events = surveyed(mixture=names)
        costs = usages(config, MODELS["mnist"], rounds(), events)
        results = reached(config, costs, Target(0.95))
        (theirs,) = (r for r in results if (r.session, r.method) == (4, "previous"))
        assert theirs.survey == of_survey(costs)
        assert (theirs.pilot != RoundCost()) is pays
        rows = {(row["session"], row["method"]): row for row in target_rows(results)}
        row, probing = rows[4, "previous"], rows[4, "warm_start"]
        assert row["training"] == row["probed"]
        added = row["surveyed"]["energy"] - row["probed"]["energy"]
        assert added == pytest.approx(theirs.survey.energy)
        assert probing["probed"] == probing["surveyed"]
        assert (row["all"] != row["surveyed"]) is pays
    (table,) = target_tables(results, Target(0.95))
    assert list(table.columns[2].cells) == [
        *("training", "+ probe", "+ pilot"),
        *("training", "+ survey", "+ pilot"),
    ]
    without, row = usage_rows(costs)
    assert without["survey"]["latency"] == 0
    own = [usage for usage in costs if usage.method == "previous"]
    everything = total([cost for usage in own for cost in (*usage.rounds, usage.survey)])
    assert row["run"]["energy"] == pytest.approx(everything.energy)
    assert row["survey"]["energy"] == pytest.approx(sum(u.survey.energy for u in own) / 4)
    (shown,) = usage_tables(costs)
    assert "of which\nsurvey" in [column.header for column in shown.columns]
    (plain,) = usage_tables(spent(config))
    assert [column.header for column in plain.columns][-2:] == ["of which probe", "the run"]


# --- the model -----------------------------------------------------------------------------------


def test_the_papers_models_are_those_of_its_table() -> None:
    assert model_size(settled(dataset="svhn")) == (667_178, 91.04)
    given = {"wireless.parameters": 10, "wireless.complexity": 3.0}
    assert model_size(settled(dataset="nowhere.npz", **given)) == (10, 3.0)
    assert model_size(settled(**{"wireless.parameters": 10})) == (10, 2.0)


def test_other_models_are_counted() -> None:
    parameters, complexity = model_size(settled(dataset="digits"))
    assert parameters == 650
    assert parameters * complexity == 2 * 640


# --- without a run -------------------------------------------------------------------------------


def test_an_estimate_is_a_mean_over_draws() -> None:
    config = settled()
    task = round_task(config.wireless, MODELS["mnist"])
    found = estimate(config.wireless, task, 5, seed=1, draws=3)
    costs = [
        round_cost(config.wireless, draw_fleet(config.wireless, range(5), 1, 1, t), task)
        for t in (1, 2, 3)
    ]
    assert found.cost.latency == pytest.approx(sum(c.latency for c in costs) / 3)
    assert found.deviation > 0
    assert found.error == pytest.approx(found.deviation / math.sqrt(3))
    assert math.isnan(estimate(config.wireless, task, 5, draws=1).deviation)


@pytest.mark.parametrize("variable", SWEEPS)
@pytest.mark.filterwarnings("ignore:a slot of")
def test_a_sweep_has_every_value_and_method(variable: str, tmp_path: Path) -> None:
    methods = {"warm_start": 1.0, "previous": 5.0, "average": 7.0}
    task = round_task(settled().wireless, MODELS["mnist"])
    points = sweep(settled(), task, variable, methods, devices=4, draws=2)
    assert len(points) == 3 * len(SWEEPS[variable])
    for ours, theirs in zip(points[::3], points[1::3], strict=True):
        assert theirs.cost.latency == pytest.approx(5 * ours.cost.latency)
    if variable != "speed":
        falling = variable == "bandwidth"
        latencies = [p.cost.latency for p in points[::3]]
        assert latencies == sorted(latencies, reverse=falling)
    path = tmp_path / "sweep.png"
    sweep_picture(points, variable, path, "mnist")
    assert struct.unpack(">II", path.read_bytes()[16:24]) == (1500, 1020)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12345, "B", "12.3 kB"),
        (1e13, "B", "10.0 TB"),
        (1e16, "B", "10000 TB"),
        (153.66, "s", "153.7 s"),
        (59.99, "s", "60.0 s"),
        (4.2e-5, "J", "42.0 µJ"),
        (math.inf, "s", "inf s"),
    ],
)
def test_amounts(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text
