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
went on from what was saved at the kill |
| --- | --- | --- | --- | --- | --- | --- |
{rows}{rest}"""

UNSAVED = """

What was saved is noted at each kill, and compared with where the next attempt at the cell began. A
cell that is killed before its first round is over has nothing to keep, and begins again: that
{happened}."""

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
         f"a worker {_killed(row)}, with its cell {_times(_with_cell(row))}", row)
        for place, row in enumerate(workers)
    ]  # fmt: skip
    lines.append((f"{nodes['nodes']} Ray nodes", "one node, in the middle of a cell", nodes))
    return KILLS.format(
        cells=nodes["cells"],
        rows="\n".join(
            f"| {who} | {what} | {row['done']} of {row['cells']} | {row['equal']} of "
            f"{row['cells']} | {row['attempts']} | {row['resumed']} | {gone_on(row)} |"
            for who, what, row in lines
        ),
        rest=what_was_lost([row for _, _, row in lines]),
    )


def gone_on(row: Mapping[str, Any]) -> str:
    """Return how many cells went on from what had been saved of them when they were cut off."""
    if "interrupted" not in row:
        return "not noted"
    saved = [cut for cut in row["interrupted"] if cut["saved"]]
    return f"{sum(cut['went on from'] >= cut['saved'] for cut in saved)} of {len(saved)}"


def what_was_lost(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how often cells had to begin again, as far as it was noted."""
    noted = [cut for row in rows for cut in row.get("interrupted", [])]
    if not noted:
        return ""
    unsaved = sum(not cut["saved"] for cut in noted)
    happened = f"happened {_times(unsaved)}" if unsaved else "never happened"
    return UNSAVED.format(happened=happened)


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


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _killed(row: Mapping[str, Any]) -> str:
    late = row.get("killed of those that joined late", 0)
    which = f" (the one that joined late {_times(late)})" if late else ""
    return f"{len(row['killed'])} times{which}"


def _with_cell(row: Mapping[str, Any]) -> int:
    return sum(text == "worker and cell" for text in row["killed"])


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())
    return rows


def write() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(), parts()))
