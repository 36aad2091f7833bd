"""The kept result of a cell: a CSV file with its curves, a JSON file with everything else.

Lanes (an algorithm with a start) whose curves are equal share a line of the CSV. Devices do the
same work in all lanes, so it is written once; what was sent follows from the size of a payload.
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

from chang2025.cells import Cell
from chang2025.windows import Window
from ebbflow.analysis import accounting
from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core import counters
from ebbflow.core.counters import Cost
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.runs.environment import machine, versions
from ebbflow.runs.records import ENVIRONMENT, Round, RunRecords, read_json
from ebbflow.simulation.methods import algorithm_name
from ebbflow.sweeps.digests import result_settings

FORMAT = 1
UNRECORDED_CAPABILITY = "AVX2"
"""Of the results that do not name theirs: all come from one machine, whose processor (family 25,
model 1) has no AVX-512."""
HELD = ("samples", "smallest_batch")
"""What a session's start says of its devices; first editions did not record it."""


class CurveKey(NamedTuple):
    """Identifies a curve: its algorithm, its start and its session."""

    algorithm: str
    method: str
    session: int


@dataclass(frozen=True)
class Result:
    """A cell's outcome: its curves (percent, by round) and the facts of its JSON file."""

    name: str
    facts: Mapping[str, Any]
    curves: Mapping[CurveKey, Sequence[float]]

    @property
    def digest(self) -> str:
        """The digest of the settings it was made with."""
        return str(self.facts["hash"])

    @cached_property
    def config(self) -> Config:
        """The configuration it was made with."""
        return read_written(self.facts["config"], self.name)

    @property
    def capability(self) -> str:
        """The instruction set that torch computed with, as in AVX2."""
        return str(self.facts.get("capability", UNRECORDED_CAPABILITY))

    @property
    def seed(self) -> int:
        """The only seed."""
        return self.config.seeds[0]

    @property
    def pilot(self) -> int:
        """P."""
        return self.config.pilot.sessions

    def accuracy(self, key: CurveKey, window: Window) -> float:
        """Return the mean accuracy over a session's window; the session must have one before it."""
        before = self.curves[key._replace(session=key.session - 1)]
        return window.accuracy(before, self.curves[key])

    def rounds(self) -> Iterator[Round]:
        """Yield what records hold of every round, without losses and rates."""
        sessions = {s["session"]: s for s in self.facts["sessions"]}
        for key, curve in self.curves.items():
            devices = sum(last - first + 1 for first, last in sessions[key.session]["devices"])
            for t, accuracy in enumerate(curve, start=1):
                names = key.algorithm, key.method, self.seed, key.session
                yield Round(*names, t, accuracy, math.nan, math.nan, devices, devices)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield starts and costs as a run's records have them."""
        sessions = {s["session"]: s for s in self.facts["sessions"]}
        for key in self.curves:
            about = {"algorithm": key.algorithm, "method": key.method, "seed": self.seed}
            here = sessions[key.session]
            probed = accounting.probes(key.method) and key.session > self.pilot
            drawn_on = self.start(key)
            yield {
                "event": "start",
                **about,
                "session": key.session,
                "devices": [
                    device for first, last in here["devices"] for device in range(first, last + 1)
                ],
                **{name: here[name] for name in HELD if name in here},
                "rounds": here["rounds"],
                "probe_rounds": self.config.probe.rounds if probed else 0,
                **drawn_on,
            }
            yield {
                "event": counters.EVENT,
                **about,
                "session": key.session,
                "stages": counters.written(self._costs(key, here["work"], probed)),
                "stored": {},
            }

    def start(self, key: CurveKey) -> dict[str, dict[str, float]]:
        """Return the weights mu and the distances that a session of the warm start drew on."""
        starts = self.facts["starts"].get(key.algorithm, {}) if key.method == "warm_start" else {}
        drawn_on: dict[str, dict[str, float]] = starts.get(str(key.session), {})
        return {"weights": drawn_on.get("weights", {}), "distances": drawn_on.get("distances", {})}

    def _costs(
        self, key: CurveKey, work: Mapping[str, Mapping[str, int]], probed: bool
    ) -> counters.Costs:
        sent_by, group = self.facts["sent"], key.algorithm
        up, down = sent_by.get(algorithm_name(self.config, key.method, group), sent_by[group])
        costs: counters.Costs = {}
        for stage, counts in work.items():
            if stage == counters.PROBE and not probed:
                continue
            cost = Cost(**counts)
            sent = Cost(bytes_up=cost.uploads * up, bytes_down=cost.broadcasts * down)
            costs = counters.charged(costs, stage, cost + sent)
        return costs


# --- writing -------------------------------------------------------------------------------------


