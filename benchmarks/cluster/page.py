"""Writes what the trials came to into docs/cluster.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.cluster.scaling import LINKS
from benchmarks.federation.page import filled

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

KILLS = """\
`python -m benchmarks.cluster kills` trains FedAvg, SCAFFOLD and MOON side by side, here and on two
nodes of one core each, and then kills a node by SIGKILL in the middle of a round, {kills} times;
another one joins after each. "Equal" is by SHA-256 over the models, their buffers and all device
states at the ends of sessions; the costs are those that the run records. Computed again are the
tasks that a node had when it was killed; if there are none, it had none at those moments:

| model | two nodes | nodes killed | tasks computed again | after the kills | processes left |
| --- | --- | --- | --- | --- | --- |
{rows}"""

OVERHEAD = """\
`python -m benchmarks.cluster overhead`: {devices} devices with a single sample each, so that next
to nothing is left but sending models to and fro. Medians of so many rounds, in which all three take
turns on the two cores of one machine that had no other work. Compare within a row: another machine
gives other seconds.

| parameters | rounds | local engine | two nodes | Flower's simulation on Ray | pays from |
| --- | --- | --- | --- | --- | --- |
{rows}

A second machine of the same kind saves half of the time that a round takes, and costs the
difference between local engine and two nodes. So it pays for rounds that take more than twice that
with the local engine; the more machines, the nearer this comes to once."""

MEMORY = """\
`python -m benchmarks.cluster memory`: one round with the CNN ({parameters:,} parameters) on two
nodes, and the most memory at any time in its course:

| devices in the round | driver | a worker | sums in shared memory |
| --- | --- | --- | --- |
{rows}

However many devices there are, a few chunks for each worker are all that is under way or waits to
be added up. What counts as shared memory are the pages of Ray's store that the driver has ever
touched: the store uses them again, and gives none back."""

SCALING = """\
`python -m benchmarks.cluster scaling` puts measured parts together by a discrete-event model
(`benchmarks/cluster/model.py`): workers that take chunks in turn, the driver's network link, the
driver that adds up leaves in order, and workers of unequal speed. It is checked with workers that
wait {wait} s for each of {devices} devices instead of computing, since four workers that compute
would share two cores here. How long a device takes is fitted to the run with one worker, which so
agrees by construction; two and four are the check:

| workers | measured, s a round | predicted, s | ratio |
| --- | --- | --- | --- |
{checks}

And this is what it predicts for ResNet-18 on TinyImageNet as in the paper: 100 devices with 500
pictures of 64 × 64, four steps each, {entries:.1f} M parameters, {cores} cores a worker, where a
step of 128 pictures takes {step:.0f} s of one core's time. Speeds are relative to one such worker;
"uneven" are workers whose speeds differ by some 15 %. The link carries both directions at once;
what is told is how busy the busier one is:

| workers | 1 Gbit/s | uneven | link busy | 10 Gbit/s | uneven | link busy | driver busy |
| --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

**Two limits.** 100 devices are 25 leaves of four, and a leaf is computed in one place: beyond 25
workers there is nothing left to hand out, and between 13 and 24 one of them has two leaves. That is
the limit with 10 Gbit/s. With 1 Gbit/s it is the network before that, though each direction is
idle for {idle:.0%} of the round at least: a worker has to fetch the model before it trains, and
has a sum to send only afterwards. Models of {megabytes:.0f} MB for 25 workers leave the driver one
after another, the last one after {fetched:.0f} s; that worker then trains for {trained:.0f} s,
while the others' sums come in. All wait for the slowest worker; adding up is no limit. More devices
in a round would give more workers something to do, and the network more to carry."""


def parts() -> dict[str, str]:
    """Return what stands between the markers, as far as there are results."""
    known = {"kills": kills, "overhead": overhead, "memory": memory, "scaling": scaling}
    return {name: text() for name, text in known.items() if (RESULTS / f"{name}.json").exists()}


def kills() -> str:
    """Return the table of killed nodes."""
    rows = _found("kills")
    lines = [
        f"| {row['cell']} | {_same(row['equal'] and row['costs'])} | {row['kills']} "
        f"| {row['computed again']} "
        f"| {_same(row['equal after kills'] and row['costs after kills'])} "
        f"| {row['processes left']} |"
        for row in rows
    ]
    return KILLS.format(kills=rows[0]["kills"], rows="\n".join(lines))


def _same(equal: bool) -> str:
    return "equal, costs too" if equal else "**not equal**"


def overhead() -> str:
    """Return the table of what a round costs besides training."""
    rows = _found("overhead")
    lines = []
    for row in rows:
        here, there, flower = (row["seconds"][k] for k in ("here", "two nodes", "Flower"))
        lines.append(
            f"| {row['model']} | {row['rounds']} | {_seconds(here)} "
            f"| {_seconds(there)}, {there / here:.1f}× "
            f"| {_seconds(flower)}, {flower / here:.1f}× | {_seconds(2 * row['overhead'])} |"
        )
    return OVERHEAD.format(devices=rows[0]["devices"], rows="\n".join(lines))


def _seconds(value: float) -> str:
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def memory() -> str:
    """Return the table of memory by the number of devices."""
    rows = _found("memory")
    lines = [
        f"| {row['devices']:,} | {_megabytes(row['driver'])} | {_megabytes(row['worker'])} "
        f"| {_megabytes(row['sums held by the driver'])} |"
        for row in rows
    ]
    return MEMORY.format(parameters=rows[0]["parameters"], rows="\n".join(lines))


def _megabytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def scaling() -> str:
    """Return the tables of the model: its check, and what it predicts."""
    found = _found("scaling")
    checks = [
        f"| {row['workers']} | {row['measured']} | {row['predicted']} | {row['ratio']} |"
        for row in found["check"]
    ]
    by_link: dict[str, dict[int, Any]] = {}
    for row in found["rows"]:
        by_link.setdefault(row["link"], {})[row["workers"]] = row
    lines = []
    slow, fast = by_link["1 Gbit/s"], by_link["10 Gbit/s"]
    for workers in slow:
        one, ten = slow[workers], fast[workers]
        lines.append(
            f"| {workers} | {one['times as fast']}× | {one['uneven']}× | {one['link busy']:.0%} "
            f"| {ten['times as fast']}× | {ten['uneven']}× | {ten['link busy']:.0%} "
            f"| {ten['driver busy']:.1%} |"
        )
    vector = found["parts"]["vector"]
    return SCALING.format(
        wait=found["wait"],
        devices=found["devices"],
        checks="\n".join(checks),
        entries=vector / 4e6,
        cores=found["cores"],
        step=found["step"],
        rows="\n".join(lines),
        megabytes=vector / 1e6,
        idle=1 - max(row["link busy"] for row in slow.values()),
        fetched=25 * vector / LINKS["1 Gbit/s"],
        trained=found["parts"]["device"],
    )


def _found(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def write() -> None:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), parts()), encoding="utf-8")
