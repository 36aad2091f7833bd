"""The learned start: which models are sent, when nobody is asked, and what is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ebbflow.core.start import Situation
from ebbflow.core.survey import Panel, SurveyPlan
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.starts.learned import basis_models, learned
from tests.starts.panels import towards

LAYOUT = Layout(("weight",), ((30,),))
NOTHING = torch.zeros(0)


def vector(seed: int) -> Tensor:
    return torch.randn(30, generator=torch.Generator().manual_seed(seed))


def model(seed: int) -> ModelState:
    return ModelState(vector(seed), NOTHING)


def final(session: int) -> ModelState:
    return model(100 + session)


def start(session: int) -> ModelState:
    return model(200 + session)


def session(number: int, *devices: int, kept: bool = True) -> PastSession:
    return PastSession(number, final(number), None, start(number) if kept else None, devices)


def situation(
    *past: PastSession, devices: tuple[int, ...] = (), target: Tensor | None = None
) -> Situation:
    """Return the beginning of a session; its devices' loss is the distance from a target."""
    return Situation(
        session=9,
        carried=final(past[-1].number) if past else model(3),
        goes_on=True,
        known_labels=(),
        pilot=model(2),
        initial=model(1),
        past=past,
        layout=LAYOUT,
        probe=lambda model: model,
        survey=towards(vector(5) if target is None else target),
        devices=devices,
    )


def names(situation: Situation, most: int = 99) -> list[str]:
    return list(basis_models(situation, most))


# --- the models that are sent --------------------------------------------------------------------

THREE = (session(2, 0, 1, 2), session(3, 5, 6), session(4, 2, 7, 8))


def test_the_session_with_the_most_devices_in_common_comes_first() -> None:
    """Then the way that the last session went, and models that any method has."""
    assert names(situation(*THREE, devices=(0, 1, 3))) == [
        "carried",
        "final 2",
        "start 2",
        "start 4",
        "initial",
        "pilot",
        "final 3",
        "start 3",
    ]


def test_each_name_is_of_the_model_that_it_says() -> None:
    basis = basis_models(situation(*THREE, devices=(5,)), 99)
    expected = {"carried": final(4), "initial": model(1), "pilot": model(2)}
    expected |= {f"final {s}": final(s) for s in (2, 3)}
    expected |= {f"start {s}": start(s) for s in (2, 3, 4)}
    assert basis.keys() == expected.keys()
    for name, found in basis.items():
        assert torch.equal(found.theta, expected[name].theta), name


def test_devices_in_common_count_against_those_that_are_not() -> None:
    many, few = session(2, *range(100)), session(3, 0, 50)
    assert names(situation(many, few, session(4), devices=(0, 1, 2)), 2) == ["carried", "final 3"]


def test_of_sessions_with_as_much_in_common_the_latest_comes_first() -> None:
    past = (session(2, 0), session(3, 0), session(4, 9))
    assert names(situation(*past, devices=(0, 1)), 3) == ["carried", "final 3", "start 3"]


def test_where_no_devices_are_known_the_latest_session_comes_first() -> None:
    past = (session(2), session(3), session(4))
    # The last session's final model is the one that is carried over.
    assert names(situation(*past)) == [
        "carried",
        "start 4",
        "initial",
        "final 3",
        "pilot",
        "start 3",
        "final 2",
        "start 2",
    ]


@pytest.mark.parametrize("most", range(2, 9))
def test_no_more_models_are_sent_than_asked_for(most: int) -> None:
    here = situation(*THREE, devices=(0,))
    assert names(here, most) == names(here)[:most]


def test_no_model_is_sent_twice() -> None:
    here = situation(*THREE, devices=(2, 7, 8))
    assert "final 4" not in names(here)
    same = replace(here, pilot=here.initial, carried=here.initial)
    assert names(same) == [
        "carried",
        "final 4",
        "start 4",
        "final 2",
        "start 2",
        "final 3",
        "start 3",
    ]


def test_models_that_differ_in_their_buffers_alone_are_two() -> None:
    here = situation()
    same = replace(here, carried=ModelState(vector(1), torch.ones(1)), pilot=here.initial)
    assert names(same) == ["carried", "initial"]


def test_where_no_starts_were_kept_final_models_are_sent() -> None:
    past = tuple(session(z, z, kept=False) for z in (2, 3, 4))
    assert names(situation(*past, devices=(2,))) == [
        "carried",
        "final 2",
        "initial",
        "final 3",
        "pilot",
    ]


def test_without_a_past_there_are_the_carried_the_initial_and_the_pilot_model() -> None:
    assert names(situation()) == ["carried", "initial", "pilot"]


