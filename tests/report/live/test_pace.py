"""Work that is repeated waits a hundred times as long as it took."""

from __future__ import annotations

import pytest

from ebbflow.report.live import pace as module
from ebbflow.report.live.pace import Pace


class Clock:
    """Stands for the module ``time``; a second passes when a test says so."""

    def __init__(self) -> None:
        self.now = self.used = 1000.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def worked(pace: Pace, clock: Clock, seconds: float) -> None:
    with pace.timed():
        clock.used += seconds
        clock.now += seconds


def test_it_takes_one_per_cent_of_a_core(clock: Clock) -> None:
    pace, began, times = Pace(0.1, first=0.1), clock.now, 0
    worked(pace, clock, 9.0)  # imports
    while clock.now < began + 1000:
        if pace.ready():
            worked(pace, clock, 0.5)
            times += 1
        clock.now += 0.01
    assert 0.009 < 0.5 * times / 1000 < 0.0101


def test_the_first_time_counts_less(clock: Clock) -> None:
    pace = Pace(1.0, first=5.0)
    assert pace.ready()
    worked(pace, clock, 9.0)
    clock.now += 4.9
    assert not pace.ready()
    clock.now += 0.2
    assert pace.ready()
    worked(pace, clock, 9.0)
    clock.now += 899.0
    assert not pace.ready()


def test_time_that_others_use_does_not_count(clock: Clock) -> None:
    pace = Pace(1.0, first=1.0)
    for _ in range(2):
        with pace.timed():
            clock.now += 9.0  # another process had the core
    clock.now += 1.0
    assert pace.ready()


def test_there_is_a_least_and_a_most(clock: Clock) -> None:
    pace = Pace(1.0, 10.0, first=1.0)
    for took, wait in ((0.0, 1.0), (0.001, 1.0), (0.05, 5.0), (3.0, 10.0)):
        worked(pace, clock, took)
        clock.now += wait - 0.01
        assert not pace.ready()
        clock.now += 0.02
        assert pace.ready()


def test_what_fails_is_paced_as_well(clock: Clock) -> None:
    pace = Pace(1.0, first=1.0)
    worked(pace, clock, 0.0)
    clock.now += 2.0
    with pytest.raises(KeyError), pace.timed():
        clock.used += 1.0
        raise KeyError
    clock.now += 99.0
    assert not pace.ready()


def test_haste_makes_the_wait_shorter(clock: Clock) -> None:
    pace = Pace(1.0, first=1.0)
    worked(pace, clock, 0.0)
    worked(pace, clock, 1.0)
    clock.now += 20.1
    assert pace.ready(haste=5.0)
    assert not pace.ready()
