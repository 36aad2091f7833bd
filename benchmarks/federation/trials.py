"""What is tried with real federations: processes, TLS, keys, a gate, and what is killed meanwhile.

Every trial makes a federation in a temporary folder, runs it with real processes on loopback, and
returns rows for a table. Nothing is mocked.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.federation.bad_updates import bad_updates
from benchmarks.trials import Say
from ebbflow.flower.launch.driving import Driver, ServerDiedError, turns_of
from ebbflow.flower.launch.folder import node_name
from ebbflow.flower.launch.launcher import LINK, Federation, clean, taken_up
from ebbflow.flower.launch.making import divided_digits, make_federation
from ebbflow.flower.launch.process_table import descendants, everything
from ebbflow.flower.saving import final_theta, is_written_to
from ebbflow.flower.strategy import Local
from ebbflow.rehearsing import federation_scores, model_digest, rehearse, training_settings

NODES, ROUNDS, TURNS = 5, 3, "0 1 2, 2 3 4"


@contextmanager
def federation(slow: float = 0.0, **run: Any) -> Iterator[Federation]:
    """Make a federation of five nodes in a temporary folder, and remove it again."""
    with tempfile.TemporaryDirectory(prefix="ebbflow-federation-") as parent:
        folder = Path(parent) / "it"
        make_federation(folder, NODES, run=run)
        if slow:
            task = folder / "app" / "federation_app" / "task.py"
            text = task.read_text().replace(
                '    tensors = load_file(folder / "data',
                f'    time.sleep({slow})\n    tensors = load_file(folder / "data',
            )
            task.write_text(text.replace("from pathlib", "import time\nfrom pathlib"))
        here = Federation(folder)
        try:
            with taken_up(here):
                yield here
        finally:
            clean(folder, everything=True)


def history_of(here: Federation) -> Path:
    """Return where the server writes."""
    return here.folder.path / "run" / "history"


def digests(here: Federation, algorithm: str, start: str) -> tuple[str, str]:
    """Return the digests of the federation's final model and of the simulator's."""
    found = federation_scores(history_of(here))
    members = {score.session: score.members for score in found}
    local = Local()
    twin = rehearse(
        divided_digits(NODES),
        list(members.values()),
        algorithm=algorithm,
        start=start,
        rounds=ROUNDS,
        seed=1,
        settings={"model.kind": "softmax", **training_settings(local)},
    )
    return model_digest(final_theta(history_of(here))), twin.digest


def bits(say: Say) -> list[dict[str, Any]]:
    """Compare final models with the simulator's: two algorithms, two starts, A B A B."""
    rows = []
    for algorithm in ("fedavg", "scaffold"):
        for start in ("warm_start", "learned"):
            began = time.monotonic()
            with federation(
                turns=TURNS, algorithm=algorithm, start=start, sessions=4, rounds=ROUNDS
            ) as here:
                Driver(here, turns_of(TURNS), say).go()
                real, simulated = digests(here, algorithm, start)
                seconds = [line["seconds"] for line in _rounds(here)]
            rows.append(
                {
                    "algorithm": algorithm,
                    "start": start,
                    "federation": real,
                    "simulator": simulated,
                    "equal": real == simulated,
                    "seconds a round": round(sorted(seconds)[len(seconds) // 2], 1),
                    "seconds": round(time.monotonic() - began),
                }
            )
            say(str(rows[-1]))
    return rows


class _ServerKiller(threading.Thread):
    """Kills the server's part of the app at random moments."""

    def __init__(self, here: Federation, kills: int, draw: random.Random, say: Say) -> None:
        super().__init__(daemon=True)
        self._here, self._left, self._draw, self._say = here, kills, draw, say
        self.killed: list[str] = []

    def run(self) -> None:
        while self._left:
            if not is_written_to(history_of(self._here)):
                time.sleep(0.1)
                continue
            time.sleep(self._draw.uniform(1, 12))  # shorter, so that all kills fall into the run
            executor = self._here.processes.running("executor")
            table = everything()
            roots = [each for each in table if executor and each.pid == executor.pid]
            victims = [each for each in descendants(roots, table) if each not in roots]
            if not victims or not is_written_to(history_of(self._here)):
                continue
            for victim in victims:
                os.kill(victim.pid, signal.SIGKILL)
            self._left -= 1
            lines = _rounds(self._here)
            self.killed.append(
                f"session {lines[-1]['session']}, after round {lines[-1]['round']}"
                if lines
                else "before round 1"
            )
            self._say(f"killed the server: {self.killed[-1]}")
            while is_written_to(history_of(self._here)):
                time.sleep(0.05)
            time.sleep(1)


def server_kills(say: Say) -> list[dict[str, Any]]:
    """Kill the server's process ten times under SCAFFOLD; go on each time with one call."""
    with federation(
        turns=TURNS, algorithm="scaffold", start="warm_start", sessions=4, rounds=ROUNDS
    ) as here:
        killer = _ServerKiller(here, 10, random.Random(3), say)
        killer.start()
        resumed = 0
        while True:
            try:
                seen = Driver(here, turns_of(TURNS), say).go()
            except ServerDiedError:
                resumed += 1
                continue
            if seen.outcome == "completed":
                break
        real, simulated = digests(here, "scaffold", "warm_start")
    return [
        {
            "kills": len(killer.killed),
            "resumed": resumed,
            "moments": killer.killed,
            "equal": real == simulated,
            "federation": real,
            "simulator": simulated,
        }
    ]


def link_kill(say: Say) -> list[dict[str, Any]]:
    """Kill the SuperLink in the middle of a round, and start it again after ten seconds."""
    with federation(
        turns=TURNS, algorithm="scaffold", start="warm_start", sessions=2, rounds=ROUNDS
    ) as here:

        def disturb() -> None:
            while len(_rounds(here)) < 1:
                time.sleep(0.2)
            time.sleep(2.5)
            here.kill(LINK)
            say("killed the SuperLink")
            time.sleep(10)
            here.start_link()
            say("the SuperLink is back")

        other = threading.Thread(target=disturb, daemon=True)
        other.start()
        seen = Driver(here, turns_of(TURNS), say).go()
        other.join()
        real, simulated = digests(here, "scaffold", "warm_start")
        lines = _rounds(here)
    return [
        {
            "outcome": seen.outcome,
            "rounds": len(lines),
            "abandoned": sum(bool(line["abandoned"]) for line in lines),
            "longest round": max(line["seconds"] for line in lines),
            "equal": real == simulated,
        }
    ]


def node_kills(say: Say, kills: int = 10, deadline: float = 20.0) -> list[dict[str, Any]]:
    """Kill a node in the middle of a round, and see it in the next session once it is back."""
    everybody = " ".join(map(str, range(NODES)))
    killed: list[dict[str, Any]] = []
    with federation(
        slow=3.0,
        turns=everybody,
        algorithm="scaffold",
        start="previous",
        sessions=kills + 1,
        rounds=2,
        deadline=deadline,
        states="keep",
    ) as here:
        draw = random.Random(5)

        def disturb() -> None:
            for session in range(1, kills + 1):
                victim = draw.randrange(NODES)
                _wait(partial(_has_rounds, here, session, 1))
                received = _received(here, victim)
                _wait(partial(_has_received, here, victim, received + 1))
                time.sleep(0.5)
                here.kill(node_name(victim))
                say(f"killed node {victim} in session {session}")
                # Once the session is over, the driver starts the node again.
                _wait(partial(_has_rounds, here, session, 2))
                killed.append({"session": session, "node": victim})

        other = threading.Thread(target=disturb, daemon=True)
        other.start()
        Driver(here, turns_of(everybody), say).go()
        other.join(5)
        members = [
            event["members"]
            for event in Driver(here, (), say).recorded.events()
            if event["event"] == "session"
        ]
        for row in killed:
            line = _of(here, row["session"])[1]
            row |= {
                "seconds": line["seconds"],
                "without it": row["node"] not in line["used"] and len(line["used"]) == NODES - 1,
                "back": row["node"] in members[row["session"]],
                "in time": line["seconds"] <= deadline + 2,
                "its update is used again": row["node"] in _of(here, row["session"] + 1)[0]["used"],
            }
    return killed


def _wait(condition: Callable[[], bool], seconds: float = 400) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("what was waited for has not happened")
        time.sleep(0.1)


def _rounds(here: Federation) -> list[dict[str, Any]]:
    lines = Driver(here, (), lambda sentence: None).recorded.rounds()
    return [line for line in lines if line["round"]]


def _of(here: Federation, session: int) -> list[dict[str, Any]]:
    return [line for line in _rounds(here) if line["session"] == session]


def _has_rounds(here: Federation, session: int, count: int) -> bool:
    return len(_of(here, session)) >= count


def _received(here: Federation, node: int) -> int:
    """Return how many messages to train a node has received since it was first started."""
    log = here.folder.log(f"{node_name(node)}-supernode")
    return log.read_text(errors="replace").count("Receiving: train")


def _has_received(here: Federation, node: int, count: int) -> bool:
    return _received(here, node) >= count


TRIALS = {
    "bad-updates": bad_updates,
    "bits": bits,
    "server-kills": server_kills,
    "link-kill": link_kill,
    "node-kills": node_kills,
}
