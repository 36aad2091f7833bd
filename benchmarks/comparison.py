"""Writes how fast the peers were into docs/comparison.md, between its markers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.federation.page import filled
from benchmarks.results import Measurement, Results, Suite
from ebbflow.core.files import write_atomically

PAGE = "comparison.md"
PLACE = "speeds"
WORKS = {"W1": "softmax regression", "W5": "a perceptron", "W2": "a convolutional network"}
PEERS = {
    "flower": "Flower on Ray",
    "pfl": "pfl-research",
    "fedlab": "FedLab",
    "blazefl": "BlazeFL",
    "fedjax": "FedJAX",
}
WIDTH = 100


def speeds(results: Results) -> str:
    """Return how long the fastest and the slowest peer took; nothing if none was timed."""
    suites = [results.suites[name] for name in WORKS if name in results.suites]
    timed = [(suite, peers) for suite in suites if (peers := _peers(suite))]
    if not timed:
        return ""
    said = [_speed(suite, peers) for suite, peers in timed]
    cores = sorted({int(suite.machine["cores"]) for suite, _ in timed})
    where = " or ".join(_cores(count) for count in cores)
    return textwrap.fill(f"{' '.join(said)} That was on *{where} without a GPU*.", WIDTH)


def _peers(suite: Suite) -> list[Measurement]:
    """Return the peers that were timed, the fastest first."""
    timed = [row for row in suite.measurements if row.peer and row.seconds]
    return sorted(timed, key=lambda row: row.median)


def _speed(suite: Suite, peers: Sequence[Measurement]) -> str:
    ours = suite.measurements[0].median
    devices = re.findall(r"\d+(?= devices)", suite.title)[0]
    fastest, slowest = peers[0], peers[-1]
    sentence = (
        f"A round of {WORKS[suite.name]} on {devices} devices took the fastest peer, "
        f"{_named(fastest)}, {fastest.median / ours:.2f} times as long as ebbflow"
    )
    if fastest is slowest:
        return f"{sentence}."
    return f"{sentence}, and the slowest, {_named(slowest)}, {slowest.median / ours:.2f} times."


def _named(peer: Measurement) -> str:
    return PEERS.get(peer.name, peer.name)


def _cores(count: int) -> str:
    return {1: "one core", 2: "two cores", 4: "four cores"}.get(count, f"{count} cores")


def write_speeds(page: Path, results: Results) -> None:
    """Write them into a page that has a place for them."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if f"<!-- {PLACE} -->" in text and (said := speeds(results)):
        write_atomically(page, filled(text, {PLACE: said}).encode())
