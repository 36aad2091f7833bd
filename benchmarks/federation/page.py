"""Writes what the trials came to into docs/federation.md: python -m benchmarks.federation --page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "federation.md"


def filled(text: str, parts: dict[str, str]) -> str:
    """Return a page with the text between its markers replaced."""
    for name, part in parts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text)
    return text


def parts() -> dict[str, str]:
    """Return what stands between the markers."""
    return {"failures": failures(), "latency": latency()}


def failures() -> str:
    """Return the tables of what was killed and what was refused."""
    kills, link, nodes, bad = (
        _rows(name) for name in ("server-kills", "link-kill", "node-kills", "bad-updates")
    )
    (server,), (superlink,) = kills, link
    slowest = max(row["seconds"] for row in nodes)
    lines = [
        "`python -m benchmarks.federation` kills real processes of a federation of five nodes behind",
        "TLS, keys and gate, by SIGKILL, under SCAFFOLD:",
        "",
        "| killed | times | what happened |",
        "| --- | --- | --- |",
        f"| the server's process, at random moments | {server['kills']} | `ebbflow federate resume` "
        f"went on each time; the final model is {_same(server)} |",
        f"| the SuperLink, in the middle of a round, back after 10 s | 1 | {superlink['abandoned']} "
        f"of {superlink['rounds']} rounds abandoned, the longest took "
        f"{superlink['longest round']:.0f} s; the final model is {_same(superlink)} |",
        f"| a node, in the middle of a round, deadline 20 s | {len(nodes)} | the round ended without "
        f"it in {_all(nodes, 'without it')}, after {slowest:.1f} s at most; restarted, it was a "
        f"member of the next session with its state in {_all(nodes, 'back')} |",
        "",
        "One node of five sends bad updates for three rounds. Each was refused, named and counted, "
        "and",
        "the model is, bit by bit, that of the four others. The same nodes under Flower's own FedAvg:",
        "",
        "| update | ebbflow says | Flower alone |",
        "| --- | --- | --- |",
    ]
    for row in bad:
        if row["update"] == "honest":
            continue
        if not (row["equal"] and row["refused"] == 3):
            raise ValueError(f"{row['update']} was not refused each time, or changed the model")
        lines.append(f"| {row['update']} | {row['ebbflow']} | {row['flower']} |")
    return "\n".join(lines)


def latency() -> str:
    """Return what a round takes, and that the bits are the simulator's."""
    rows = _rows("bits")
    lines = [
        "Four sessions of three rounds each with three of five nodes, on one machine with two cores,",
        "the digits and softmax regression; a round without the training itself takes as long:",
        "",
        "| algorithm | start | seconds a round (median) | all of it, with processes up and down | "
        "final model |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['algorithm']} | {row['start']} | {row['seconds a round']} | {row['seconds']} s | "
        f"{_same(row)} |"
        for row in rows
    ]
    return "\n".join(lines)


def _same(row: dict[str, Any]) -> str:
    return "the simulator's, by SHA-256" if row["equal"] else "**not the simulator's**"


def _all(rows: list[dict[str, Any]], key: str) -> str:
    return f"{sum(bool(row[key]) for row in rows)} of {len(rows)}"


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return rows


def write() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(), parts()))
