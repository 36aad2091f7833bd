"""The page of the figures: tables, bounds, machine and versions, written from results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.picture import draw
from benchmarks.results import Check, Results, Row, Suite, read_results, seconds_text, write_results
from benchmarks.run import SUITES
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import table

HEAD = """# Performance

Written by `make bench` (`ebbflow bench --out docs/performance.md`) from the numbers in
[{numbers}]({numbers}). Within a table the contenders take turns in one run, after their results
were found equal; the time is the median of the repeats, with the fastest and the slowest in
brackets. Compare within a table only: another run or another machine gives other seconds.

- **difference**: the largest one between an entry of a contender's averaged model and the plain
  reference engine's, after the first rounds.
- **memory**: peak of anonymous memory, data included, of all of a contender's processes; only
  where it has some of its own.
"""

Column = tuple[str, Callable[[Row], str]]


def _time(row: Row) -> str:
    if not row.seconds:
        return ""
    text = seconds_text(row.median)
    if len(row.seconds) == 1:
        return text
    return f"{text} ({seconds_text(min(row.seconds))} to {seconds_text(max(row.seconds))})"


def _columns(suite: Suite) -> list[Column]:
    """Return the columns for which at least one row has something to say."""
    first = suite.rows[0]

    def beside(row: Row) -> str:
        if not row.seconds or not first.seconds or row.devices is not None:
            return ""
        return f"{row.median / first.median:.2f}"

    def rate(row: Row) -> str:
        return f"{row.operations / row.median / 1e9:.1f}" if row.operations and row.seconds else ""

    def cost(row: Row) -> str:
        return f"{1e6 * row.median / row.steps:.1f} µs" if row.steps and row.seconds else ""

    columns: list[Column] = [
        ("", lambda row: f"**{row.name}**" if row is first else row.name),
        ("time", _time),
        (f"beside {first.name}", beside if suite.name.startswith("W") else lambda row: ""),
        ("a local step", cost),
        ("GFLOP/s", rate),
        ("difference", lambda row: "" if row.difference is None else f"{row.difference:.1e}"),
        ("memory", lambda row: f"{row.memory / 1e6:,.0f} MB" if row.memory else ""),
        ("", lambda row: row.note),
    ]
    shown = [column for column in columns[1:] if any(column[1](row) for row in suite.rows)]
    return [columns[0], *shown]


def _number(check: Check) -> str:
    return (
        f"{check.found:.2f} {check.unit}"
        if check.found < 100
        else f"{check.found:.0f} {check.unit}"
    )


def bound_text(check: Check) -> str:
    """Return what should hold.

    >>> bound_text(Check(what="", found=1, bound=3, at_least=True))
    'at least 3 x'
    """
    return f"{'at least' if check.at_least else 'at most'} {check.bound:g} {check.unit}"


def _bounds(suites: Sequence[Suite]) -> Iterator[str]:
    lines = [
        (
            suite.name,
            check.what,
            _number(check),
            bound_text(check),
            "yes" if check.met else "**no**",
        )
        for suite in suites
        for check in suite.checks
    ]
    if lines:
        yield from ("## What must hold", "")
        yield table(("", "", "found", "bound", "holds"), lines)


def _shares(suite: Suite) -> Iterator[str]:
    for name, shares in suite.shares.items():
        busy = shares.get("busy threads")
        said = "" if busy is None else f" ({busy:.1f} threads busy on average)"
        yield from (f"**{name[0].upper()}{name[1:]}**{said}", "")
        lines = [
            (place, f"{100 * share:.1f} %")
            for place, share in shares.items()
            if place != "busy threads" and share >= 0.005
        ]
        yield table(("", "share"), lines)


def _section(suite: Suite) -> Iterator[str]:
    yield from (f"## {suite.name}: {suite.title}" if suite.rows else f"## {suite.title}", "")
    if suite.rows:
        columns = _columns(suite)
        yield table(
            [head for head, _ in columns],
            [[cell(row) for _, cell in columns] for row in suite.rows],
        )
    yield from _shares(suite)
    for note in suite.notes:
        yield from (note, "")


def _surroundings(suites: Sequence[Suite]) -> Iterator[str]:
    yield from ("## Machine and versions", "")
    described: dict[str, list[str]] = {}
    for suite in suites:
        facts = ", ".join(f"{key} {value}" for key, value in suite.machine.items())
        described.setdefault(facts, []).append(suite.name)
    for facts, names in described.items():
        whose = "" if len(described) == 1 else f" ({', '.join(names)})"
        yield f"- {facts}{whose}"
    found: dict[str, set[str]] = {}
    for suite in suites:
        for library, version in suite.versions.items():
            found.setdefault(library, set()).add(version)
    yield "- " + ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in found.items())


def page_text(results: Results, picture: str | None, numbers: str) -> str:
    """Return the page."""
    suites = [results.suites[name] for name in SUITES if name in results.suites]
    lines = [HEAD.format(numbers=numbers)]
    if picture is not None:
        lines += [f"![times of the contenders, and the scaling curves]({picture})", ""]
    lines += _bounds(suites)
    for suite in suites:
        lines += _section(suite)
    lines += _surroundings(suites)
    return "\n".join(lines) + "\n"


def suite_text(suite: Suite) -> str:
    """Return the part of the page about one suite, with its bounds."""
    return "\n".join([*_section(suite), *_bounds([suite])]) + "\n"


def write_page(page: Path, suites: list[Suite]) -> None:
    """Write the page, its picture and its numbers; suites not measured this time stay."""
    numbers, picture = page.with_suffix(".json"), page.with_suffix(".png")
    results = read_results(numbers).updated(suites)
    write_results(numbers, results)
    try:
        drawn = draw(results, picture)
    except EbbflowError:  # no matplotlib: the tables are worth having without it
        drawn = False
    text = page_text(results, picture.name if drawn else None, numbers.name)
    write_atomically(page, text.encode())
