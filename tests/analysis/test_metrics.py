"""Windows, times to accuracy, gains and what seeds say about them, by hand."""

from __future__ import annotations

import doctest
import itertools
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ebbflow.analysis.metrics import (
    Interval,
    Of,
    Target,
    accumulated_gain,
    compared,
    interval,
    mean_and_deviation,
    paired_test,
    parse_of,
    parse_target,
    speed_up,
    time_to_accuracy,
    typical_ratio,
)
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import Round
from ebbflow.runs.summary import curves, summary_rows, transition, window_accuracy

OFS: tuple[Of, ...] = ("peak", "final")

SETTING = {"dataset": "digits", "partition": "dirichlet", "overlap": 0.0, "alpha": 0.3}


def played(session: int, t: int, accuracy: float, method: str = "average", seed: int = 1) -> Round:
    return Round("fedavg", method, seed, session, t, accuracy, 0.5, 0.01, 4, 4)


@pytest.mark.parametrize(
    ("pilot", "sessions", "numbers"),
    [
        (1, 7, [None, None, None, 1, 2, 3, 4]),
        (3, 9, [None, None, None, None, None, 1, 2, 3, 4]),
        (1, 3, [None, None, None]),
    ],
)
def test_a_transition_is_counted_from_the_first_choice(
    pilot: int, sessions: int, numbers: list[int | None]
) -> None:
    assert [transition(s, pilot) for s in range(1, sessions + 1)] == numbers


@pytest.mark.parametrize(
    ("window", "mean"), [(1, 10.0), (2, 20.0), (3, 40.0), (4, 50.0), (5, 50.0), (100, 50.0)]
)
def test_a_window_is_the_mean_of_the_first_rounds(window: int, mean: float) -> None:
    assert window_accuracy([10.0, 30.0, 80.0, 80.0], window) == mean


def test_rows_have_exactly_these_keys() -> None:
    (row,) = summary_rows([played(4, 1, 12.5)], windows=[10], pilot=1, setting=SETTING)
    assert list(row) == [
        "dataset",
        "partition",
        "overlap",
        "alpha",
        "algorithm",
        "method",
        "seed",
        "session",
        "transition",
        "window",
        "accuracy",
        "final",
    ]
    assert list(row.values())[4:] == ["fedavg", "average", 1, 4, 1, 10, 12.5, 12.5]


def test_there_is_a_row_for_every_method_seed_session_and_window() -> None:
    cells = list(itertools.product(("average", "previous"), (1, 2), (1, 2, 3, 4)))
    rounds = [
        played(session, t, 10.0 * session + t + 100 * seed, method, seed)
        for method, seed, session in cells
        for t in (1, 2)
    ]
    rows = summary_rows(rounds, windows=[1, 2], pilot=1, setting=SETTING)
    assert len(rows) == 2 * len(cells)
    found = {(r["method"], r["seed"], r["session"], r["window"]): r["accuracy"] for r in rows}
    for method, seed, session in cells:
        assert found[method, seed, session, 1] == 10 * session + 1 + 100 * seed
        assert found[method, seed, session, 2] == 10 * session + 1.5 + 100 * seed


def test_the_order_in_which_methods_ran_does_not_show() -> None:
    blocks = [
        [played(s, t, float(t), m) for t in (1, 2)] for s in (1, 2) for m in ("previous", "average")
    ]
    shuffled = random.Random(3).sample(blocks, len(blocks))
    first, second = (
        summary_rows(itertools.chain(*order), windows=[1], pilot=1, setting=SETTING)
        for order in (blocks, shuffled)
    )
    assert first == second


def test_without_rounds_there_are_no_rows() -> None:
    assert summary_rows([], windows=[10], pilot=1, setting=SETTING) == []


def test_deviation_is_of_a_sample() -> None:
    mean, deviation = mean_and_deviation([1.0, 2.0, 6.0])
    assert mean == 3.0
    assert deviation == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert math.isnan(mean_and_deviation([5.0])[1])


# --- time to accuracy, speed-up, gain ------------------------------------------------------------

percent = st.floats(0, 100)
curve = st.lists(percent, min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("level", "rounds"), [(0.0, 1), (50.0, 1), (50.1, 3), (90.0, 3), (90.1, math.inf)]
)
def test_time_to_accuracy_is_the_first_round_that_is_good_enough(
    level: float, rounds: float
) -> None:
    # The dip does not undo it, and the last round comes too late.
    assert time_to_accuracy([50.0, 20.0, 90.0, 60.0, 90.0], level) == rounds


