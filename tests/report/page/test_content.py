"""What the page tells: everything, finite, short, and the same as the tables say."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.analysis.metrics import Target, interval, paired_test
from ebbflow.analysis.run_metrics import metrics_of
from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.spending import session_costs, spending
from ebbflow.report.page import content as page_contents
from ebbflow.report.page import device_data, event_data, origin_data, presence_data
from ebbflow.report.page.content import page_content
from ebbflow.report.page.device_data import device_section
from ebbflow.report.page.event_data import event_section
from ebbflow.report.page.origin_data import OTHERS, origin_section
from ebbflow.report.page.overview_data import differing_keys
from ebbflow.report.page.plain import number, text
from ebbflow.report.page.presence_data import ABSENT, SIGNS, presence_facts, ranges
from ebbflow.report.page.score_data import words_on_tests
from tests.configs import with_keys
from tests.report.page.contents import content, leaves, view

RUNS = ("comparison", "two_algorithms", "wards", "lower_is_better", "under_way")


@pytest.mark.parametrize("name", RUNS)
def test_it_is_json_without_what_json_does_not_have(name: str) -> None:
    found = content(name)
    written = json.dumps(found, allow_nan=False)
    assert json.loads(written) == json.loads(json.dumps(found))
    for leaf in leaves(found):
        assert leaf is None or isinstance(leaf, str | bool | int | float)
        assert not isinstance(leaf, float) or math.isfinite(leaf)


@given(st.floats(allow_nan=True, allow_infinity=True), st.integers(2, 8))
def test_a_rounded_number_is_close_to_it_or_none(value: float, digits: int) -> None:
    found = number(value, digits)
    if not math.isfinite(value):
        assert found is None
    else:
        assert found == pytest.approx(value, rel=0.6 * 10.0 ** (1 - digits), abs=1e-300)


@given(st.text(max_size=500))
def test_a_text_is_short_and_on_one_line(written: str) -> None:
    shown = text(written, 60)
    assert len(shown) <= 60
    assert not any(character in shown for character in "\n\r\t\x00\u2028\u202e")


# --- the same as the records, the views and the tables -------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_every_round_is_there_once(name: str) -> None:
    (run,) = content(name)["runs"]
    told = {
        (c["algorithm"], c["method"], c["seed"], c["session"], t): (accuracy, loss)
        for c in run["curves"]
        for t, (accuracy, loss) in enumerate(zip(c["accuracy"], c["loss"], strict=True), start=1)
    }
    own = view(name)
    assert len(told) == len(own.rounds)
    for r in own.rounds:
        accuracy, loss = told[r.algorithm, r.method, r.seed, r.session, r.round]
        assert accuracy == pytest.approx(r.accuracy, rel=1e-4)
        assert loss == pytest.approx(r.loss, rel=1e-5)


def test_scores_pairs_and_gains_are_those_of_the_metrics() -> None:
    own = view("comparison")
    scores = content("comparison")["runs"][0]["scores"]
    metrics = metrics_of(own.config, own.rounds, own.events, [Target(0.95)])
    for window in metrics.windows:
        (row,) = [
            row
            for row in scores["scores"]
            if (row["method"], row["transition"]) == (window.method, window.transition)
            and row["what"] == f"first {window.window} rounds"
        ]
        around = interval(window.accuracies)
        assert [row["mean"], row["low"], row["high"]] == pytest.approx(
            [around.mean, around.low, around.high], rel=1e-4
        )
    overall = {w.method: w.accuracies for w in metrics.windows if w.transition is None}
    pairs = [pair for pair in scores["pairs"] if pair["what"].startswith("first")]
    assert len(pairs) == len(overall) * (len(overall) - 1) // 2
    for pair in pairs:
        ours, theirs = overall[pair["better"]], overall[pair["other"]]
        test = paired_test(ours, theirs)
        assert pair["wins"] == test.wins
        assert pair["p"] == pytest.approx(test.p, rel=1e-2)
        apart = statistics.fmean(a - b for a, b in zip(ours, theirs, strict=True))
        assert pair["difference"] == pytest.approx(apart, rel=1e-3)
        assert apart >= 0
    for gain in metrics.gains:
        (told,) = [
            row
            for row in scores["gains"]
            if (row["method"], row["transition"]) == (gain.method, gain.transition)
        ]
        assert told["mean"] == pytest.approx(statistics.fmean(gain.gains), rel=1e-3)


def test_the_last_round_and_all_labels_are_those_of_the_records() -> None:
    own = view("comparison")
    scores = content("comparison")["runs"][0]["scores"]
    for row in scores["scores"]:
        if row["session"] is None or row["what"].startswith("first"):
            continue
        for seed, value in zip(scores["seeds"]["fedavg"], row["values"], strict=True):
            if row["what"] == "last round":
                there = [
                    r
                    for r in own.rounds
                    if (r.method, r.seed, r.session) == (row["method"], seed, row["session"])
                ]
                expected = max(there, key=lambda r: r.round).accuracy
            else:
                (expected,) = [
                    e["all"]
                    for e in own.events
                    if e["event"] == "tested"
                    and (e["method"], e["seed"], e["session"])
                    == (row["method"], seed, row["session"])
                ]
            assert value == pytest.approx(expected, rel=1e-4)


def test_less_is_better_where_it_is() -> None:
    (run,) = content("lower_is_better")["runs"]
    assert not run["judge"]["higher"]
    means = {
        row["method"]: row["mean"]
        for row in run["scores"]["scores"]
        if row["what"].startswith("first") and row["session"] is None
    }
    assert run["verdicts"][0]["winner"] == min(means, key=lambda method: means[method] or 0)
    kinds = {row["what"] for row in run["scores"]["scores"]}
    assert "all test samples" in kinds and "all labels" not in kinds


def test_costs_add_up_to_those_of_the_view() -> None:
    own = view("comparison")
    rows = content("comparison")["runs"][0]["costs"]["sessions"]
    for cost in session_costs(spending(own).usages):
        mine = [
            row[cost.part]  # type: ignore[literal-required]
            for row in rows
            if (row["algorithm"], row["method"], row["session"])
            == (cost.algorithm, cost.method, cost.session)
        ]
        means = [statistics.fmean(column) for column in zip(*mine, strict=True)]
        assert means == pytest.approx(
            [cost.seconds, cost.joules, cost.bytes_down, cost.bytes_up], rel=2e-3
        )


def test_what_is_not_known_of_costs_has_a_reason() -> None:
    config = view("comparison").config.model_copy(update={"dataset": "nowhere.npz"})
    unknown = replace(view("comparison"), config=config)
    costs = page_content([unknown])["runs"][0]["costs"]
    assert costs["sessions"] == [] and "wireless.parameters" in costs["reason"]


def test_costs_of_a_long_run_wait_until_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_contents, "MOST_UNFINISHED", 10)
    costs = page_content([view("under_way")])["runs"][0]["costs"]
    assert costs["sessions"] == [] and "computed when it is finished" in costs["reason"]
    assert page_content([view("comparison")])["runs"][0]["costs"]["sessions"]


def test_visits_are_as_the_events_say() -> None:
    own = view("wards")
    (facts,) = presence_facts(own)
    back = {sign: word for word, sign in SIGNS.items()}
    for n, name in enumerate(facts["names"]):
        for row, sign in zip(facts["sessions"], facts["visits"][n], strict=True):
            (here,) = {
                tuple(e["devices"])
                for e in own.events
                if e["event"] == "start" and e["session"] == row["session"]
            }
            there = name in {text(own.device_name(1, device)) for device in here}
            assert there == (sign != ABSENT) == (sign in back)


def test_a_run_without_a_round_and_one_without_anything() -> None:
    own = view("comparison")
    begun = [e for e in own.events if e["event"] == "start" and e["session"] == 1]
    for events in (begun, []):
        empty = replace(own, rounds=[], events=events, finished=False)
        (run,) = page_content([empty])["runs"]
        assert run["verdicts"] == [] and run["algorithms"] == []
        assert run["nothing_yet"].startswith("No transition is over yet")
        assert run["planned"]["methods"] == own.config.methods
        assert run["costs"]["reason"] == "no round is finished yet"


# --- many ----------------------------------------------------------------------------------------


def test_of_many_devices_some_rows_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_data, "MOST_DEVICES", 3)
    (facts,) = presence_facts(view("wards"))
    assert facts["devices"] == 8 and facts["every"] == 3
    assert len(facts["names"]) == len(facts["visits"]) == len(facts["samples"]) == 3
    assert facts["sessions"][0]["devices"] == 4  # counts are of all


def test_of_many_parts_of_a_start_the_rest_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_data, "MOST_PARTS", 2)
    for start in origin_section(view("comparison"))["starts"]:
        assert len(start["parts"]) <= 3
        weights = [weight for weight in start["parts"].values() if weight is not None]
        assert math.fsum(weights) == pytest.approx(1, abs=5e-3 * max(1, *map(abs, weights)))
        if OTHERS in start["parts"]:
            assert len(start["parts"]) == 3


def test_of_many_scores_quantiles_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    own = view("wards")
    whole = device_section(own)["distributions"]
    monkeypatch.setattr(device_data, "MOST_OF_ONE", 3)
    monkeypatch.setattr(device_data, "FEWEST_OF_ONE", 3)
    monkeypatch.setattr(device_data, "MOST_ROWS", 5)
    some = device_section(own)
    for before, after in zip(whole, some["distributions"], strict=True):
        assert after["devices"] == before["devices"]
        values = [value or 0.0 for value in before["values"]]
        assert after["values"] == pytest.approx(np.quantile(values, [0, 0.5, 1]), rel=1e-3)
    (table,) = some["tables"]
    assert (len(table["rows"]), table["left_out"]) == (5, 3)
    everyone = device_section(own)["tables"][0]["rows"]
    assert {row["name"] for row in table["rows"]} == {row["name"] for row in everyone}


def with_events(*events: dict[str, Any]) -> RunView:
    return replace(view("comparison"), events=[*view("comparison").events, *events])


def lost(method: str, seed: int, number: int, devices: list[int]) -> dict[str, Any]:
    about = {"algorithm": "fedavg", "method": method, "seed": seed, "session": 4}
    reasons = ["lost"] * len(devices)
    return {
        **about,
        "event": "left_out",
        "round": number,
        "devices": devices,
        "reasons": reasons,
        "abandoned": False,
    }


def test_what_happened_to_all_methods_and_seeds_is_told_once() -> None:
    methods = view("comparison").config.methods
    events = [lost(m, s, t, [1]) for m in methods for s in (1, 2) for t in (1, 2)]
    (row,) = event_section(with_events(*events))["rows"]
    assert row["where"] == "all methods, all seeds, session 4"
    assert row["text"] == "2 updates left out in 2 rounds: lost (2). Devices: 1 (2×)."
    apart = [{"event": "warning", "session": s, "text": "odd"} for s in (2, 3, 4, 7)]
    assert event_section(with_events(*apart))["rows"][0]["where"] == "sessions 2–4, 7"
    events[0]["devices"] = [2]
    rows = event_section(with_events(*events))["rows"]
    assert {row["where"] for row in rows} == {
        "learned, seed 1, session 4",
        "warm_start, previous, average, seed 1, session 4",
        "all methods, seed 2, session 4",
    }


def test_the_worst_comes_first_and_not_everything_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = {**lost("previous", 1, 2, []), "event": "ended", "text": "diverged"}
    notes = [{"event": "note", "seed": 1, "session": 1, "text": f"note {n}"} for n in range(9)]
    warning = {"event": "warning", "text": "odd"}
    monkeypatch.setattr(event_data, "MOST_ROWS", 4)
    found = event_section(with_events(*notes, *notes, warning, ended))
    assert [row["kind"] for row in found["rows"]] == ["ended", "warning", "note", "note"]
    assert found["left_out"] == 7


# --- several runs --------------------------------------------------------------------------------


def test_an_overview_tells_what_differs_and_who_won() -> None:
    found = content("comparison", "two_algorithms")
    assert found["title"] == "2 runs"
    assert found["overview"] is not None
    assert {"algorithm", "seeds", "partition.alpha"} <= set(found["overview"]["keys"])
    assert "engine.workers" not in found["overview"]["keys"]
    algorithms = [(row["run"], row["algorithm"]) for row in found["overview"]["rows"]]
    assert algorithms == [(0, "fedavg"), (1, "fedavg"), (1, "fedprox")]
    for row in found["overview"]["rows"]:
        verdicts = found["runs"][row["run"]]["verdicts"]
        (own,) = [verdict for verdict in verdicts if verdict["algorithm"] == row["algorithm"]]
        assert (row["winner"], row["lead"]) == (own["winner"], own["lead"])
        assert row["winner"] == max(row["scores"], key=lambda method: row["scores"][method] or 0)
    assert content("comparison")["overview"] is None


def test_a_method_looks_the_same_in_all_runs() -> None:
    looks = content("two_algorithms", "comparison")["looks"]
    assert list(looks)[:2] == ["learned", "previous"]
    assert len({tuple(look.values()) for look in looks.values()}) == len(looks)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1)), min_size=1))
def test_keys_differ_if_two_configurations_differ_in_them(settings: list[dict[str, int]]) -> None:
    found = differing_keys(settings)
    for key in "abc":
        values = {own.get(key) for own in settings}
        assert (key in found) == (len(values) > 1)


# --- words ---------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 40)))
def test_short_lists_of_labels_name_every_label(labels: set[int]) -> None:
    named: list[int] = []
    for part in filter(None, ranges(sorted(labels)).split(", ")):
        first, _, last = part.partition("–")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(labels)


@pytest.mark.parametrize("seeds", range(2, 12))
def test_what_a_test_can_show_follows_from_the_seeds(seeds: int) -> None:
    sentence = words_on_tests(seeds)
    least = paired_test([1.0] * seeds, [0.0] * seeds).least
    assert f"smallest p-value possible is {least:.2g}" in sentence
    assert ("cannot" in sentence or "no difference can be told" in sentence) == (least > 0.05)


def test_settings_that_differ_are_told_with_their_defaults() -> None:
    own = replace(view("comparison"), config=with_keys({"local.batch": 7, "seeds": [4]}))
    changed = page_content([replace(own, rounds=[], events=[])])["runs"][0]["settings"]["changed"]
    told = {row["key"]: (row["value"], row["default"]) for row in changed}
    assert told["local.batch"] == ("7", "16")
    assert told["seeds"][0] == "[4]"
    assert "local.momentum" not in told and "model.kind" in told
