"""Runs that die at file-system calls: at every one of a short run, and again while they resume."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.chaos.calls import Calls, die, in_child, watched
from benchmarks.chaos.kinds import KINDS, results, run_to_the_end, wrong


class Crashes(NamedTuple):
    """What became of the runs of one kind."""

    kind: str
    calls: int
    deaths: int
    in_writes: int
    in_resumes: int
    wrong: tuple[str, ...]


def crash(kind: str, scratch: Path, most: int | None, seed: int = 0) -> Crashes:
    """Let runs of a kind die at each file-system call, or at so many of them.

    After a death the run is resumed, and every third time it dies again on the way.
    """
    draw = random.Random(f"{kind} {seed}")
    whole, folder = scratch / "whole", scratch / "run"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    counting = Calls(whole, lambda: None)
    with watched(counting):
        run_to_the_end(kind, whole)
    expected = results(whole)
    places = list(range(1, counting.count + 1))
    if most is not None and most < len(places):
        places = sorted(draw.sample(places, most))
    deaths = writes = resumes = 0
    found: list[str] = []
    for number, place in enumerate(places):
        shutil.rmtree(folder, ignore_errors=True)
        deaths += in_child(_dying(kind, folder, place)) < 0
        writes += counting.names[place - 1] == "write"
        if number % 3 == 0:
            again = in_child(_dying(kind, folder, draw.randrange(1, 60))) < 0
            deaths, resumes = deaths + again, resumes + again
        code = in_child(lambda: run_to_the_end(kind, folder))
        problem = f"exit code {code}" if code else wrong(folder, expected)
        if problem:
            found.append(f"{counting.names[place - 1]}, call {place}: {problem}")
    return Crashes(kind, counting.count, deaths, writes, resumes, tuple(found))


def _dying(kind: str, folder: Path, place: int) -> Callable[[], None]:
    def action() -> None:
        with watched(Calls(folder, die, place)):
            run_to_the_end(kind, folder)

    return action


def every_kind(scratch: Path, most: int | None) -> list[Crashes]:
    """Let runs of all kinds die."""
    return [crash(kind, scratch, most) for kind in KINDS]