def test_time_to_accuracy_of_an_exponential_recovery_is_its_closed_form() -> None:
    # a(t) = 80 (1 - e^(-t/tau)) reaches rho 80 at t = ceil(-tau ln(1 - rho)).
    for tau, rho in itertools.product((0.7, 3.0, 11.0), (0.5, 0.9, 0.95)):
        recovery = [80 * (1 - math.exp(-t / tau)) for t in range(1, 101)]
        assert time_to_accuracy(recovery, 80 * rho) == math.ceil(-tau * math.log(1 - rho))


def test_probe_rounds_come_on_top_and_do_not_help_who_never_gets_there() -> None:
    assert time_to_accuracy([10.0, 20.0], 20.0, before=3) == 5
    assert time_to_accuracy([10.0, 20.0], 30.0, before=3) == math.inf


def test_a_share_is_of_the_peak_as_the_paper_defines_it_or_of_the_last_round() -> None:
    reference = [40.0, 80.0, 60.0]
    assert Target(0.97).level(reference) == pytest.approx(77.6)
    assert Target(0.97, "final").level(reference) == pytest.approx(58.2)
    assert Target(70.0, None).level(reference) == 70.0
    assert [str(Target(0.95)), str(Target(0.95, "final")), str(Target(90, None))] == [
        "95 % of peak",
        "95 % of final",
        "90 %",
    ]


@given(curve, percent, percent)
def test_a_higher_target_is_never_reached_sooner(a: list[float], x: float, y: float) -> None:
    low, high = sorted((x, y))
    assert time_to_accuracy(a, low) <= time_to_accuracy(a, high)


@given(curve, curve, st.floats(0.01, 1), st.floats(0.01, 1))
def test_time_to_accuracy_is_monotone_in_rho(
    a: list[float], reference: list[float], x: float, y: float
) -> None:
    low, high = sorted((x, y))
    for of in OFS:
        levels = [Target(rho, of).level(reference) for rho in (low, high)]
        assert time_to_accuracy(a, levels[0]) <= time_to_accuracy(a, levels[1])


@given(curve)
def test_whoever_sets_the_target_reaches_it(a: list[float]) -> None:
    assert time_to_accuracy(a, Target(1.0).level(a)) == 1 + a.index(max(a))
    assert time_to_accuracy(a, Target(1.0, "final").level(a)) <= len(a)


times = st.one_of(st.integers(1, 200).map(float), st.just(math.inf))


@given(times, times)
def test_a_speed_up_is_the_reciprocal_of_the_other_way_round(a: float, b: float) -> None:
    one, other = speed_up(a, b), speed_up(b, a)
    if math.isinf(a) and math.isinf(b):
        assert math.isnan(one)
        assert math.isnan(other)
    elif math.isinf(one) or math.isinf(other):
        assert {one, other} == {0.0, math.inf}
    else:
        assert one * other == pytest.approx(1)


@given(st.lists(st.tuples(times, times).filter(lambda p: p != (math.inf, math.inf)), min_size=1))
def test_so_is_that_of_several_seeds(pairs: list[tuple[float, float]]) -> None:
    one = typical_ratio([speed_up(a, b) for a, b in pairs])
    other = typical_ratio([speed_up(b, a) for a, b in pairs])
    if math.isnan(one):
        assert math.isnan(other)
    elif one in (0.0, math.inf):
        assert {one, other} == {0.0, math.inf}
    else:
        assert one * other == pytest.approx(1)


def test_a_gain_is_a_sum_of_points_and_grows_with_the_session() -> None:
    assert accumulated_gain([60.0, 70.0, 80.0], [50.0, 75.0, 80.0]) == 5.0
    for rounds in (1, 10, 200):
        assert accumulated_gain([80.0] * rounds, [78.5] * rounds) == 1.5 * rounds


