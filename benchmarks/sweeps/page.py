"""Writes what the trials came to into docs/cluster.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.federation.page import filled

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

KILLS = """\
`python -m benchmarks.sweeps kills ray` computes {cells} cells on the digits and on part of MNIST,
and kills processes by SIGKILL meanwhile:

| computed by | killed | done | curves equal to single runs | attempts | resumed | \
begun anew though saved |
| --- | --- | --- | --- | --- | --- | --- |
{rows}

A cell that is killed before its first round is over has nothing to keep, and begins again: that
happened {again} in all three sweeps together. {rest}"""

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
    lines.append((f"{nodes['nodes']} Ray nodes", "one node, in the middle of a cell", nodes))
    return KILLS.format(
        cells=nodes["cells"],
        rows="\n".join(
            f"| {who} | {what} | {row['done']} of {row['cells']} | {row['equal']} of "
            f"{row['cells']} | {row['attempts']} | {row['resumed']} | "
            f"{row['begun anew though saved']} |"
            for who, what, row in lines
        ),
        again=_times(sum(row["begun twice before anything was saved"] for _, _, row in lines)),
        rest=what_went_on([(who, row) for who, _, row in lines]),
    )


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def what_went_on(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return what became of the other cells, as far as the trials tell."""
    if any(row["begun anew though saved"] for _, row in rows):
        return "Others began anew although they were saved."
    spared = [who for who, row in rows if not row["resumed"]]
    if spared:
        return f"No cell that was saved was interrupted on {' or '.join(spared)}."
    return "Everything else went on from a checkpoint."


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
