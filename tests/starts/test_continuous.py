"""The Continuous baseline: who teaches whom, when, and on which algorithm."""

from __future__ import annotations

import pytest
import torch

from ebbflow.core.objectives import Distillation
from ebbflow.core.types import ModelState
from ebbflow.runs.records import Round
from ebbflow.starts.continuous import continuous
from tests.simulation.test_simulate import Play, play, recorded
from tests.starts.test_starts import assert_equal, model, past


def teacher_of(played: Play, session: int) -> ModelState | None:
    """Return what the lanes of a session compare with; the same in all of its rounds."""
    found = []
    for cohort, lanes in played.trained:
        if cohort.session == session:
            lane = lanes[[*_names(played)].index("continuous")] if len(lanes) > 1 else lanes[0]
            found.append(lane.algorithm.anchors(lane.shared, {}).get("teacher"))
    assert found
    first = found[0]
    for other in found[1:]:
        assert (other is None) == (first is None)
        if first is not None and other is not None:
            assert_equal(first, other)
    return first


def _names(played: Play) -> list[str]:
    return [track.method.name for track in played.tracks]


def test_it_carries_on_and_is_taught_by_where_it_came_from() -> None:
    start = continuous().choose(past([]))
    assert_equal(start.model, model(600))
    assert start.teacher is not None
    assert_equal(start.teacher, model(600))


def test_nobody_teaches_where_nobody_was_before() -> None:
    start = continuous().choose(past([], goes_on=False))
    assert start.teacher is None


@pytest.mark.parametrize("pilots", [1, 2])
def test_the_teacher_is_the_previous_sessions_final_model(pilots: int) -> None:
    played = play("methods=continuous", f"pilot.sessions={pilots}", "sessions=5")
    for s in range(1, 6):
        teacher = teacher_of(played, s)
        if s <= pilots:
            assert teacher is None
        else:
            assert teacher is not None
            assert torch.equal(teacher.theta, played.copies["continuous", s - 1])
            start = played.starts["continuous", s].model
            assert torch.equal(start.theta, played.copies["continuous", s - 1])


@pytest.mark.parametrize("pilots", [1, 2])
def test_after_a_fresh_start_there_is_no_teacher(pilots: int) -> None:
    """As in the authors' code: session P+1 starts from the initial model, which knows nothing."""
    settings = (f"pilot.sessions={pilots}", "sessions=5", "pilot.carry_over=false")
    played = play("methods=continuous", *settings)
    for s in range(1, pilots + 2):
        assert teacher_of(played, s) is None
    assert torch.equal(played.starts["continuous", pilots + 1].model.theta, played.initial)
    for s in range(pilots + 2, 6):
        teacher = teacher_of(played, s)
        assert teacher is not None
        assert torch.equal(teacher.theta, played.copies["continuous", s - 1])


def test_a_network_of_zeros_teaches_the_first_session_if_asked_to() -> None:
    """As in the authors' code, whose teacher is not filled yet: every label is equally likely."""
    played = play(
        "methods=continuous", "pilot.carry_over=false", "parameters.continuous.first=uniform"
    )
    assert teacher_of(played, 1) is None
    teacher = teacher_of(played, 2)
    assert teacher is not None
    assert not teacher.theta.any()
    assert torch.equal(played.starts["continuous", 2].model.theta, played.initial)
    after = teacher_of(played, 3)
    assert after is not None
    assert torch.equal(after.theta, played.copies["continuous", 2])


def test_without_a_teacher_it_is_previous_and_is_trained_once() -> None:
    settings = ('methods=["previous", "continuous"]', "pilot.carry_over=false")
    played = play(*settings)
    lanes = {(c.session, c.round): len(lanes) for c, lanes in played.trained}
    assert [lanes[s, 1] for s in (1, 2, 3, 4)] == [1, 1, 2, 2]
    assert torch.equal(played.finals["previous", 2], played.finals["continuous", 2])
    assert not torch.equal(played.finals["previous", 3], played.finals["continuous", 3])


def rounds_of(rounds: list[Round], algorithm: str, method: str) -> list[Round]:
    found = [r for r in rounds if (r.algorithm, r.method) == (algorithm, method)]
    return [r._replace(algorithm="", method="") for r in found]


BESIDE = ('algorithm=["fedprox", "fedacg", "fedavg"]', "lr.initial=0.05", "lr.floor=0.5")


def test_it_runs_on_fedavg_whatever_the_algorithm() -> None:
    records = recorded(*BESIDE, 'methods=["previous", "continuous"]')
    fedprox, fedacg, fedavg = (
        rounds_of(records.rounds, name, "continuous") for name in ("fedprox", "fedacg", "fedavg")
    )
    assert fedprox == fedacg == fedavg
    previous = [rounds_of(records.rounds, name, "previous") for name in ("fedprox", "fedacg")]
    assert previous[0] != previous[1]
    rows = {
        name: [
            {key: value for key, value in row.items() if key != "algorithm"}
            for row in records.rows
            if (row["algorithm"], row["method"]) == (name, "continuous")
        ]
        for name in ("fedprox", "fedacg")
    }
    assert rows["fedprox"] == rows["fedacg"] != []


def test_it_has_the_rates_of_the_algorithm_that_it_is_compared_under() -> None:
    records = recorded(
        'algorithm=["fedprox", "fedacg"]', "methods=continuous", "lr.algorithms.fedacg.initial=0.2"
    )
    for r in records.rounds:
        assert (r.lr > 0.05) == (r.algorithm == "fedacg")


def test_it_runs_on_the_algorithm_if_asked_to() -> None:
    settings = (
        *BESIDE,
        'methods=["previous", "continuous"]',
        "parameters.continuous.base=algorithm",
    )
    records = recorded(*settings)
    fedprox, fedacg, fedavg = (
        rounds_of(records.rounds, name, "continuous") for name in ("fedprox", "fedacg", "fedavg")
    )
    assert fedprox != fedavg != fedacg
    # Without weight on the teacher it is the algorithm's own Previous.
    off = recorded(*settings, "parameters.continuous.kl=0").rounds
    for name in ("fedprox", "fedacg"):
        assert rounds_of(off, name, "continuous") == rounds_of(off, name, "previous")


def test_neighbours_change_no_bit_of_it() -> None:
    alone = recorded("methods=continuous", "algorithm=moon").rounds
    beside = recorded('methods=["average", "continuous"]', 'algorithm=["scaffold", "moon"]').rounds
    assert [r for r in beside if (r.algorithm, r.method) == ("moon", "continuous")] == alone


def test_an_all_zero_teacher_knows_no_labels() -> None:
    """After a fresh start the mixed target has no labels to take from a teacher who knows none."""
    played = play(
        "methods=continuous",
        "pilot.carry_over=false",
        "parameters.continuous.first=uniform",
        "parameters.continuous.target=mixed",
    )
    known = {
        cohort.session: lanes[0].algorithm.objective.known
        for cohort, lanes in played.trained
        if isinstance(lanes[0].algorithm.objective, Distillation)
    }
    labels = {session.index: session.labels for session in played.world.sessions}
    assert known == {2: (), 3: labels[2], 4: labels[3]}
