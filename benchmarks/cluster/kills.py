"""Equal bits on two nodes, also if one of them is killed in the middle of a round, five times."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cluster.cells import Cell, Outcome, cells, outcome
from benchmarks.cluster.machines import Nodes, left_over, nodes

Say = Callable[[str], None]
KILLS = 5


class Killer:
    """Kills a node within every second round, and lets another one join after it."""

    def __init__(self, at: Nodes, kills: int, seed: int = 0) -> None:
        self._nodes, self._draw = at, random.Random(seed)
        self._left, self._last = kills, time.monotonic()
        self._killing: threading.Thread | None = None
        self.killed = 0

    def __call__(self) -> None:
        """Note the end of a round: a node joins, or one is killed within the next round."""
        now = time.monotonic()
        took, self._last = now - self._last, now
        if self._killing is not None:
            self.join()
        elif self._left:
            self._left -= 1
            after = self._draw.uniform(0.2, 0.6) * took
            self._killing = threading.Thread(target=self._kill, args=(after,), daemon=True)
            self._killing.start()

    def _kill(self, after: float) -> None:
        time.sleep(after)
        self._nodes.kill()
        self.killed += 1

    def join(self) -> None:
        """Wait for the kill, and let a node join in the place of the one that is gone."""
        if self._killing is not None:
            self._killing.join()
            self._killing = None
            self._nodes.add()


def compared(cell: Cell, kills: int, rounds: int, say: Say) -> dict[str, Any]:
    """Run a cell here, on two nodes, and on two nodes of which one is killed."""
    here = outcome(cell, cell.config())
    with nodes(2) as two:
        there = outcome(cell, cell.config(**_on(two)))
        say(f"{cell.name}: {_verdict(here, there)} on two nodes")
        long = {"rounds": rounds, "pilot.rounds": rounds}
        expected = outcome(cell, cell.config(**long))
        killer = Killer(two, kills)
        killed = outcome(cell, cell.config(**long, **_on(two)), killer)
        killer.join()
        say(f"{cell.name}: {_verdict(expected, killed)} after {killer.killed} kills")
        every = [*two.started, *two.processes()]
    left = left_over(every)
    return {
        "cell": cell.name,
        "equal": here.models == there.models,
        "costs": here.costs == there.costs,
        "kills": killer.killed,
        "computed again": killed.recomputed,
        "equal after kills": expected.models == killed.models,
        "costs after kills": expected.costs == killed.costs,
        "processes left": len(left),
        "theta": here.models[-1][:16],
        "seconds": round(killed.seconds, 1),
        "seconds without kills": round(expected.seconds, 1),
    }


def _on(at: Nodes) -> dict[str, Any]:
    return {"engine.kind": "ray", "engine.address": at.address}


def _verdict(one: Outcome, other: Outcome) -> str:
    same = one.models == other.models and one.costs == other.costs
    return "models, states and costs are equal" if same else "THERE IS A DIFFERENCE"


def kills(say: Say) -> list[dict[str, Any]]:
    """Return what came of it for each cell."""
    return [compared(cell, KILLS, 6, say) for cell in cells()]
