"""A method's memory by itself: sessions begin and end without data, devices or an engine."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.core.start import DevicesPresent, Situation, Start, StartingPoint
from ebbflow.core.types import Layout, ModelState
from ebbflow.runs.retention import keep_last
from ebbflow.sessions.memory import Memory, SessionRules, begin, finish, pilot_weights
from ebbflow.starts import STARTS
from tests.starts.panels import towards

LAYOUT = Layout(("weight",), ((3,),))
NOTHING = torch.zeros(0)
TARGETS = [torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0])]


def model(*values: float) -> ModelState:
    return ModelState(torch.tensor(values), NOTHING)


class Federation:
    """Two groups of devices that take turns; a round goes half of the way to the group's target.

    All a server sees of them is the model that comes back.
    """

    def __init__(self, start: Start, rules: SessionRules) -> None:
        self.start, self.rules = start, rules
        self.initial = model(0.0, 0.0, 1.0)
        self.memory = Memory(self.initial)
        self.points: list[StartingPoint] = []
        self.probes = 0

    def round(self, session: int, before: ModelState) -> ModelState:
        target = TARGETS[session % 2]
        return ModelState(before.theta + 0.5 * (target - before.theta), NOTHING)

    def session(self, number: int, rounds: int = 8) -> None:
        def probe(pilot: ModelState) -> ModelState:
            self.probes += 1
            return self.round(number, pilot)

        point = begin(
            self.memory,
            number,
            self.start,
            self.rules,
            initial=self.initial,
            layout=LAYOUT,
            present=DevicesPresent(
                probe, towards(TARGETS[number % 2]), (number % 2, 2 + number % 2)
            ),
        )
        self.points.append(point)
        for _ in range(rounds):
            self.memory.model = self.round(number, self.memory.model)
        finish(self.memory, number, self.rules)


def test_a_federation_can_use_the_warm_start_without_the_simulator() -> None:
    federation = Federation(STARTS["warm_start"](scale=50.0), SessionRules())
    for number in range(1, 7):
        federation.session(number)
    assert federation.probes == 5  # every session after the pilot session
    # From session 4 on there is an earlier session of the same group: it starts where that ended.
    for number in (4, 5, 6):
        target = TARGETS[number % 2]
        assert float((federation.points[number - 1].model.theta - target).norm()) < 0.05


def test_a_federation_can_use_the_learned_start_without_the_simulator() -> None:
    federation = Federation(STARTS["learned"](), SessionRules())
    for number in range(1, 7):
        federation.session(number)
    assert federation.probes == 0
    # From session 4 on there is an earlier session of the same group.
    for number in (4, 5, 6):
        target = TARGETS[number % 2]
        assert float((federation.points[number - 1].model.theta - target).norm()) < 0.05


def test_a_session_is_remembered_with_the_start_that_is_kept_and_its_devices() -> None:
    federation = Federation(STARTS["learned"](), SessionRules())
    for number in range(1, 5):
        federation.session(number)
    assert [past.number for past in federation.memory.past] == [2, 3, 4]
    for past in federation.memory.past:
        assert past.start is not None
        assert torch.equal(past.start.theta, federation.points[past.number - 1].model.theta)
        assert past.devices == (past.number % 2, 2 + past.number % 2)


def test_other_starts_keep_no_start() -> None:
    federation = Federation(STARTS["previous"](), SessionRules())
    for number in range(1, 4):
        federation.session(number)
    assert [past.start for past in federation.memory.past] == [None, None]
    assert [past.devices for past in federation.memory.past] == [(0, 2), (1, 3)]


def test_it_imports_neither_the_simulator_nor_an_engine() -> None:
    code = (
        "import sys, ebbflow.sessions.memory, ebbflow.starts.warm_start, "
        "ebbflow.starts.learned; "
        "bad = [n for n in sys.modules if n.startswith(('ebbflow.simulation', 'ebbflow.engines', "
        "'ebbflow.data', 'ebbflow.experiment'))]; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@given(pilots=st.integers(1, 4), combine=st.sampled_from(["average", "ema"]))
def test_the_pilot_model_is_the_mixture_of_the_pilot_sessions(pilots: int, combine: str) -> None:
    memory = Memory(model(0.0, 0.0, 0.0))
    rules = SessionRules(pilots, "ema" if combine == "ema" else "average", 0.25)
    finals = []
    for number in range(1, pilots + 1):
        assert memory.pilot is None
        memory.model = model(float(number), float(number**2), 1.0)
        finals.append(memory.model.theta.double())
        finish(memory, number, rules)
    assert memory.pilot is not None
    assert memory.pilots == []
    weights = pilot_weights(pilots, combine, 0.25)
    wanted: Tensor = sum(
        (w * f for w, f in zip(weights, finals, strict=True)), torch.zeros(3, dtype=torch.float64)
    )
    torch.testing.assert_close(memory.pilot.theta.double(), wanted, rtol=1e-6, atol=0)
    assert sum(weights) == pytest.approx(1)


def test_pilot_sessions_go_on_from_the_model_that_is_there() -> None:
    def never(situation: Situation) -> StartingPoint:
        raise AssertionError("a pilot session asked the start")

    federation = Federation(Start(never), SessionRules(pilot_sessions=3))
    federation.session(1)
    before = federation.memory.model
    federation.session(2)
    assert torch.equal(federation.points[1].model.theta, before.theta)


@pytest.mark.parametrize("carry_over", [True, False])
def test_what_a_start_is_told_of_the_session_before(carry_over: bool) -> None:
    seen: list[Situation] = []

    def choose(situation: Situation) -> StartingPoint:
        seen.append(situation)
        return StartingPoint(situation.carried)

    rules = SessionRules(carry_over=carry_over)
    memory, initial = Memory(model(0.0, 0.0, 0.0)), model(9.0, 9.0, 9.0)
    for number in range(1, 4):
        begin(
            memory,
            number,
            Start(choose),
            rules,
            initial=initial,
            layout=LAYOUT,
            present=DevicesPresent(lambda start: start),
            known_labels=(number - 1,),
        )
        memory.model = model(float(number), 0.0, 0.0)
        finish(memory, number, rules)
    second, third = seen
    assert (second.session, third.session) == (2, 3)
    assert second.goes_on == carry_over
    assert second.known_labels == ((1,) if carry_over else ())
    assert torch.equal(
        second.carried.theta, torch.tensor([1.0, 0, 0]) if carry_over else initial.theta
    )
    assert (third.goes_on, third.known_labels) == (True, (2,))
    assert [past.number for past in third.past] == [2]


def test_only_what_the_rule_keeps_is_remembered() -> None:
    federation = Federation(STARTS["average"](), SessionRules(retention=keep_last(2)))
    for number in range(1, 7):
        federation.session(number)
    assert [past.number for past in federation.memory.past] == [5, 6]
    assert federation.points[5].weights == {4: 0.5, 5: 0.5}


def test_the_past_is_a_copy_of_the_model() -> None:
    federation = Federation(STARTS["previous"](), SessionRules())
    for number in range(1, 3):
        federation.session(number)
    kept = federation.memory.past[0].model.theta.clone()
    federation.memory.model.theta.zero_()
    assert torch.equal(federation.memory.past[0].model.theta, kept)
