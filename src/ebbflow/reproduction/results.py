"""What a cell leaves in the repository: a CSV with its curves, a JSON with everything else.

Lanes (an algorithm with a way to start) that are in the same place share a line of the CSV. Devices
do the same work in all lanes, so that it is noted once; what was sent follows from the payloads.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ebbflow import accounting
from ebbflow.accounting import Cost
from ebbflow.bench.machine import instructions, machine, versions
from ebbflow.config import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.records import ENVIRONMENT, Records, Round, read_json
from ebbflow.reproduction.cells import Cell, described
from ebbflow.reproduction.windows import Window

RESULTS = Path("results")
"""The folder of the results that are kept, in the repository."""
FORMAT = 1


class Lane(NamedTuple):
    """Whose curve: an algorithm with a way to start, in one session."""

    algorithm: str
    method: str
    session: int


@dataclass(frozen=True)
class Result:
    """A cell's outcome: its curves (percent, by round) and the facts of its JSON file."""

    name: str
    facts: Mapping[str, Any]
    curves: Mapping[Lane, Sequence[float]]

    @property
    def digest(self) -> str:
        """What it was made with."""
        return str(self.facts["hash"])

    @cached_property
    def config(self) -> Config:
        """The configuration it was made with."""
        return Config.model_validate(self.facts["config"])

    @property
    def seed(self) -> int:
        """The only seed."""
        return self.config.seeds[0]

    @property
    def pilot(self) -> int:
        """P."""
        return self.config.pilot.sessions

    def accuracy(self, lane: Lane, window: Window) -> float:
        """Return the accuracy of a session's window; a session before it there must be."""
        before = self.curves[lane._replace(session=lane.session - 1)]
        return window.accuracy(before, self.curves[lane])

    def rounds(self) -> Iterator[Round]:
        """Yield what records hold of every round, without losses and rates."""
        sessions = {s["session"]: s for s in self.facts["sessions"]}
        for lane, curve in self.curves.items():
            devices = sum(last - first + 1 for first, last in sessions[lane.session]["devices"])
            for t, accuracy in enumerate(curve, start=1):
                names = lane.algorithm, lane.method, self.seed, lane.session
                yield Round(*names, t, accuracy, math.nan, math.nan, devices, devices)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield starts and costs as a run's records have them."""
        sessions = {s["session"]: s for s in self.facts["sessions"]}
        for lane in self.curves:
            about = {"algorithm": lane.algorithm, "method": lane.method, "seed": self.seed}
            here = sessions[lane.session]
            probed = lane.method in accounting.PROBING and lane.session > self.pilot
            drawn_on = self.start(lane)
            yield {
                "event": "start",
                **about,
                "session": lane.session,
                "devices": [
                    device for first, last in here["devices"] for device in range(first, last + 1)
                ],
                "rounds": here["rounds"],
                "probe_rounds": self.config.probe.rounds if probed else 0,
                **drawn_on,
            }
            yield {
                "event": accounting.EVENT,
                **about,
                "session": lane.session,
                "stages": accounting.written(self._costs(lane, here["work"], probed)),
                "stored": {},
            }

    def start(self, lane: Lane) -> dict[str, dict[str, float]]:
        """Return the weights mu and the distances that a session of the warm start drew on."""
        starts = self.facts["starts"].get(lane.algorithm, {}) if lane.method == "warm_start" else {}
        found: dict[str, dict[str, float]] = starts.get(str(lane.session), {})
        return {"weights": found.get("weights", {}), "distances": found.get("distances", {})}

    def _costs(
        self, lane: Lane, work: Mapping[str, Mapping[str, int]], probed: bool
    ) -> accounting.Costs:
        up, down = self.facts["sent"][lane.algorithm]
        if lane.method == "continuous" and self.config.continuous.base == "fedavg":
            up, down = self.facts["sent"].get("fedavg", (up, down))
        costs: accounting.Costs = {}
        for stage, counts in work.items():
            if stage == accounting.PROBE and not probed:
                continue
            cost = Cost(**counts)
            sent = Cost(bytes_up=cost.uploads * up, bytes_down=cost.broadcasts * down)
            costs = accounting.charged(costs, stage, cost + sent)
        return costs


# --- writing -------------------------------------------------------------------------------------


