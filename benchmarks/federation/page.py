"""Writes what the trials came to into docs/federation.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "federation.md"

FAILURES = """\
`python -m benchmarks.federation` kills real processes of a federation of five nodes behind TLS,
keys and gate, by SIGKILL, under SCAFFOLD:

| killed | times | what happened |
| --- | --- | --- |
| the server's process, at random moments | {kills} | resumed, the final model is {server} |
| the SuperLink, in mid-round, back after 10 s | 1 | {link_rounds}; the final model is {link} |
| a node, in mid-round, with a deadline of 20 s | {nodes} | {node_rounds}; {node_back} |

One node of five sends bad updates for three rounds. Each is refused, named and counted, and the
model is, bit by bit, that of the four others. The same nodes under Flower's own FedAvg:

| update | ebbflow says | Flower alone |
| --- | --- | --- |
{bad}"""

LATENCY = """\
Four sessions of three rounds, with three of five nodes at a time, on one machine with two cores
that had other work as well; softmax regression on the digits, whose training takes next to no time:

| algorithm | start | a round (median) | all, with processes up and down | final model |
| --- | --- | --- | --- | --- |
{rows}"""


def filled(text: str, parts: dict[str, str]) -> str:
    """Return a page with the text between its markers replaced."""
    for name, part in parts.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        text = f"{before}{opening}\n{part}\n\n{closing}{after}"
    return re.sub(r"\n{4,}", "\n\n\n", text)


def parts() -> dict[str, str]:
    """Return what stands between the markers."""
    return {"failures": failures(), "latency": latency()}


def failures() -> str:
    """Return the tables of what was killed and what was refused."""
    (server,), (link,) = _rows("server-kills"), _rows("link-kill")
    nodes, bad = _rows("node-kills"), _rows("bad-updates")[1:]
    for row in bad:
        if not (row["equal"] and row["refused"] == 3):
            raise ValueError(f"{row['update']} was not refused each time, or changed the model")
    slowest = max(row["seconds"] for row in nodes)
    return FAILURES.format(
        kills=server["kills"],
        server=_same(server),
        link_rounds=(
            f"{link['abandoned']} of {link['rounds']} rounds abandoned, the longest took "
            f"{link['longest round']:.0f} s"
        ),
        link=_same(link),
        nodes=len(nodes),
        node_rounds=(
            f"the round ended without it in {_share(nodes, 'without it')}, after {slowest:.1f} s "
            "at most"
        ),
        node_back=(
            f"restarted, it was a member of the next session in {_share(nodes, 'back')}, and its "
            f"update with the state from before was used in "
            f"{_share(nodes, 'its update is used again')}"
        ),
        bad="\n".join(f"| {row['update']} | {row['ebbflow']} | {row['flower']} |" for row in bad),
    )


def latency() -> str:
    """Return what a round takes, and that the bits are the simulator's."""
    lines = [
        f"| {row['algorithm']} | {row['start']} | {row['seconds a round']} s | {row['seconds']} s "
        f"| {_same(row)} |"
        for row in _rows("bits")
    ]
    return LATENCY.format(rows="\n".join(lines))


def _same(row: dict[str, Any]) -> str:
    return "the simulator's, by SHA-256" if row["equal"] else "**not the simulator's**"


def _share(rows: list[dict[str, Any]], key: str) -> str:
    return f"{sum(bool(row[key]) for row in rows)} of {len(rows)}"


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return rows


def write() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(), parts()))