class Read(PastSession):
    """A past session that notes when its models are read."""

    def __init__(self, number: int, notes: list[str]) -> None:
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "devices", ())
        object.__setattr__(self, "notes", notes)

    def __getattribute__(self, name: str) -> object:
        if name in ("model", "start"):
            number = object.__getattribute__(self, "number")
            object.__getattribute__(self, "notes").append(f"{name} {number}")
            return final(number) if name == "model" else start(number)
        if name == "started":
            return True
        return object.__getattribute__(self, name)


def test_no_model_is_read_that_is_not_sent() -> None:
    notes: list[str] = []
    here = replace(situation(), past=tuple(Read(z, notes) for z in range(2, 30)))
    basis_models(here, 4)
    assert set(notes) == {"model 29", "start 29"}


# --- what is chosen ------------------------------------------------------------------------------


def test_carried_plus_what_a_session_learnt_is_found_where_it_is_best() -> None:
    target = final(4).theta + final(2).theta - start(2).theta
    here = situation(*THREE, devices=(0, 1, 3), target=target)
    point = learned().choose(here)
    wanted = {"carried": 1, "final 2": 1, "start 2": -1, "start 4": 0, "initial": 0, "pilot": 0}
    assert point.mixture == pytest.approx(wanted, abs=0.01)  # the ridge pulls a little
    assert float((point.model.theta - target).norm()) < 0.02 * float(target.norm())


@pytest.mark.parametrize(
    ("target", "name"), [(final(3), "final 3"), (model(2), "pilot"), (model(1), "initial")]
)
def test_a_model_of_the_basis_is_taken_to_the_bit_where_it_is_best(
    target: ModelState, name: str
) -> None:
    point = learned(models=8).choose(situation(*THREE, devices=(5,), target=target.theta))
    assert point.mixture == {other: float(other == name) for other in point.mixture}
    assert torch.equal(point.model.theta, target.theta)


def test_the_average_of_final_models_is_found_where_it_is_best() -> None:
    target = (final(2).theta + final(3).theta + final(4).theta) / 3
    point = learned(models=8).choose(situation(*THREE, devices=(5,), target=target))
    for name, weight in point.mixture.items():
        among = name in ("carried", "final 2", "final 3")
        assert weight == pytest.approx(1 / 3 if among else 0, abs=0.02)


def test_the_start_is_kept_and_no_past_session_is_weighed_by_its_own() -> None:
    point = learned().choose(situation(*THREE))
    assert point.kept is point.model
    assert (point.weights, point.distances, point.signature) == ({}, {}, None)


def test_with_a_single_model_nobody_is_asked() -> None:
    def refuse(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        raise AssertionError("asked about a single model")

    here = replace(situation(), survey=refuse, pilot=model(1), carried=model(1))
    point = learned().choose(here)
    assert point.model is point.kept is here.carried
    assert point.mixture == {}


def test_parameters_reach_the_devices() -> None:
    asked: list[SurveyPlan] = []
    here = replace(situation(), survey=towards(vector(5), asked))
    learned(2, 7, 5, 3, False, "int8").choose(here)
    assert asked == [SurveyPlan(7, 5, 3, False, "int8")]


def test_a_large_margin_carries_on() -> None:
    here = situation(*THREE, target=vector(5))
    assert not torch.equal(learned().choose(here).model.theta, here.carried.theta)
    assert torch.equal(learned(margin=1e6).choose(here).model.theta, here.carried.theta)


def test_where_nobody_can_be_asked_the_error_says_so() -> None:
    plain = Situation(
        session=2,
        carried=model(3),
        goes_on=True,
        known_labels=(),
        pilot=model(2),
        initial=model(1),
        past=(),
        layout=LAYOUT,
        probe=lambda model: model,
    )
    with pytest.raises(ValueError, match="asks devices"):
        learned().choose(plain)


# --- nothing in common with the past --------------------------------------------------------------


def test_where_no_past_model_is_as_good_as_the_initial_one_the_session_starts_afresh() -> None:
    """Though a mixture would be better still: the target is near the initial model, not at it."""
    near = vector(1) + 0.1 * vector(7)
    point = learned(models=99).choose(situation(*THREE, target=near))
    assert torch.equal(point.model.theta, vector(1))
    assert point.mixture["initial"] == 1
    assert not any(weight for name, weight in point.mixture.items() if name != "initial")


def test_a_carried_model_that_is_the_initial_one_counts_as_such() -> None:
    afresh = replace(situation(*THREE, target=vector(1) + 0.1 * vector(7)), carried=model(1))
    point = learned(models=99).choose(afresh)
    assert torch.equal(point.model.theta, vector(1))
    assert point.mixture["carried"] == 1 and "initial" not in point.mixture
