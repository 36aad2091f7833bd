"""Writes what the trials came to into docs/cluster.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.federation.page import filled

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

KILLS = """\
`python -m benchmarks.sweeps kills ray` computes {cells} cells on the digits and on part of MNIST,
and kills processes by SIGKILL meanwhile:

| computed by | killed | done | curves equal to single runs | begun anew though saved |
| --- | --- | --- | --- | --- |
{rows}

A cell that is killed before its first round is over has nothing to keep, and begins again: that
happened {again} times in all three sweeps together. Everything else went on from a checkpoint."""

ESTIMATES = """\
What `--dry-run` told of twelve different cells, and what they then took on one worker with both
cores of a machine ({machine}), by `python -m benchmarks.sweeps estimates`:

| cell | time told / taken | memory told / taken |
| --- | ---: | ---: |
{rows}"""


def parts() -> dict[str, str]:
    """Return what stands between the markers; nothing where nothing was tried."""
    tried = (RESULTS / "estimates.json").exists()
    return {"sweep kills": kill_table(), "sweep estimates": estimate_table() if tried else ""}


def kill_table() -> str:
    """Return the table of what was killed, and what came of it."""
    workers, (nodes,) = _rows("kills"), _rows("ray")
    lines = [
        (f"{row['workers']} workers" + (", one of which joined late" if place else ""),
         f"a worker {len(row['killed'])} times, with its cell {_with_cell(row)} times", row)
        for place, row in enumerate(workers)
    ]  # fmt: skip
    lines.append((f"{nodes['nodes']} Ray nodes", "one node, half-way", nodes))
    return KILLS.format(
        cells=nodes["cells"],
        rows="\n".join(
            f"| {who} | {what} | {row['done']} of {row['cells']} | {row['equal']} of "
            f"{row['cells']} | {row['begun anew though saved']} |"
            for who, what, row in lines
        ),
        again=sum(row["begun twice before anything was saved"] for _, _, row in lines),
    )


def estimate_table() -> str:
    """Return the table of estimates beside the truth."""
    rows = _rows("estimates")
    return ESTIMATES.format(
        machine=rows[0]["machine"],
        rows="\n".join(
            f"| {row['cell']} | {row['seconds told'] / row['seconds']:.2f} | "
            f"{row['memory told'] / row['memory']:.2f} |"
            for row in rows
        ),
    )


def _with_cell(row: dict[str, Any]) -> int:
    return sum(text == "worker and cell" for text in row["killed"])


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return rows


def write() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(), parts()))
