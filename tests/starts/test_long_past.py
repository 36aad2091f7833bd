"""Starts that draw on a long past: what they choose, and what they read for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbflow.core import stacks
from ebbflow.core.start import Start, StartingPoint
from ebbflow.core.types import ModelState, PastSession
from ebbflow.starts.attendance import PastAttendance
from ebbflow.starts.average import average
from ebbflow.starts.warm_start import warm_start
from tests.starts.test_starts import model, past, started, vector


def chosen(start: Start, entries: Sequence[PastSession]) -> StartingPoint:
    return started(start, replace(past([]), past=tuple(entries)))


def entries(count: int) -> list[PastSession]:
    """Return past sessions of four kinds."""
    return [
        PastSession(z, model(z), vector(z % 4) + 0.3 * vector(900 + z)) for z in range(2, 2 + count)
    ]


def assert_near(one: ModelState, other: ModelState) -> None:
    for ours, theirs in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)  # float32 rounding


STARTS: list[tuple[Any, dict[str, Any]]] = [
    (average, {}),
    *((warm_start, {"distance": name}) for name in ("per_tensor", "raw", "normalised")),
    (warm_start, {"distance": "inner_product", "scale": 800.0}),
    (warm_start, {"scale": 0.0}),
    (warm_start, {"scale": math.inf}),
    (warm_start, {"signature": "sketch"}),
]


@pytest.mark.parametrize(("build", "parameters"), STARTS)
def test_in_stacks_and_one_by_one_the_same_start_is_chosen(
    build: Any, parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run of many sessions, whose start is the same object all the time."""
    sessions = entries(60)
    stacked, plain = build(**parameters), build(**parameters)
    for count in (30, 33, 34, 50, 60):
        ours = chosen(stacked, sessions[:count])
        with monkeypatch.context() as patch:
            patch.setattr(stacks, "LONG", 1000)
            theirs = chosen(plain, sessions[:count])
        assert_near(ours.model, theirs.model)
        assert list(ours.weights) == list(theirs.weights)
        assert list(ours.distances) == list(theirs.distances)
        assert ours.weights == pytest.approx(theirs.weights, abs=1e-9)
        assert ours.distances == pytest.approx(theirs.distances, abs=1e-12)
        assert ours.warnings == theirs.warnings


@pytest.mark.parametrize(("build", "parameters"), STARTS)
def test_a_start_that_begins_anew_chooses_the_same_bits(
    build: Any, parameters: dict[str, Any]
) -> None:
    """As after an interruption: what it has in memory depends on the sessions alone."""
    sessions, going_on = entries(50), build(**parameters)
    for count in range(31, 51):
        ours = chosen(going_on, sessions[:count])
    fresh = chosen(build(**parameters), sessions)
    assert torch.equal(ours.model.theta, fresh.model.theta)
    assert torch.equal(ours.model.buffers, fresh.model.buffers)
    assert ours.weights == fresh.weights


@pytest.mark.parametrize(("build", "parameters"), STARTS)
def test_sessions_that_are_no_longer_kept_do_not_count(
    build: Any, parameters: dict[str, Any]
) -> None:
    sessions, going_on = entries(80), build(**parameters)
    for first in (0, 1, 2, 7):  # the last 40, and some dropped from the middle
        kept = [*sessions[first : first + 20], *sessions[first + 25 : first + 45]]
        ours, fresh = chosen(going_on, kept), chosen(build(**parameters), kept)
        assert torch.equal(ours.model.theta, fresh.model.theta)
        assert ours.weights == fresh.weights


class Counted(PastSession):
    """A session that counts how often its model is read."""

    def __init__(self, number: int, read: list[int]) -> None:
        object.__setattr__(self, "number", number)
        object.__setattr__(self, "read", read)

    def __getattribute__(self, name: str) -> Any:
        number = object.__getattribute__(self, "number")
        if name == "model":
            object.__getattribute__(self, "read").append(number)
            return model(number)
        return object.__getattribute__(self, name)


def test_an_average_reads_only_the_sessions_that_are_new() -> None:
    read: list[int] = []
    sessions, start = [Counted(z, read) for z in range(2, 62)], average()
    for count in range(33, 61):
        read.clear()
        chosen(start, sessions[:count])
        assert read == ([count + 1] if count > 33 else list(range(2, 35)))


def test_the_average_of_a_long_past_is_the_mean() -> None:
    sessions = entries(100)
    found = chosen(average(), sessions).model
    for field in ("theta", "buffers"):
        each = [getattr(session.model, field).double() for session in sessions]
        assert torch.equal(getattr(found, field), torch.stack(each).mean(0).float())


# --- who was there -------------------------------------------------------------------------------

Devices = st.lists(st.integers(0, 12), unique=True, max_size=8).map(tuple)


def with_devices(number: int, devices: tuple[int, ...]) -> PastSession:
    return PastSession(number, model(0), None, None, devices)


@settings(max_examples=50)
@given(st.lists(Devices, max_size=20), st.lists(Devices, min_size=1, max_size=5), st.data())
def test_sessions_come_in_the_order_of_the_devices_in_common(
    every: list[tuple[int, ...]], here: list[tuple[int, ...]], data: st.DataObject
) -> None:
    """As the formula says, while sessions are added and dropped."""
    sessions = [with_devices(z, devices) for z, devices in enumerate(every)]
    attendance = PastAttendance()
    for place, devices in enumerate(here):
        kept = sessions[: len(sessions) * (place + 1) // len(here)]
        drops = data.draw(st.booleans())
        if kept and drops:
            kept.pop(data.draw(st.integers(0, len(kept) - 1)))

        def share(session: PastSession, devices: tuple[int, ...] = devices) -> float:
            both = set(devices) & set(session.devices)
            return len(both) / max(1, len({*devices, *session.devices}))

        wanted = sorted(kept, key=lambda one: (share(one), one.number), reverse=True)
        assert [one.number for one in attendance.nearest(kept, devices)] == [
            one.number for one in wanted
        ]
