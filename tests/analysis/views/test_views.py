"""A run as it is shown: what the views say must be what the records say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ebbflow
from ebbflow.analysis.metrics import Target
from ebbflow.analysis.run_metrics import metrics_of
from ebbflow.analysis.views.origins import origins
from ebbflow.analysis.views.presence import presence
from ebbflow.analysis.views.run_view import RunView, check_rounds, load_view, view_of
from ebbflow.analysis.views.signature_map import in_plane, signature_maps
from ebbflow.analysis.views.spending import mean_session, session_costs, spending
from ebbflow.analysis.views.stretches import spans, stretches, undecided
from ebbflow.analysis.views.verdict import StartVerdict, nothing_yet, verdicts
from ebbflow.config.merge import Layers
from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import Round, RunRecords

SMALL: dict[str, Any] = {"sessions": 5, "rounds": 3, "devices": 4, "seeds": [1, 2]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("views") / "small"
    ebbflow.compare("digits", out=out, **SMALL)
    return out


@pytest.fixture(scope="module")
def view(folder: Path) -> RunView:
    return load_view(folder)


def test_a_view_has_everything_of_the_run(view: RunView, folder: Path) -> None:
    assert (view.name, view.folder, view.finished) == ("small", folder, True)
    assert view.methods == ("learned", "warm_start", "previous", "average")
    assert (view.algorithms, view.seeds) == (("fedavg",), (1, 2))
    assert len(view.rounds) == 4 * 2 * 5 * 3
    assert view.environment["dataset"]["name"] == "digits"
    assert view.label_name(3) == "3"


def test_records_in_memory_give_the_same_view_but_for_the_folder(view: RunView) -> None:
    outcome = ebbflow.compare("digits", **SMALL)
    plain = RunRecords(outcome.config, outcome.rounds, outcome.rows, outcome.events)
    other = view_of(plain)
    assert (other.name, other.folder, other.environment) == ("digits", None, {})
    assert list(other.rounds) == list(view.rounds)
    assert origins(other) == origins(view)
    assert other.config == view.config


def test_a_view_without_rounds_is_told(view: RunView) -> None:
    with pytest.raises(EbbflowError, match="holds no rounds yet"):
        check_rounds(RunView("empty", view.config, [], []))


# --- stretches -----------------------------------------------------------------------------------


def test_sessions_lie_side_by_side(view: RunView) -> None:
    assert [(s.session, s.before, s.rounds) for s in spans(view)] == [
        (s, 3 * (s - 1), 3) for s in range(1, 6)
    ]
    assert [s.transition for s in spans(view)] == [None, None, None, 1, 2]


def test_stretches_hold_every_round_once_and_cross_no_border(view: RunView) -> None:
    apart = stretches(view, "fedavg", together=False)
    assert len(apart) == 4 * 5
    for stretch in apart:
        for seed, curve in zip(stretch.seeds, stretch.curves, strict=True):
            assert list(curve) == [
                r.accuracy
                for r in view.rounds
                if (r.method, r.seed, r.session) == (stretch.methods[0], seed, stretch.session)
            ]


def test_methods_that_coincide_are_one_stretch(view: RunView) -> None:
    found = stretches(view, "fedavg")
    assert [s.methods for s in found if s.session == 1] == [view.methods]
    assert undecided(view, "fedavg") == [1]
    for session in range(1, 6):
        own = [method for s in found if s.session == session for method in s.methods]
        assert sorted(own) == sorted(view.methods)


def test_points_are_means_and_bounds_over_seeds(view: RunView) -> None:
    stretch = next(s for s in stretches(view, "fedavg") if s.methods == ("previous",))
    points = list(stretch.points())
    assert [t for t, *_ in points] == [0, 1, 2, 3]
    for t, mean, low, high in points[1:]:
        values = [curve[t - 1] for curve in stretch.curves]
        assert (mean, low, high) == (sum(values) / 2, min(values), max(values))


def made(accuracies: dict[str, list[float]], losses: dict[str, list[float]]) -> RunView:
    """Return a view of one session under one seed."""
    rounds = [
        Round("fedavg", method, 1, 1, t, accuracy, loss, 0.1, 4, 4)
        for method, curve in accuracies.items()
        for t, (accuracy, loss) in enumerate(zip(curve, losses[method], strict=True), start=1)
    ]
    layers = Layers()
    layers.add({"methods": list(accuracies), "seeds": [1]}, "test")
    return RunView("made", layers.config(), rounds, [])


def test_equal_accuracies_alone_do_not_make_methods_coincide() -> None:
    same = {"previous": [100.0, 100.0], "average": [100.0, 100.0]}
    alike = made(same, {"previous": [0.2, 0.1], "average": [0.2, 0.1]})
    assert undecided(alike, "fedavg") == [1]
    apart = made(same, {"previous": [0.2, 0.1], "average": [0.3, 0.1]})
    assert undecided(apart, "fedavg") == []


def test_a_method_alone_always_had_its_choice() -> None:
    assert undecided(made({"previous": [1.0]}, {"previous": [1.0]}), "fedavg") == []


def test_a_start_that_was_not_recorded_is_left_out() -> None:
    (stretch,) = stretches(made({"previous": [50.0]}, {"previous": [1.0]}), "fedavg")
    assert math.isnan(stretch.starts[0])
    assert [point[0] for point in stretch.points()] == [1]


# --- presence ------------------------------------------------------------------------------------


def test_presence_adds_up(view: RunView) -> None:
    there = presence(view, 1)
    before = 0
    for facts in there.sessions:
        here = [visits[facts.session] for visits in there.visits if facts.session in visits]
        assert len(here) == facts.devices
        assert (here.count("joined"), here.count("returned")) == (facts.joined, facts.returned)
        stayed = here.count("stayed")
        assert facts.left == before - stayed
        before = facts.devices
    assert sum(facts.joined for facts in there.sessions) == len(there.devices)


def test_groups_that_take_turns_return(view: RunView) -> None:
    first = presence(view, 1).visits[0]
    assert first == {1: "joined", 3: "returned", 5: "returned"}


# --- origins and maps ----------------------------------------------------------------------------


def test_weights_of_an_average_are_all_there_is(view: RunView) -> None:
    own = {o.key.session: o.parts for o in origins(view) if o.key[:3] == ("fedavg", "average", 1)}
    assert own[1] == {"initial": 1.0}
    assert own[4] == {"final 2": 0.5, "final 3": 0.5}
    assert {o.parts["carried"] for o in origins(view) if o.key[1:] == ("previous", 1, 4)} == {1.0}


def test_mixtures_are_told_as_they_were_recorded(view: RunView) -> None:
    for origin in origins(view):
        event = view.starts[origin.key]
        if event.get("mixture"):
            assert origin.parts == event["mixture"]


def test_sessions_of_the_same_group_lie_close_together(view: RunView) -> None:
    for found in signature_maps(view):
        assert (found.method, found.sessions) == ("warm_start", (2, 3, 4, 5))
        apart = np.hypot(*(found.places[:, None] - found.places[None]).transpose(2, 0, 1))
        assert apart[0, 2] < apart[0, 1]
        assert apart[1, 3] < apart[1, 2]
        assert found.stress < 0.2


@given(
    st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=3, max_size=8, unique=True)
)
def test_points_of_a_plane_are_found_again(points: list[tuple[float, float]]) -> None:
    given_points = np.array(points)
    distances = np.hypot(*(given_points[:, None] - given_points[None]).transpose(2, 0, 1))
    places, stress = in_plane(distances)
    drawn = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    np.testing.assert_allclose(drawn, distances, atol=1e-6 * max(1.0, distances.max()))
    assert stress < 1e-5


def test_pairs_that_were_not_compared_lie_no_farther_than_a_detour() -> None:
    distances = np.array([[0.0, 1.0, np.nan], [1.0, 0.0, 1.0], [np.nan, 1.0, 0.0]])
    places, stress = in_plane(distances)
    assert np.hypot(*(places[0] - places[2])) == pytest.approx(2.0)
    assert stress == pytest.approx(0.0, abs=1e-9)


def test_sessions_that_are_all_alike_are_one_point() -> None:
    places, stress = in_plane(np.zeros((3, 3)))
    assert not places.any()
    assert stress == 0.0


# --- costs and the verdict -----------------------------------------------------------------------


def test_costs_of_parts_add_up_to_a_session(view: RunView) -> None:
    spent = spending(view)
    assert not spent.reason
    rows = session_costs(spent.usages)
    assert {row.part for row in rows if row.method == "learned"} == {"training", "survey"}
    assert {row.part for row in rows if row.method == "warm_start"} == {"training", "probe"}
    for method in view.methods:
        own = [row for row in rows if row.method == method and row.session in (4, 5)]
        mean = mean_session(spent.usages, "fedavg", method, 1)
        assert mean.latency == pytest.approx(sum(row.seconds for row in own) / 2)
        assert mean.up == pytest.approx(sum(row.bytes_up for row in own) / 2)


def test_costs_that_cannot_be_known_say_why(view: RunView) -> None:
    config = view.config.model_copy(update={"dataset": "nowhere.npz"})
    unknown = RunView("lost", config, view.rounds, view.events)
    assert "nowhere.npz" in spending(unknown).reason


def judged(scores: dict[str, list[float]], seeds: int = 3, task: str = "classes") -> StartVerdict:
    """Return the verdict on methods with these accuracies in the fourth of four sessions."""
    layers = Layers()
    layers.add({"methods": list(scores), "seeds": list(range(seeds)), "task": task}, "test")
    rounds = [
        Round("fedavg", method, seed, 4, 1, value, 0.1, 0.1, 4, 4)
        for method, values in scores.items()
        for seed, value in enumerate(values)
    ]
    return verdicts(metrics_of(layers.config(), rounds, [], [Target(0.95)]), [])[0]


def test_a_winner_under_every_seed() -> None:
    found = judged({"previous": [50.0, 52.0, 51.0], "average": [60.0, 63.0, 61.0]})
    assert (found.winner, found.runner_up) == ("average", "previous")
    assert found.lead is not None
    assert found.lead.mean == pytest.approx(31 / 3)
    assert "average won: 61.33 % accuracy" in found.sentence
    assert "3 of 3 seeds" in found.sentence
    assert "too few for a test, whose p-value would be at least 0.25" in found.sentence


def test_no_winner_if_seeds_disagree() -> None:
    found = judged({"previous": [50.0, 52.0, 51.0], "average": [49.0, 56.0, 52.0]})
    assert found.sentence.startswith("No start is clearly ahead: average reached")
    assert "2 of 3 seeds" in found.sentence


def test_one_seed_proves_nothing() -> None:
    assert "add seeds" in judged({"previous": [50.0], "average": [60.0]}, seeds=1).sentence


def test_methods_that_are_level_are_called_so() -> None:
    found = judged({"previous": [50.0, 51.0], "average": [50.0, 51.0]}, seeds=2)
    assert "are level" in found.sentence


def test_many_seeds_allow_a_test() -> None:
    high = [60.0 + n / 10 for n in range(8)]
    sure = judged({"previous": [50.0] * 8, "average": high}, seeds=8)
    assert "chance is an unlikely cause (p = 0.0078)" in sure.sentence
    mixed = [50.0 + (-1) ** n + 0.1 for n in range(8)]
    unsure = judged({"previous": [50.0] * 8, "average": mixed}, seeds=8)
    assert "chance may be the cause" in unsure.sentence


def test_less_is_better_for_errors() -> None:
    found = judged({"previous": [5.0, 6.0], "average": [3.0, 3.5]}, seeds=2, task="regression")
    assert found.winner == "average"
    assert found.lead is not None
    assert found.lead.mean == pytest.approx(2.25)
    assert "%" not in found.sentence
    assert "points" not in found.sentence


def test_one_method_only_reaches_something() -> None:
    found = judged({"previous": [50.0, 52.0, 51.0]})
    assert found.sentence.startswith("previous reached 51.00 % accuracy")


def test_the_verdict_of_a_real_run_names_its_costs(view: RunView) -> None:
    metrics = metrics_of(view.config, view.rounds, view.events, [Target(0.95)])
    (found,) = verdicts(metrics, spending(view).usages)
    assert "seconds" in found.sentence
    assert "joules" in found.sentence
    assert "bytes" in found.sentence


def test_without_a_transition_there_is_no_verdict(view: RunView) -> None:
    early = [r for r in view.rounds if r.session <= 2]
    metrics = metrics_of(view.config, early, view.events, [Target(0.95)])
    assert verdicts(metrics, []) == []
    assert "session 4" in nothing_yet(metrics)
