"""Forks: all starts from one state, on the same mini-batches, and nobody disturbs the driver."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ebbflow import experiment
from ebbflow.runs.summary import curves
from learned_start.forking import ForkRow, as_json, fork
from learned_start.rules import MAIN_RULES, MALICE_RULES, rule
from tests.learned_start.made import TRANSITIONS, tiny

NAMES = [each.name for each in MAIN_RULES]


@cache
def twice() -> list[ForkRow]:
    """Return the forks of the learned start's history, each trained twice."""
    return fork(tiny(repeats=2))


def curve_of(rows: list[ForkRow], name: str, repeat: int = 0) -> dict[int, tuple[float, ...]]:
    return {row.session: row.accuracy for row in rows if (row.rule, row.repeat) == (name, repeat)}


def test_there_is_a_row_for_every_rule_repeat_and_transition() -> None:
    places = [(row.session, row.repeat, row.rule) for row in twice()]
    assert places == [
        (session, repeat, name) for session in TRANSITIONS for repeat in (0, 1) for name in NAMES
    ]
    assert all(len(row.accuracy) == 2 for row in twice())
    assert all(0 <= value <= 100 for row in twice() for value in row.accuracy)


def test_a_window_is_the_mean_over_its_rounds() -> None:
    assert ForkRow(4, "previous", 0, (50.0, 60.0, 85.0), {}).window == 65.0


def test_a_window_is_no_longer_than_its_session() -> None:
    assert {len(row.accuracy) for row in fork(tiny(rounds=9))} == {3}


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
@pytest.mark.parametrize("driver", ["previous", "average", "warm_start", "learned"])
def test_the_drivers_curve_is_that_of_an_ordinary_run(driver: str, algorithm: str) -> None:
    """Exactly: what other forks do beside it, and how many there are, changes no bit of it."""
    cell = tiny(driver=driver, settings={"algorithm": [algorithm]})
    records = experiment.run(cell.setting.with_settings({"methods": [driver]}).config)
    ordinary = {key.session: tuple(curve[:2]) for key, curve in curves(records.rounds).items()}
    forked = curve_of(fork(cell), driver)
    assert forked == {session: ordinary[session] for session in TRANSITIONS}


def test_sessions_take_place_in_the_order_of_the_cell_and_are_forked_from_one_on() -> None:
    usual = fork(tiny())
    assert fork(replace(tiny(), order=(1, 2, 3, 4, 5))) == usual
    later = fork(replace(tiny(), order=(1, 2, 3, 4, 5), since=5))
    assert later == [row for row in usual if row.session == 5]
    shorter = fork(replace(tiny(), order=(1, 2, 3, 4)))
    assert shorter == [row for row in usual if row.session == 4]
    strange = fork(replace(tiny(), order=(1, 3, 5, 2)))
    assert {row.session for row in strange} == {4}
    # Sessions 2 and 4 are of the same devices: only what is remembered differs.
    assert curve_of(strange, "initial") == curve_of(shorter, "initial")
    assert curve_of(strange, "learned") != curve_of(shorter, "learned")


def test_forks_from_the_initial_model_do_not_depend_on_the_driver() -> None:
    other = fork(tiny(driver="average"))
    assert curve_of(other, "initial") == curve_of(twice(), "initial")
    assert curve_of(other, "previous") != curve_of(twice(), "previous")


def test_rules_do_not_disturb_each_other() -> None:
    fewer = fork(tiny([rule("previous", "previous"), rule("learned")]))
    for name in ("previous", "learned"):
        assert curve_of(fewer, name) == curve_of(twice(), name)


def test_the_first_repeat_has_a_runs_own_mini_batches_and_the_second_has_others() -> None:
    once = fork(tiny())
    assert once == [row for row in twice() if row.repeat == 0]
    changed = [curve_of(twice(), name, 1) != curve_of(twice(), name, 0) for name in NAMES]
    assert any(changed)
    # The start is chosen once for all repeats.
    chosen = {(row.session, row.repeat): row.mixture for row in twice() if row.rule == "learned"}
    assert all(chosen[session, 0] == chosen[session, 1] for session in TRANSITIONS)
    assert chosen[4, 0] != chosen[5, 0]


def test_only_learned_starts_name_a_mixture_and_its_weights_add_up_to_one() -> None:
    for row in twice():
        if row.rule == "learned":
            assert sum(row.mixture.values()) == pytest.approx(1)
            assert "carried" in row.mixture
        else:
            assert row.mixture == {}


def test_the_number_of_workers_changes_nothing() -> None:
    one, two = (tiny(settings={"engine.workers": workers}) for workers in (1, 2))
    assert fork(one) == fork(two) == fork(tiny())
    assert one.digest == two.digest == tiny().digest


def test_devices_that_answer_wrongly_change_only_the_starts_that_ask_them() -> None:
    rows = fork(tiny(MALICE_RULES))
    for name in NAMES:
        assert curve_of(rows, name) == curve_of(twice(), name)
    mixtures = {
        name: [row.mixture for row in rows if row.rule == name]
        for name in ("learned", "random", "adversarial")
    }
    assert mixtures["random"] != mixtures["learned"] != mixtures["adversarial"]


def test_a_digest_is_of_all_that_a_result_depends_on() -> None:
    cell = tiny()
    others = [
        tiny(MALICE_RULES),
        tiny(rounds=3),
        tiny(repeats=2),
        tiny(driver="previous"),
        tiny(settings={"rounds": 4}),
        tiny(settings={"seeds": [8]}),
        tiny(settings={"parameters.warm_start.scale": 3.0}),
        tiny((*MAIN_RULES[:-1], rule("learned", models=4))),
        tiny((*MAIN_RULES[:-1], rule("learned", without="pilot"))),
        replace(cell, order=(1, 3, 5, 2)),
        replace(cell, order=(1, 3, 5, 2, 4)),
        replace(cell, order=(1, 3, 5, 2, 4), since=5),
    ]
    digests = [cell.digest, *(other.digest for other in others)]
    assert len(set(digests)) == len(digests)
    renamed = replace(cell, setting=replace(cell.setting, name="other-s7"))
    assert renamed.digest == cell.digest == tiny().digest


def test_a_digest_knows_from_where_on_sessions_are_forked() -> None:
    assert replace(tiny(), since=5).digest != tiny().digest


def test_rows_are_kept_with_the_digits_that_matter() -> None:
    row = ForkRow(4, "learned", 1, (100 / 3, 50.0), {"carried": 2 / 3, "pilot": 1 / 3})
    assert as_json([row]) == [
        {
            "session": 4,
            "rule": "learned",
            "repeat": 1,
            "accuracy": [33.333, 50.0],
            "mixture": {"carried": 0.6667, "pilot": 0.3333},
            "warned": False,
        }
    ]
