"""Disks that refuse: full, without inodes, read-only, somebody else's; at every kind of call."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chaos.calls import Calls, watched
from benchmarks.chaos.damage import Damage
from benchmarks.chaos.kinds import results, run_to_the_end, wrong
from ebbflow.core.errors import EbbflowError

REFUSALS = {
    "disk full": errno.ENOSPC,
    "quota used up": errno.EDQUOT,
    "read-only": errno.EROFS,
    "somebody else's": errno.EACCES,
    "error of the disk": errno.EIO,
}


def refuse(kind: str, scratch: Path, trials: int, refusal: str) -> Damage:
    """Let a run's calls fail from some call on; then mend the disk, and resume."""
    draw = random.Random(f"{kind} {refusal}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    whole, run = scratch / "whole", scratch / "run"
    counting = Calls(whole, lambda: None)
    with watched(counting):
        run_to_the_end(kind, whole)
    expected = results(whole)
    noticed = harmless = 0
    found: list[str] = []
    for _ in range(trials):
        shutil.rmtree(run, ignore_errors=True)
        place = draw.randrange(1, counting.count)
        try:
            with watched(_Refusing(run, _raising(REFUSALS[refusal]), place)):
                run_to_the_end(kind, run)
        except (EbbflowError, OSError):  # the command line makes a sentence of either
            noticed += 1
        else:
            harmless += 1
        run_to_the_end(kind, run)
        problem = wrong(run, expected)
        if problem:
            found.append(f"{counting.names[place - 1]}, call {place}: {problem}")
    return Damage(refusal, trials, noticed, harmless, tuple(found))


class _Refusing(Calls):
    """Acts at every call from one on, not at that one alone."""

    def reached(self, name: str, path: str, more: Any = None) -> None:
        if self._at is not None and self.count >= self._at - 1 and name != "unlink":
            self._at = self.count + 1
        super().reached(name, path, more)


def _raising(number: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act
