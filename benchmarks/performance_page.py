"""The performance page: tables, requirements, machine and versions, written from the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.comparison import PAGE as COMPARISON
from benchmarks.comparison import write_speeds
from benchmarks.performance_picture import draw
from benchmarks.results import (
    Measurement,
    Requirement,
    Results,
    Suite,
    read_results,
    seconds_text,
    write_results,
)
from benchmarks.run import SUITES
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.markdown import table

HEAD = """# Performance

Written by `make bench` (`python -m benchmarks --out docs/performance.md`) from the numbers in
[{numbers}]({numbers}). Within a table the contenders take turns in one run, after their results
have been checked for equality. Times are medians of the repeats, with the fastest and the slowest
in brackets. Compare only within a table: another run or another machine gives other times.

- **difference**: the largest difference between an entry of a contender's averaged model and of the
  reference engine's, after the first rounds.
- **memory**: peak of anonymous memory of all processes of a contender, data included; given only
  for contenders that do not share their process.
"""

Column = tuple[str, Callable[[Measurement], str]]


def _time(row: Measurement) -> str:
    if not row.seconds:
        return ""
    text = seconds_text(row.median)
    if len(row.seconds) == 1:
        return text
    return f"{text} ({seconds_text(min(row.seconds))} to {seconds_text(max(row.seconds))})"


def _columns(suite: Suite) -> list[Column]:
    """Return the columns that are not empty in every row."""
    first = suite.measurements[0]

    def beside(row: Measurement) -> str:
        if not row.seconds or not first.seconds or row.devices is not None:
            return ""
        return f"{row.median / first.median:.2f}"

    def rate(row: Measurement) -> str:
        return f"{row.operations / row.median / 1e9:.1f}" if row.operations and row.seconds else ""

    def cost(row: Measurement) -> str:
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
    shown = [column for column in columns[1:] if any(column[1](row) for row in suite.measurements)]
    return [columns[0], *shown]


def _number(requirement: Requirement) -> str:
    digits = 2 if requirement.value < 100 else 0
    return f"{requirement.value:.{digits}f} {requirement.unit}"


def limit_text(requirement: Requirement) -> str:
    """Return the bound of a requirement in words.

    >>> limit_text(Requirement(what="", value=1, bound=3, at_least=True))
    'at least 3 x'
    """
    limit = "at least" if requirement.at_least else "at most"
    return f"{limit} {requirement.bound:g} {requirement.unit}"


def _requirements(suites: Sequence[Suite]) -> Iterator[str]:
    lines = [
        (
            suite.name,
            requirement.what,
            _number(requirement),
            limit_text(requirement),
            "yes" if requirement.met else "**no**",
        )
        for suite in suites
        for requirement in suite.requirements
    ]
    if lines:
        yield from ("## Requirements", "")
        yield table(("", "", "measured", "bound", "met"), lines)


def _shares(suite: Suite) -> Iterator[str]:
    for name, shares in suite.shares.items():
        busy = shares.get("busy threads")
        busy_text = "" if busy is None else f" ({busy:.1f} threads busy on average)"
        yield from (f"**{name[0].upper()}{name[1:]}**{busy_text}", "")
        lines = [
            (place, f"{100 * share:.1f} %")
            for place, share in shares.items()
            if place != "busy threads" and share >= 0.005
        ]
        yield table(("", "share"), lines)


def _section(suite: Suite) -> Iterator[str]:
    yield from (
        f"## {suite.name}: {suite.title}" if suite.measurements else f"## {suite.title}",
        "",
    )
    if suite.measurements:
        columns = _columns(suite)
        yield table(
            [head for head, _ in columns],
            [[cell(row) for _, cell in columns] for row in suite.measurements],
        )
    yield from _shares(suite)
    for note in suite.notes:
        yield from (note, "")


def _environment(suites: Sequence[Suite]) -> Iterator[str]:
    yield from ("## Machine and versions", "")
    described: dict[str, list[str]] = {}
    for suite in suites:
        facts = ", ".join(f"{key} {value}" for key, value in suite.machine.items())
        described.setdefault(facts, []).append(suite.name)
    for facts, names in described.items():
        suites_text = "" if len(described) == 1 else f" ({', '.join(names)})"
        yield f"- {facts}{suites_text}"
    versions: dict[str, set[str]] = {}
    for suite in suites:
        for library, version in suite.versions.items():
            versions.setdefault(library, set()).add(version)
    yield "- " + ", ".join(f"{name} {' and '.join(sorted(v))}" for name, v in versions.items())


def page_text(results: Results, picture: str | None, numbers: str) -> str:
    """Return the page."""
    suites = [results.suites[name] for name in SUITES if name in results.suites]
    lines = [HEAD.format(numbers=numbers)]
    if picture is not None:
        lines += [f"![times of the contenders and scaling curves]({picture})", ""]
    lines += _requirements(suites)
    for suite in suites:
        lines += _section(suite)
    lines += _environment(suites)
    return "\n".join(lines) + "\n"


def suite_text(suite: Suite) -> str:
    """Return the section of one suite, with its requirements."""
    return "\n".join([*_section(suite), *_requirements([suite])]) + "\n"


def write_page(page: Path, suites: list[Suite]) -> None:
    """Write the page, its picture and its numbers; suites not measured this time are kept.

    The page on other frameworks, if it lies beside this one, is told the new speeds.
    """
    numbers, picture = page.with_suffix(".json"), page.with_suffix(".png")
    results = read_results(numbers).updated(suites)
    write_results(numbers, results)
    try:
        drawn = draw(results, picture)
    except EbbflowError:  # no matplotlib: the page has its tables all the same
        drawn = False
    text = page_text(results, picture.name if drawn else None, numbers.name)
    write_atomically(page, text.encode())
    write_speeds(page.with_name(COMPARISON), results)
