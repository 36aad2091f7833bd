"""When a session ends and the next one begins.

A trigger looks at what the server sees and returns the reason why a new session should begin, or
None if the present one goes on. A real federation asks its trigger after every round. The simulator
asks the same objects at every join and leave (`ebbflow.data.traces.cutting`).

>>> trigger = any_of(membership_changes(0.5), after_rounds(20))
>>> trigger
any_of(membership_changes(0.5), after_rounds(20))
>>> here = Observed(members=frozenset({0, 1, 2}), present=frozenset({1, 2, 7}), rounds=3)
>>> trigger(here)
'1 device has joined and 1 has left since the session began, with 3 present'
>>> trigger(here._replace(present=here.members)) is None
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from numbers import Real
from threading import Lock
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError

SLACK = 1e-6
"""Decimal settings such as 0.1 are not exact in binary: if a product of such settings misses a
bound by less than this fraction of a window, a round or a device, it counts as reaching it."""

Flags = NDArray[np.bool_]
Numbers = int | NDArray[np.int64]
"""A number of devices, or one for each of many instants."""


class Counts(NamedTuple):
    """Numbers of devices that a rule about membership goes by, at one instant or at many.

    ``changed`` are those in just one of the session's members and those present; ``newcomers`` are
    those present who have never been a member of any session.
    """

    present: Numbers
    changed: Numbers
    newcomers: Numbers


class Observed(NamedTuple):
    """What a trigger is told.

    Attributes:
        session: The number s of the session, from one.
        rounds: The rounds that it has had.
        members: The numbers of its devices.
        present: The numbers of the devices that are here now.
        known: The members of all earlier sessions.
        seconds: The time since the session began. A simulation counts it in its trace's unit.
        now: The time now: seconds since 1970, or the trace's time.
    """

    session: int = 1
    rounds: int = 0
    members: frozenset[int] = frozenset()
    present: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()
    seconds: float = 0.0
    now: float = 0.0

    @property
    def counts(self) -> Counts:
        """The numbers of devices that rules about membership go by."""
        newcomers = self.present - self.members - self.known
        return Counts(len(self.present), len(self.members ^ self.present), len(newcomers))


Trigger = Callable[[Observed], str | None]
"""Returns why a new session should begin, as a clause such as "20 rounds are done", or None."""
CountRule = Callable[[Counts], Flags]
"""Says from numbers of devices alone whether a new session should begin, for many instants."""


def after_rounds(rounds: int) -> Trigger:
    """Begin a new session after so many rounds.

    >>> after_rounds(20)(Observed(rounds=20))
    '20 rounds are done'
    """
    if not (_is_number(rounds) and rounds == int(rounds) >= 1):
        raise EbbflowError(
            f"after_rounds({rounds!r}) is no trigger; give it a whole number of at least 1."
        )
    return _AfterRounds(int(rounds))


def membership_changes(share: float) -> Trigger:
    """Begin a new session once enough devices have joined or left since this one began.

    Enough is ``share`` times the number of those present now, and at least one. A device that left
    and came back does not count; 0 asks for a new session at every change.
    """
    if not (_is_number(share) and share >= 0):
        raise EbbflowError(
            f"membership_changes({share!r}) is no trigger; give it a finite number that is at "
            "least 0, such as 0.5."
        )
    return _MembershipChanges(float(share))


def newcomers(share: float) -> Trigger:
    """Begin a new session once enough of those present have never been a member of any.

    Enough is ``share`` times the number of those present now, and at least one.

    >>> newcomers(0.3)(Observed(members=frozenset({0, 1}), present=frozenset({0, 1, 2})))
    '1 of the 3 devices present is new'
    """
    if not (_is_number(share) and 0 <= share <= 1):
        raise EbbflowError(
            f"newcomers({share!r}) is no trigger; give it a share from 0 to 1, such as 0.3."
        )
    return _Newcomers(float(share))


def every(seconds: float) -> Trigger:
    """Begin a new session when this one has lasted for so long.

    >>> every(3600)(Observed(seconds=3601.5))
    '3600 seconds have passed'
    """
    if not (_is_number(seconds) and seconds > 0):
        raise EbbflowError(
            f"every({seconds!r}) is no trigger; give it a finite number of seconds above 0."
        )
    return _Every(float(seconds))


def at(times: Iterable[float | datetime]) -> Trigger:
    """Begin a new session at each of these times, given as seconds since 1970 or with a time zone.

    >>> at([100.0, 200.0])(Observed(seconds=60.0, now=130.0))
    'the time 100 has come'
    """
    given = tuple(times)
    numbers: list[float] = []
    for time in given:
        if isinstance(time, datetime) and time.tzinfo is not None:
            numbers.append(time.timestamp())
        elif _is_number(time):
            numbers.append(float(time))
        else:
            raise EbbflowError(
                f"The time {time!r} in at(...) cannot be told; give seconds since 1970, or a "
                "datetime with a time zone."
            )
    if not numbers:
        raise EbbflowError("at([]) never begins a session; give it at least one time.")
    return _At(tuple(sorted(numbers)))


def on_call() -> OnCall:
    """Return a trigger that begins a new session when your code asks it to."""
    return OnCall()


def any_of(*triggers: Trigger) -> Trigger:
    """Begin a new session as soon as one of these says so.

    All of them are asked each time, and the reasons of all that speak are given.
    """
    for trigger in triggers:
        if not callable(trigger):
            raise EbbflowError(
                f"{trigger!r} in any_of(...) is no trigger; give it functions such as "
                "after_rounds(20)."
            )
    if not triggers:
        raise EbbflowError("any_of() never begins a session; give it at least one trigger.")
    return _AnyOf(triggers)


def describe(trigger: Trigger) -> str:
    """Return a trigger as a record may hold it: as it is written, or the name of an own function.

    >>> describe(every(60))
    'every(60)'
    >>> describe(len)
    'builtins.len'
    """
    if isinstance(trigger, _AnyOf):
        return f"any_of({', '.join(map(describe, trigger.triggers))})"
    # The usual representation of an object is its place in memory, which says nothing later.
    named: Any = trigger if hasattr(trigger, "__qualname__") else type(trigger)
    if named is trigger or named.__repr__ is object.__repr__:
        return f"{named.__module__}.{named.__qualname__}"
    return repr(trigger)


def count_rule(trigger: Trigger) -> CountRule | None:
    """Return a trigger as a rule about numbers of devices, if it is one."""
    if isinstance(trigger, _MembershipChanges | _Newcomers):
        return trigger.reached
    if not isinstance(trigger, _AnyOf):
        return None
    rules = [rule for each in trigger.triggers if (rule := count_rule(each)) is not None]
    if len(rules) < len(trigger.triggers):
        return None

    def reached(counts: Counts) -> Flags:
        return np.asarray(np.logical_or.reduce([rule(counts) for rule in rules]))

    return reached


def counts_rounds(trigger: Trigger) -> bool:
    """Whether a trigger of ours goes by rounds, so that somebody must count them."""
    if isinstance(trigger, _AnyOf):
        return any(map(counts_rounds, trigger.triggers))
    return isinstance(trigger, _AfterRounds)


@dataclass(frozen=True)
class _AfterRounds:
    rounds: int

    def __call__(self, observed: Observed) -> str | None:
        if observed.rounds < self.rounds:
            return None
        return f"{_counted(observed.rounds, 'round')} {_be(observed.rounds)} done"

    def __repr__(self) -> str:
        return f"after_rounds({self.rounds})"


@dataclass(frozen=True)
class _MembershipChanges:
    share: float

    def __call__(self, observed: Observed) -> str | None:
        if not self.reached(observed.counts):
            return None
        joined = len(observed.present - observed.members)
        left = len(observed.members - observed.present)
        return (
            f"{_counted(joined, 'device')} {_have(joined)} joined and {left} {_have(left)} left "
            f"since the session began, with {len(observed.present)} present"
        )

    def reached(self, counts: Counts) -> Flags:
        return _reaches(counts.changed, self.share, counts.present)

    def __repr__(self) -> str:
        return f"membership_changes({_short(self.share)})"


@dataclass(frozen=True)
class _Newcomers:
    share: float

    def __call__(self, observed: Observed) -> str | None:
        counts = observed.counts
        if not self.reached(counts):
            return None
        new, present = counts.newcomers, _counted(len(observed.present), "device")
        return f"{new} of the {present} present {_be(new)} new"

    def reached(self, counts: Counts) -> Flags:
        return _reaches(counts.newcomers, self.share, counts.present)

    def __repr__(self) -> str:
        return f"newcomers({_short(self.share)})"


@dataclass(frozen=True)
class _Every:
    seconds: float

    def __call__(self, observed: Observed) -> str | None:
        if observed.seconds < self.seconds * (1 - SLACK):
            return None
        return f"{_short(self.seconds)} seconds have passed"

    def __repr__(self) -> str:
        return f"every({_short(self.seconds)})"


@dataclass(frozen=True)
class _At:
    times: tuple[float, ...]

    def __call__(self, observed: Observed) -> str | None:
        # A session that began at one of the times does not end by it.
        come = [time for time in self.times if 0 <= observed.now - time < observed.seconds]
        return f"the time {_short(come[-1])} has come" if come else None

    def __repr__(self) -> str:
        return f"at([{', '.join(map(_short, self.times))}])"


class OnCall:
    """A trigger that waits for a call of `ask`; both may come from different threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reason: str | None = None

    def ask(self, reason: str = "a new session was asked for") -> None:
        """Ask for a new session; several calls before it begins are one."""
        with self._lock:
            self._reason = reason

    def __call__(self, observed: Observed) -> str | None:
        """Return the reason of a call once."""
        with self._lock:
            reason, self._reason = self._reason, None
        return reason

    def __repr__(self) -> str:
        return "on_call()"


@dataclass(frozen=True)
class _AnyOf:
    triggers: tuple[Trigger, ...]

    def __call__(self, observed: Observed) -> str | None:
        # All are asked: a call that has been granted by another's reason must not be left over.
        reasons = [reason for each in self.triggers if (reason := each(observed)) is not None]
        return "; ".join(reasons) if reasons else None

    def __repr__(self) -> str:
        return describe(self)


def _reaches(some: Numbers, share: float, present: Numbers) -> Flags:
    """Whether some of those present are at least one, and at least the share."""
    with np.errstate(over="ignore"):  # a share that nothing can reach
        enough = np.asarray(some) >= share * np.asarray(present) - SLACK
    return np.asarray(enough & (np.asarray(some) > 0))


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and math.isfinite(value)


def _short(value: float) -> str:
    """Return a number without a needless point, and in full.

    >>> _short(60.0), _short(0.3), _short(1714521600.25)
    ('60', '0.3', '1714521600.25')
    """
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _be(number: object) -> str:
    return "is" if number == 1 else "are"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"
