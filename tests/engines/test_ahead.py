"""Results come in order, and only a few are computed before they are taken."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.engines.ahead import in_turn


@given(st.integers(0, 30), st.integers(1, 8), st.integers(1, 4))
def test_a_few_are_computed_ahead(tasks: int, ahead: int, workers: int) -> None:
    began: list[int] = []

    def work(task: int) -> int:
        began.append(task)
        return 2 * task

    with ThreadPoolExecutor(workers) as pool:
        for taken, result in enumerate(in_turn(pool, work, range(tasks), ahead)):
            assert result == 2 * taken
            assert len(began) <= taken + ahead
    assert sorted(began) == list(range(tasks))


def test_what_is_not_needed_any_more_is_not_computed() -> None:
    began: list[int] = []
    go_on = threading.Event()

    def work(task: int) -> None:
        began.append(task)
        if task == 0:
            raise ValueError("the first one fails")
        go_on.wait(10)

    with ThreadPoolExecutor(1) as pool:
        results = in_turn(pool, work, range(10), ahead=5)
        with pytest.raises(ValueError, match="first one"):
            next(results)
        go_on.set()
    assert set(began) <= {0, 1}
