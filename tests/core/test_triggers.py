"""Triggers speak when they should, and say what they are."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core import triggers
from ebbflow.core.errors import EbbflowError
from ebbflow.core.triggers import (
    Observed,
    Trigger,
    after_rounds,
    any_of,
    at,
    describe,
    every,
    membership_changes,
    newcomers,
    on_call,
)
from ebbflow.sessions import triggers as for_sessions

SETS = st.frozensets(st.integers(0, 9))


def seen(members: str, present: str, known: str = "") -> Observed:
    """Return a session of devices, each a digit."""
    old, now, earlier = (frozenset(map(int, digits)) for digits in (members, present, known))
    return Observed(members=old, present=now, known=earlier)


def test_rounds_are_counted() -> None:
    trigger = after_rounds(3)
    assert [trigger(Observed(rounds=rounds)) for rounds in (0, 2)] == [None, None]
    assert trigger(Observed(rounds=3)) == "3 rounds are done"
    assert after_rounds(1)(Observed(rounds=1)) == "1 round is done"


@pytest.mark.parametrize(
    ("share", "members", "present", "speaks"),
    [
        (0.0, "123", "123", False),
        (0.0, "123", "12", True),
        (0.5, "1234", "1235", True),  # two of four
        (0.5, "12345", "12346", False),  # two of five
        (0.6, "01234", "1234567", False),  # four of seven
        (4 / 7, "01234", "1234567", True),
        (2.0, "12", "34", True),  # those who left count as well
        (2.1, "12", "34", False),
        (1e308, "12", "34", False),
        (0.5, "12", "", True),  # nobody is left
    ],
)
def test_changes_of_membership(share: float, members: str, present: str, speaks: bool) -> None:
    assert (membership_changes(share)(seen(members, present)) is not None) == speaks


@given(SETS, SETS, SETS, st.one_of(st.floats(0, 3), st.integers(0, 20).map(lambda n: n / 10)))
def test_rules_about_membership_are_their_definitions(
    members: frozenset[int], present: frozenset[int], known: frozenset[int], share: float
) -> None:
    observed = Observed(2, 5, members, present, known)
    changed = len(members ^ present)
    by_change = changed > 0 and not changed < share * len(present) - 1e-6
    assert (membership_changes(share)(observed) is not None) == by_change
    if share <= 1:
        new = len(present - members - known)
        by_newcomers = new > 0 and not new < share * len(present) - 1e-6
        assert (newcomers(share)(observed) is not None) == by_newcomers


def test_reasons_name_the_devices_numbers() -> None:
    reason = membership_changes(0.1)(seen("123", "3456"))
    assert reason == "3 devices have joined and 2 have left since the session began, with 4 present"
    assert newcomers(0.5)(seen("123", "3456", known="6")) == "2 of the 4 devices present are new"


def test_who_has_been_a_member_is_not_new() -> None:
    trigger = newcomers(0.25)
    assert trigger(seen("12", "1234", known="34")) is None
    assert trigger(seen("12", "1234", known="3")) == "1 of the 4 devices present is new"
    assert newcomers(0.0)(seen("12", "12")) is None


def test_every_so_many_seconds() -> None:
    trigger = every(0.3)
    assert trigger(Observed(seconds=0.29)) is None
    assert trigger(Observed(seconds=0.1 + 0.1 + 0.1)) == "0.3 seconds have passed"
    assert trigger(Observed(seconds=0.3 * (1 - 1e-9))) is not None


def test_times_end_the_sessions_that_began_before_them() -> None:
    trigger = at([200.0, 100.0])
    assert trigger(Observed(seconds=30.0, now=99.0)) is None
    assert trigger(Observed(seconds=31.0, now=100.0)) == "the time 100 has come"
    assert trigger(Observed(seconds=0.0, now=100.0)) is None
    assert trigger(Observed(seconds=50.0, now=150.0)) is None  # it began at 100
    assert trigger(Observed(seconds=150.0, now=230.0)) == "the time 200 has come"
    moment = datetime(2024, 5, 1, tzinfo=UTC)
    assert repr(at([moment])) == "at([1714521600])"


def test_a_call_is_granted_once_from_any_thread() -> None:
    trigger = on_call()
    assert trigger(Observed()) is None
    trigger.ask("somebody pressed the button")
    trigger.ask()
    assert trigger(Observed()) == "a new session was asked for"
    assert trigger(Observed()) is None

    together, granted = Barrier(4), []

    def ask() -> None:
        together.wait()
        for _ in range(500):
            trigger.ask()

    def look() -> None:
        together.wait()
        for _ in range(500):
            if trigger(Observed()) is not None:
                granted.append(1)

    threads = [Thread(target=each) for each in (ask, ask, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trigger(Observed())
    assert len(granted) <= 1000
    assert trigger(Observed()) is None


def test_any_of_gives_all_reasons_and_leaves_no_call_over() -> None:
    call = on_call()
    trigger = any_of(after_rounds(2), call)
    assert trigger(Observed(rounds=1)) is None
    call.ask("why not")
    assert trigger(Observed(rounds=2)) == "2 rounds are done; why not"
    assert trigger(Observed(rounds=1)) is None


def never(observed: Observed) -> str | None:
    """Never begin a session."""
    return None


class Never:
    """Never begins a session."""

    def __call__(self, observed: Observed) -> str | None:
        """Say nothing."""
        return None


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (after_rounds(20), "after_rounds(20)"),
        (membership_changes(0.5), "membership_changes(0.5)"),
        (newcomers(1), "newcomers(1)"),
        (every(86_400.0), "every(86400)"),
        (at([2.5, 1]), "at([1, 2.5])"),
        (on_call(), "on_call()"),
        (any_of(every(0.1), after_rounds(2)), "any_of(every(0.1), after_rounds(2))"),
        (any_of(never), "any_of(tests.core.test_triggers.never)"),
        (never, "tests.core.test_triggers.never"),
        (Never(), "tests.core.test_triggers.Never"),
    ],
)
def test_triggers_say_what_they_are(trigger: Trigger, text: str) -> None:
    assert describe(trigger) == text


@pytest.mark.parametrize(
    "trigger",
    [
        after_rounds(7),
        any_of(membership_changes(1 / 3), newcomers(0.25)),
        at([1e-7, 1714521600.123456]),
        every(np.float64(0.1)),
        after_rounds(np.int64(3)),  # type: ignore[arg-type]  # as arithmetic gives it
    ],
)
def test_what_a_trigger_is_called_makes_it_again(trigger: Trigger) -> None:
    assert eval(describe(trigger), vars(triggers).copy()) == trigger


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: after_rounds(0), r"after_rounds\(0\) .*; give it a whole number"),
    (lambda: after_rounds(1.5), r"after_rounds\(1.5\)"),  # type: ignore[arg-type]  # wrong
    (lambda: after_rounds(True), r"after_rounds\(True\)"),
    (lambda: membership_changes(-0.1), r"membership_changes\(-0.1\) .*; give it a finite"),
    (lambda: membership_changes(math.inf), r"membership_changes\(inf\)"),
    (lambda: membership_changes("half"), r"\('half'\)"),  # type: ignore[arg-type]  # wrong
    (lambda: newcomers(1.1), r"newcomers\(1.1\) .*; give it a share from 0 to 1"),
    (lambda: newcomers(math.nan), r"newcomers\(nan\)"),
    (lambda: every(0), r"every\(0\) .*; give it a finite number of seconds"),
    (lambda: at([]), r"at\(\[\]\) never .*; give it"),
    (lambda: at([1.0, math.nan]), r"time nan in at.*; give seconds"),
    (lambda: at([datetime(2024, 5, 1)]), r"datetime with a time zone"),
    (any_of, r"any_of\(\) never .*; give it"),
    (lambda: any_of(20), r"20 in any_of.*; give it functions"),  # type: ignore[arg-type]  # wrong
]


@pytest.mark.parametrize(("make", "sentence"), WRONG)
def test_what_is_no_trigger_is_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(EbbflowError, match=sentence):
        make()


def test_sessions_have_the_same_triggers() -> None:
    assert set(for_sessions.__all__) <= set(vars(triggers))
    for name in for_sessions.__all__:
        assert getattr(for_sessions, name) is getattr(triggers, name)


def test_triggers_need_no_torch() -> None:
    code = "import sys, ebbflow.sessions.triggers; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
