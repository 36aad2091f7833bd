"""Equal bits on two nodes, also if one of them is killed in the middle of a round, five times."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from benchmarks.cluster.cells import TrialCell, TrialOutcome, cells, outcome
from benchmarks.cluster.machines import Nodes, left_over, nodes
from benchmarks.trials import Say

KILLS = 5
ROUNDS = 30
LOOK = 0.01
"""Seconds after which it is looked again whether a node is at a task."""
BREAK = 1.5
"""Seconds between rounds while a node is to be killed: it takes some time until one is ready."""


class Killer:
    """Kills a node while it is at a task, lets another one join after the round, and so on."""

    def __init__(self, at: Nodes, kills: int, seed: int = 0) -> None:
        self._nodes, self._draw = at, random.Random(seed)
        self._left = kills
        self._over = threading.Event()
        self._killing = self._hunt()
        self.killed = 0

    def _hunt(self) -> threading.Thread:
        thread = threading.Thread(target=self._kill, daemon=True)
        thread.start()
        return thread

    def __call__(self) -> None:
        """At the end of a round: let a node join if one was killed, and wait for it to be ready."""
        if not self._killing.is_alive() and self._left:
            self._nodes.add()
            self._killing = self._hunt()
        elif self._left:
            time.sleep(BREAK)

    def _kill(self) -> None:
        while not self._nodes.latest_works():
            if self._over.wait(LOOK):
                return
        time.sleep(self._draw.uniform(0.0, 5 * LOOK))
        self._nodes.kill()
        self.killed += 1
        self._left -= 1

    def join(self) -> None:
        """Stop, and replace the node that was killed last."""
        self._over.set()
        self._killing.join()
        if not self._nodes.others:
            self._nodes.add()


def compared(cell: TrialCell, kills: int, rounds: int, say: Say) -> dict[str, Any]:
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
    left = left_over(two.everything)
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


def _verdict(one: TrialOutcome, other: TrialOutcome) -> str:
    same = one.models == other.models and one.costs == other.costs
    return "models, states and costs are equal" if same else "THERE IS A DIFFERENCE"


def kills(say: Say) -> list[dict[str, Any]]:
    """Return what came of it for each cell."""
    return [compared(cell, KILLS, ROUNDS, say) for cell in cells()]