def write_result(
    cell: Cell, records: RunRecords, results: Path, measured: Mapping[str, Any]
) -> tuple[Path, Path]:
    """Write a cell's two files from a run's records; ``measured`` is what the run took."""
    results.mkdir(parents=True, exist_ok=True)
    table, facts = _paths(results, cell.name)
    write_atomically(table, _csv(records.rounds).encode())
    environment = {} if records.folder is None else read_json(records.folder / ENVIRONMENT)
    content = {
        "cell": cell.name,
        "format": FORMAT,
        "hash": cell.digest,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "machine": machine(),
        "dataset": environment.get("dataset", {}),
        **measured,
        "sessions": _sessions(records.events),
        "sent": _sent(records.events),
        "starts": _starts(records.events),
        "config": result_settings(cell.config),
    }
    write_atomically(facts, compact(content).encode())
    return table, facts


def _paths(results: Path, name: str) -> tuple[Path, Path]:
    return results / f"{name}.csv", results / f"{name}.json"


def _csv(rounds: Iterable[Round]) -> str:
    curves: dict[CurveKey, list[str]] = {}
    for r in sorted(rounds, key=lambda r: (r.session, r.round)):
        key = CurveKey(r.algorithm, r.method, r.session)
        curves.setdefault(key, []).append(f"{r.accuracy:.3f}")
    alike: dict[tuple[int, str], list[str]] = {}
    for key, curve in curves.items():
        line = key.session, " ".join(curve)
        alike.setdefault(line, []).append(f"{key.algorithm}/{key.method}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["session", "lanes", "accuracy"])
    writer.writerows([session, " ".join(lanes), c] for (session, c), lanes in alike.items())
    return text.getvalue()


def compact(content: Mapping[str, Any]) -> str:
    """Return JSON with a line for every key of the first level."""
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _sessions(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return who was there in each session, and what the devices did, stage by stage."""
    sessions: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start" and event["session"] not in sessions:
            sessions[event["session"]] = {
                "session": event["session"],
                "rounds": event["rounds"],
                "labels": event["labels"],
                "devices": _ranges(event["devices"]),
                **{name: event[name] for name in HELD if name in event},
                "work": {},
            }
        if event["event"] == counters.EVENT:
            work = sessions[event["session"]]["work"]
            for stage, cost in counters.read(event["stages"]).items():
                if cost.uploads:
                    local = Cost(cost.uploads, cost.broadcasts, cost.steps, cost.samples).counts()
                    if work.setdefault(stage, local) != local:
                        raise ValueError(f"lanes did unequal work in session {event['session']}")
    return list(sessions.values())


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
    sent: dict[str, list[int]] = {}
    for event in events:
        if event["event"] == counters.EVENT and event["method"] != "continuous":
            for cost in counters.read(event["stages"]).values():
                if cost.uploads:
                    each = [cost.bytes_up // cost.uploads, cost.bytes_down // cost.broadcasts]
                    sent.setdefault(event["algorithm"], each)
    return sent


def _starts(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the warm start's weights mu and distances, by algorithm and session."""
    starts: dict[str, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start" and event["method"] == "warm_start" and event["weights"]:
            starts.setdefault(event["algorithm"], {})[str(event["session"])] = {
                "weights": {z: float(f"{mu:.4g}") for z, mu in event["weights"].items()},
                "distances": {z: float(f"{d:.4g}") for z, d in event["distances"].items()},
            }
    return starts


# --- reading -------------------------------------------------------------------------------------


def result_digest(results: Path, name: str) -> str | None:
    """Return what a cell's result was made with, or None where there is none."""
    table, facts = _paths(results, name)
    if not (table.is_file() and facts.is_file()):
        return None
    return str(read_json(facts).get("hash"))


def kept_capabilities(results: Path) -> set[str]:
    """Return the instruction sets that the results of a folder were computed with."""
    return {
        str(read_json(path).get("capability", UNRECORDED_CAPABILITY))
        for path in results.glob("*-s*.json")
    }


def read_result(results: Path, name: str) -> Result:
    """Return a cell's result."""
    table, facts = _paths(results, name)
    if not (table.is_file() and facts.is_file()):
        raise EbbflowError(f"there is no result {table}: make it by `python -m chang2025 run`")
    return _read(table, facts, name, (table.stat().st_mtime_ns, facts.stat().st_mtime_ns))


@cache
def _read(table: Path, facts: Path, name: str, written: tuple[int, int]) -> Result:
    content = read_json(facts)
    if content.get("format") != FORMAT:
        raise EbbflowError(f"{facts} is not of this version: remove it, and run the cell again")
    curves: dict[CurveKey, list[float]] = {}
    try:
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                curve = [float(value) for value in row["accuracy"].split()]
                for lane in row["lanes"].split():
                    algorithm, method = lane.split("/")
                    curves[CurveKey(algorithm, method, int(row["session"]))] = curve
    except (KeyError, ValueError):
        raise EbbflowError(f"{table} holds no curves: restore it, or run the cell again") from None
    return Result(name, content, curves)