def write_result(
    cell: Cell, found: Records, results: Path, measured: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Write a cell's two files from a run's records; ``measured`` is what the run took."""
    results.mkdir(parents=True, exist_ok=True)
    table, facts = _paths(results, cell.name)
    write_atomically(table, _csv(found.rounds).encode())
    environment = {} if found.folder is None else read_json(found.folder / ENVIRONMENT)
    content = {
        "cell": cell.name,
        "format": FORMAT,
        "hash": cell.digest,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "machine": machine(),
        "dataset": environment.get("dataset", {}),
        **measured,
        "sessions": _sessions(found.events),
        "sent": _sent(found.events),
        "starts": _starts(found.events),
        "config": described(cell.config),
    }
    write_atomically(facts, _compact(content).encode())
    return table, facts


def _paths(results: Path, name: str) -> tuple[Path, Path]:
    return results / f"{name}.csv", results / f"{name}.json"


def _csv(rounds: Iterable[Round]) -> str:
    curves: dict[Lane, list[str]] = {}
    for r in sorted(rounds, key=lambda r: (r.session, r.round)):
        lane = Lane(r.algorithm, r.method, r.session)
        curves.setdefault(lane, []).append(f"{r.accuracy:.3f}")
    alike: dict[tuple[int, str], list[str]] = {}
    for lane, curve in curves.items():
        key = lane.session, " ".join(curve)
        alike.setdefault(key, []).append(f"{lane.algorithm}/{lane.method}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["session", "lanes", "accuracy"])
    writer.writerows([session, " ".join(lanes), c] for (session, c), lanes in alike.items())
    return text.getvalue()


def _compact(content: Mapping[str, Any]) -> str:
    """Return JSON with a line for every key of the first level."""
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _sessions(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return who was there in each session, and what the devices did, stage by stage."""
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start" and event["session"] not in found:
            found[event["session"]] = {
                "session": event["session"],
                "rounds": event["rounds"],
                "labels": event["labels"],
                "devices": _ranges(event["devices"]),
                "work": {},
            }
        if event["event"] == accounting.EVENT:
            work = found[event["session"]]["work"]
            for stage, cost in accounting.read(event["stages"]).items():
                if cost.uploads:
                    local = Cost(cost.uploads, cost.broadcasts, cost.steps, cost.samples).counts()
                    if work.setdefault(stage, local) != local:
                        raise ValueError(f"lanes did unequal work in session {event['session']}")
    return list(found.values())


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as ranges, both ends included.

    >>> _ranges([0, 1, 2, 7, 8])
    [[0, 2], [7, 8]]
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


def _sent(events: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the bytes of one upload and of one broadcast, by algorithm."""
    found: dict[str, list[int]] = {}
    for event in events:
        if event["event"] == accounting.EVENT and event["method"] != "continuous":
            for cost in accounting.read(event["stages"]).values():
                if cost.uploads:
                    each = [cost.bytes_up // cost.uploads, cost.bytes_down // cost.broadcasts]
                    found.setdefault(event["algorithm"], each)
    return found


def _starts(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the warm start's weights mu and distances, by algorithm and session."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start" and event["method"] == "warm_start" and event["weights"]:
            found.setdefault(event["algorithm"], {})[str(event["session"])] = {
                "weights": {z: float(f"{mu:.4g}") for z, mu in event["weights"].items()},
                "distances": {z: float(f"{d:.4g}") for z, d in event["distances"].items()},
            }
    return found


# --- reading -------------------------------------------------------------------------------------


def result_digest(results: Path, name: str) -> str | None:
    """Return what a cell's result was made with, or None where there is none."""
    table, facts = _paths(results, name)
    if not (table.is_file() and facts.is_file()):
        return None
    return str(read_json(facts).get("hash"))


def other_instructions(results: Path, name: str) -> str | None:
    """Return a warning if a cell's kept result was made with other instructions of the processor.

    None where there is no result, and for one that does not name them.
    """
    _, facts = _paths(results, name)
    if not facts.is_file():
        return None
    before, now = read_json(facts).get("machine", {}).get("instructions"), instructions()
    if before is None or before == now:
        return None
    return (
        f"the kept result {facts} was made with other instructions of the processor ({before}) "
        f"than are used now ({now}): do not expect the same digits"
    )


def read_result(results: Path, name: str) -> Result:
    """Return a cell's result."""
    table, facts = _paths(results, name)
    if not (table.is_file() and facts.is_file()):
        raise EbbflowError(f"there is no result {table}: make it by `ebbflow paper run`")
    return _read(table, facts, name, (table.stat().st_mtime_ns, facts.stat().st_mtime_ns))


@cache
def _read(table: Path, facts: Path, name: str, written: tuple[int, int]) -> Result:
    content = read_json(facts)
    if content.get("format") != FORMAT:
        raise EbbflowError(f"{facts} is not of this version: remove it, and run the cell again")
    curves: dict[Lane, list[float]] = {}
    try:
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                curve = [float(value) for value in row["accuracy"].split()]
                for lane in row["lanes"].split():
                    algorithm, method = lane.split("/")
                    curves[Lane(algorithm, method, int(row["session"]))] = curve
    except (KeyError, ValueError):
        raise EbbflowError(f"{table} holds no curves: restore it, or run the cell again") from None
    return Result(name, content, curves)
