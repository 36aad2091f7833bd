"""The same disturbances for ebbflow and for other simulators, each in an environment of its own.

What is said about each is made from what happened. The peers save as their documentation shows
(`benchmarks/peers/flower_trials.py`, `pfl_trials.py`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.chaos.crashes import crash
from benchmarks.chaos.damage import stop_half_way
from benchmarks.chaos.full_disk import refuse
from benchmarks.chaos.kinds import KINDS, configured, copied, flip, results, run_to_the_end
from benchmarks.peer_runs import belongs_to_peer, known_peers, peer_environment
from benchmarks.peers.trials import ROUNDS
from ebbflow import experiment
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths
from ebbflow.simulation.building import build_world

NAMES = {"flower": "Flower", "pfl": "pfl-research"}
ROWS = ("bad update", "killed server", "flipped bit in a checkpoint", "full disk")
FLIPS = 100
PATIENCE = 600
SAME = {True: "the same result", False: "another result"}
ROUNDING = 1e-5
"""Two undisturbed runs of Flower differ by less."""


class Flips(NamedTuple):
    """How often a flipped bit was told, made no difference, or gave another model in silence."""

    told: int
    same: int
    silent: int

    def __str__(self) -> str:
        return (
            f"of {sum(self)} flips {self.told} noticed, {self.same} without effect, "
            f"{self.silent} silently another model"
        )


# --- ebbflow -------------------------------------------------------------------------------------


def ourselves(scratch: Path, flips: int) -> list[str]:
    """Return what happens to ebbflow, row by row."""
    scratch.mkdir(parents=True, exist_ok=True)
    kind = next(iter(KINDS))
    died = crash(kind, scratch / "killed", 1)
    full = refuse(kind, scratch / "full", 1, "disk full")
    told = "stops with a sentence" if full.noticed else "no word"
    return [
        _bad_update(kind),
        f"resumes, {SAME[not died.wrong]}",
        str(_flipped(kind, scratch, flips)),
        f"{told}; resumes, {SAME[not full.wrong]}",
    ]


def _bad_update(kind: str) -> str:
    config = configured(kind)
    usual = build_world(config, experiment.prepared(config, None), 1)
    train = usual.dataset.train
    x, bad = train.x.float().clone(), usual.sessions[0].devices[0]
    x[torch.from_numpy(usual.sessions[0].shards[bad])] *= math.nan
    spoilt = Dataset("spoilt", Examples(x, train.y), usual.dataset.test, usual.dataset.classes)
    found = experiment.run(config, dataset=spoilt)
    named = any(e["event"] == "left_out" and e["devices"] == [bad] for e in found.events)
    finite = all(math.isfinite(each.loss) for each in found.rounds)
    if not finite:
        return "model not finite"
    return "refused and named; the round goes on" if named else "no word"


def _flipped(kind: str, scratch: Path, flips: int) -> Flips:
    """Flip bits of the newest checkpoint of a run that was stopped, and resume it."""
    whole, half, run = scratch / "whole", scratch / "half", scratch / "run"
    run_to_the_end(kind, whole)
    stop_half_way(kind, half)
    expected, draw = results(whole), random.Random(0)
    told = same = silent = 0
    for _ in range(flips):
        copied(half, run)
        newest = checkpoint_paths(run)[0]
        flip(draw.choice([newest, newest.with_suffix(".safetensors")]), draw)
        try:
            run_to_the_end(kind, run)
        except EbbflowError:
            told += 1
            continue
        events = records.read_events(run)
        noticed = any("went on from" in e.get("text", "") for e in events)
        if results(run) != expected and not noticed:
            silent += 1
        elif noticed:
            told += 1
        else:
            same += 1
    return Flips(told, same, silent)


# --- the others ----------------------------------------------------------------------------------


class PeerTrials:
    """Starts one peer again and again, disturbed or not."""

    def __init__(self, name: str, start: dict[str, Any], scratch: Path) -> None:
        self.name, self._start, self._scratch = name, start, scratch

    def run(self, folder: str, disturbance: str, *more: str) -> tuple[int, str, dict[str, Any]]:
        """Return the exit code, what was printed, and the result, if there is one."""
        home, where = self._scratch / "home", self._scratch / folder
        home.mkdir(parents=True, exist_ok=True)
        where.mkdir(exist_ok=True)
        result = where / "result.json"
        result.unlink(missing_ok=True)
        module = f"benchmarks.peers.{self.name}_trials"
        log = self._scratch / f"{folder}.log"
        try:
            with log.open("wb") as out:
                code = subprocess.run(
                    [self._start["python"], "-m", module, str(where), disturbance, *more],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=self._start["root"],
                    env=peer_environment(self._start, home),
                    timeout=PATIENCE,
                    check=False,
                ).returncode
        finally:
            _end_those_left(home)
        found = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
        return code, log.read_text(encoding="utf-8", errors="replace"), found

    def rows(self, flips: int) -> list[str]:
        """Return what happens to the peer, row by row."""
        whole = self.run("whole", "none")[2]
        if not whole:
            return ["could not be run here"] * len(ROWS)
        return [
            self._bad_update(),
            self._killed(whole["theta"]),
            str(Flips(**self.run("whole", "flips", str(flips))[2])),
            self._full_disk(whole["theta"]),
        ]

    def _bad_update(self) -> str:
        code, text, found = self.run("bad", "bad")
        word = (
            "said in its log" if re.search(r"\b(nan|not finite|non-finite)\b", text, re.I) else ""
        )
        if not found:
            return f"ends with exit code {code}"
        if found["finite"]:
            return "left out; the round goes on"
        return f"the model is not finite, {word or 'no word'}"

    def _killed(self, expected: list[float]) -> str:
        self.run("killed", "kill")
        code, _, found = self.run("killed", "none")
        if not found:
            return f"cannot be started again (exit code {code})"
        return _went_on(found, expected)

    def _full_disk(self, expected: list[float]) -> str:
        _, _, found = self.run("full", "full")
        then = "goes on without saving" if found else "stops with a traceback"
        code, _, found = self.run("full", "none")
        if found:
            then += "; then"
        else:
            then += "; cannot read its last checkpoint, and when that is deleted by hand"
            self.run("full", "forget")
            code, _, found = self.run("full", "none")
        if not found:
            return f"{then}; ends with exit code {code}"
        return f"{then} {_went_on(found, expected)}"


def _went_on(found: dict[str, Any], expected: list[float]) -> str:
    rounds, theta = found["rounds"], found["theta"]
    how = "begins anew" if rounds == ROUNDS else f"computes the last {rounds} rounds"
    apart = max((abs(a - b) for a, b in zip(theta, expected, strict=True)), default=math.inf)
    rounded = " up to rounding" if 0 < apart < ROUNDING else ""
    return f"{how}, {SAME[apart < ROUNDING]}{rounded}"


def _end_those_left(home: Path) -> None:
    """End the processes of a peer that outlived it, as Ray's do when it is killed."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and belongs_to_peer(int(entry.name), home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


def compare(scratch: Path, folder: Path, flips: int) -> dict[str, list[str]]:
    """Return what happened to each, by name."""
    found = {"ebbflow": ourselves(scratch / "ebbflow", flips)}
    known = known_peers(folder)
    for name, title in NAMES.items():
        if name in known:
            found[title] = PeerTrials(name, known[name], scratch / name).rows(flips)
    return found