@given(st.lists(st.tuples(percent, percent), min_size=1))
def test_a_gain_is_antisymmetric(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    assert accumulated_gain(ours, theirs) == -accumulated_gain(theirs, ours)
    assert accumulated_gain(ours, ours) == 0


@given(st.lists(st.tuples(percent, percent, percent), min_size=1))
def test_gains_add_up(triples: list[tuple[float, float, float]]) -> None:
    a, b, c = ([triple[i] for triple in triples] for i in range(3))
    both = accumulated_gain(a, b) + accumulated_gain(b, c)
    assert both == pytest.approx(accumulated_gain(a, c), abs=1e-9)


def test_a_gain_needs_sessions_of_one_length() -> None:
    with pytest.raises(ValueError, match="curves of 2 and 1 rounds"):
        accumulated_gain([1.0, 2.0], [1.0])


@pytest.mark.parametrize("text", ["", "abc", "0", "-1", "100.5", "nan", "inf"])
def test_a_target_that_is_no_accuracy_is_refused(text: str) -> None:
    with pytest.raises(EbbflowError, match=re.escape(f"--target {text!r}")):
        parse_target(text)


def test_targets_up_to_one_are_shares() -> None:
    assert parse_target("1", "final") == Target(1.0, "final")
    assert parse_target("1.01") == Target(1.01, None)
    with pytest.raises(EbbflowError, match="--of 'mean'"):
        parse_of("mean")
    assert [parse_of(of) for of in OFS] == list(OFS)


# --- over seeds ----------------------------------------------------------------------------------


def test_an_interval_of_three_seeds_is_from_the_least_to_the_largest() -> None:
    # One resample in 27 consists of the least alone: more than the 2.5 % that lie outside.
    found = interval([3.0, 1.0, 8.0])
    assert (found.n, found.mean, found.low, found.high) == (3, 4.0, 1.0, 8.0)
    assert found.deviation == pytest.approx(math.sqrt(13))


def test_one_value_has_no_interval_and_equal_ones_an_empty_one() -> None:
    assert str(interval([5.0])) == str(Interval(1, 5.0, math.nan, math.nan, math.nan))
    assert interval([5.0] * 4) == (4, 5.0, 0.0, 5.0, 5.0)


def test_an_infinite_value_makes_the_mean_infinite() -> None:
    found = interval([1.0, math.inf])
    assert found.mean == math.inf
    assert math.isnan(found.deviation)
    assert math.isnan(found.low)


def test_the_interval_covers_the_truth_about_as_often_as_it_should() -> None:
    draw = np.random.default_rng(5)
    for n, least, most in ((3, 0.65, 0.85), (20, 0.85, 0.99)):
        hits = 0
        for _ in range(100):
            found = interval(draw.normal(10.0, 2.0, n).tolist())
            hits += found.low <= 10.0 <= found.high
        assert least <= hits / 100 <= most, n


@given(st.lists(percent, min_size=2, max_size=6))
@settings(max_examples=20)
def test_an_interval_lies_within_the_values_and_around_the_mean(values: list[float]) -> None:
    found = interval(values)
    slack = 1e-9
    assert min(values) - slack <= found.low <= found.mean + slack
    assert found.mean - slack <= found.high <= max(values) + slack


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_seeds_that_all_agree_give_the_least_p_that_they_can(n: int) -> None:
    ours = [10.0 + seed for seed in range(n)]
    found = paired_test(ours, [1.0] * n)
    assert (found.n, found.wins) == (n, n)
    assert found.p == pytest.approx(found.least)
    assert found.least == 2 / 2**n
    assert found.least > 0.05 or n > 5  # three seeds prove nothing


def test_a_paired_test_by_hand() -> None:
    # Differences 3, -1, 2: of the eight signs four give a mean at least as far from zero.
    found = paired_test([3.0, 0.0, 2.0], [0.0, 1.0, 0.0])
    assert (found.wins, found.p) == (2, 0.5)
    assert found.t == pytest.approx(float(stats.ttest_rel([3, 0, 2], [0, 1, 0]).pvalue))


@given(st.lists(st.tuples(percent, percent), min_size=2, max_size=6))
@settings(max_examples=20)
def test_a_paired_test_does_not_care_whose_turn_it_is(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = paired_test(ours, theirs), paired_test(theirs, ours)
    assert one.p == pytest.approx(other.p)
    assert one.least <= one.p + 1e-12
    assert one.wins + other.wins <= len(pairs)


def test_many_seeds_are_drawn_rather_than_counted() -> None:
    draw = np.random.default_rng(1)
    found = paired_test((draw.normal(3.0, 1.0, 30)).tolist(), [0.0] * 30)
    assert found.p < 0.001
    assert found.t < 0.001


def test_what_cannot_be_tested_is_not() -> None:
    assert math.isnan(paired_test([1.0], [0.0]).p)
    assert math.isnan(paired_test([1.0, math.inf], [0.0, 0.0]).p)
    same = paired_test([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert same.p == 0.25
    assert math.isnan(same.t)
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_test([1.0], [])


# --- a whole run ---------------------------------------------------------------------------------


def start(method: str, seed: int, session: int, probe: int = 0) -> dict[str, Any]:
    about = {"algorithm": "fedavg", "method": method, "seed": seed, "session": session}
    return {"event": "start", **about, "rounds": 3, "probe_rounds": probe}


def made_up() -> tuple[list[Round], list[dict[str, Any]]]:
    """Two seeds, sessions 3 to 5 with P = 1: warm_start is there at once, previous is not."""
    rounds, events = [], []
    for seed, session in itertools.product((1, 2), (3, 4, 5)):
        fast, slow = [80.0, 90.0, 100.0], [10.0 * session + seed, 90.0, 96.0]
        for method, accuracies in (("warm_start", fast), ("previous", slow)):
            events.append(start(method, seed, session, 2 if method == "warm_start" else 0))
            rounds += [played(session, t, a, method, seed) for t, a in enumerate(accuracies, 1)]
    return rounds, events


METHODS = ("warm_start", "previous")


def test_a_run_is_compared_transition_by_transition_and_over_all() -> None:
    found = compared(*made_up(), pilot=1, methods=METHODS, reference="warm_start")
    assert found.sessions("fedavg") == [4, 5]
    speeds = {(s.method, s.transition): s for s in found.speeds([Target(0.9)])}
    assert set(speeds) == set(itertools.product(METHODS, (1, 2, None)))
    assert speeds["previous", 1].levels == [90.0, 90.0]
    assert speeds["warm_start", 1].rounds == [2.0, 2.0]
    assert speeds["warm_start", 1].with_probe == [4.0, 4.0]
    assert speeds["previous", 1].with_probe == [2.0, 2.0]
    assert speeds["previous", 1].speed_ups == [1.0, 1.0]
    assert speeds["previous", 1].speed_ups_with_probe == [0.5, 0.5]
    assert speeds["previous", None].rounds == [2.0, 2.0]
    (missed,) = [s for s in found.speeds([Target(0.97)]) if s[1:3] == ("previous", 2)]
    assert missed.rounds == [math.inf] * 2 == missed.speed_ups
    gains = {g.transition: g for g in found.gains()}
    assert gains[1].gains == [80 - 41 + 4.0, 80 - 42 + 4.0]
    assert gains[1].per_round == [43 / 3, 42 / 3]
    assert gains[None].gains == [38.0, 37.0]
    windows = {(w.method, w.transition): w.accuracies for w in found.windows([2])}
    assert windows["previous", 1] == [65.5, 66.0]
    assert windows["warm_start", None] == [85.0, 85.0]


def test_a_survey_is_charged_with_the_part_of_a_round_that_it_moves() -> None:
    # A round moves 10 x 40 bytes up and, a copy for each, as many down: 800. The survey moves 8 up
    # and 2 x 120 down: 0.31 of that.
    rounds, events = made_up()
    stages = {
        "survey": {"broadcasts": 6, "bytes_up": 8, "bytes_down": 120},
        "main": {"uploads": 30, "broadcasts": 3, "bytes_up": 1200, "bytes_down": 120},
    }
    asked = []
    for event in events:
        if event["method"] == "previous":
            asked += [{**event, "asked": [3, 8]}, {**event, "event": "costs", "stages": stages}]
        else:
            asked.append(event)
    found = compared(rounds, asked, pilot=1, methods=METHODS, reference="warm_start")
    speeds = {(s.method, s.transition): s for s in found.speeds([Target(0.9)])}
    assert speeds["previous", 1].rounds == [2.0, 2.0]
    assert speeds["previous", 1].with_probe == pytest.approx([2.31, 2.31])
    assert speeds["previous", 1].speed_ups_with_probe == pytest.approx([2.31 / 4] * 2)
    assert speeds["warm_start", 1].with_probe == [4.0, 4.0]
    # Costs of sessions without a survey change nothing.
    plain = [{**event, "asked": []} for event in asked]
    before = compared(rounds, events, pilot=1, methods=METHODS, reference="warm_start")
    assert compared(rounds, plain, pilot=1, methods=METHODS, reference="warm_start") == before


def test_another_reference_turns_the_gains_around() -> None:
    one, other = (
        compared(*made_up(), pilot=1, methods=METHODS, reference=reference) for reference in METHODS
    )
    assert [g.gains for g in one.gains()] == [[-x for x in g.gains] for g in other.gains()]
    with pytest.raises(EbbflowError, match="'average' is not a method of this run: choose one of"):
        compared(*made_up(), pilot=1, methods=METHODS, reference="average")


def test_a_session_under_way_does_not_count() -> None:
    rounds, events = made_up()
    cut = [r for r in rounds if (r.seed, r.session, r.round) != (2, 5, 3)]
    found = compared(cut, events, pilot=1, methods=METHODS, reference="warm_start")
    assert found.sessions("fedavg") == [4]
    assert {speed.session for speed in found.speeds([Target(0.9)])} == {4, None}


def test_before_the_first_transition_there_is_nothing_to_compare() -> None:
    rounds, events = made_up()
    found = compared(rounds, events, pilot=3, methods=METHODS, reference="warm_start")
    assert (found.speeds([Target(0.9)]), found.gains(), found.windows([1])) == ([], [], [])


def test_rounds_may_come_in_any_order() -> None:
    rounds, _ = made_up()
    assert curves(rounds) == curves(random.Random(1).sample(rounds, len(rounds)))


def test_the_examples_in_the_document_are_so() -> None:
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert (failed, tried > 10) == (0, True)
