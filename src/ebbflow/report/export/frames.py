"""The tables of runs, by name: computed once, written as CSV, Parquet, LaTeX or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ebbflow.analysis.views.run_view import RunView, check_rounds
from ebbflow.config.merge import leaves
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.report.export import record_tables as recorded
from ebbflow.report.export import result_tables as results
from ebbflow.report.export.columns import Column, ColumnKind, ExportRow, Frame
from ebbflow.runs.finding import told_apart


class TableKind(NamedTuple):
    """A table that runs can be exported as."""

    about: str
    columns: Callable[[Sequence[RunView]], tuple[Column, ...]]
    rows: Callable[[RunView], Iterable[ExportRow]]


TABLES: dict[str, TableKind] = {
    "rounds": TableKind(
        "every round of every method and seed", recorded.round_columns, recorded.round_rows
    ),
    "summary": TableKind(
        "window scores by transition, over seeds", results.summary_columns, results.summary_rows
    ),
    "metrics": TableKind(
        "recovery times, speed-ups and gains, over seeds",
        results.metric_columns,
        results.metric_rows,
    ),
    "costs": TableKind(
        "seconds, joules and bytes of every session", results.cost_columns, results.cost_rows
    ),
    "sessions": TableKind(
        "who came and left, samples and labels", recorded.session_columns, recorded.session_rows
    ),
    "devices": TableKind(
        "who was in each session, with scores of their own",
        recorded.device_columns,
        recorded.device_rows,
    ),
    "starts": TableKind(
        "what each start was mixed from", recorded.start_columns, recorded.start_rows
    ),
}

IN_ROWS = ("algorithm", "methods", "seeds")
"""Settings that need no column of their own, for rows say them."""


def table(
    views: Sequence[RunView], name: str, settings: Mapping[str, list[Any]] | None = None
) -> Frame:
    """Return a table of one or several runs.

    Several runs have a first column ``run``, and a column for each setting in which they differ;
    or, however many they are, for each of the ``settings`` that are given with each run's value.
    """
    if name not in TABLES:
        raise unknown(name, TABLES, "table", "--table")
    if not views:
        raise EbbflowError("no run is named, so there is no table: name at least one run")
    for view in views:
        check_rounds(view)
    kind = TABLES[name]
    columns = kind.columns(views)
    about: Sequence[ExportRow] = [{}]
    if len(views) > 1 or settings is not None:
        told = differing_settings(views) if settings is None else settings
        before, about = _run_columns(views, {column.name for column in columns}, told)
        columns = (*before, *columns)
    empty = dict.fromkeys(column.name for column in columns)
    rows = [
        {**empty, **cells, **row}
        for view, cells in zip(views, about, strict=True)
        for row in kind.rows(view)
    ]
    return Frame(name, columns, rows)


def named_apart(views: Sequence[RunView]) -> list[RunView]:
    """Return runs under names that tell them apart."""
    names = [view.name for view in views]
    if len(set(names)) == len(names):
        return list(views)
    folders = [view.folder for view in views if view.folder is not None]
    if len(folders) == len(views) and len(set(folders)) == len(folders):
        names = told_apart(folders)
    else:
        names = [f"{name} {place}" for place, name in enumerate(names, start=1)]
    return [replace(view, name=name) for view, name in zip(views, names, strict=True)]


def differing_settings(views: Sequence[RunView]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ, by dotted key, with each run's value."""
    settings = [
        {".".join(path): value for path, value in leaves(view.config.model_dump(mode="json"))}
        for view in views
    ]
    keys = dict.fromkeys(key for own in settings for key in own if key not in IN_ROWS)
    found = {
        key: [own.get(key) for own in settings]
        for key in keys
        # The rates of an algorithm that some run has not used tell nothing about it.
        if not key.startswith("lr.algorithms.") or all(key in own for own in settings)
    }
    # JSON's true is not its 1, nor 1.0: compared as they are written.
    return {key: values for key, values in found.items() if len(set(map(repr, values))) > 1}


def _run_columns(
    views: Sequence[RunView], taken: set[str], settings: Mapping[str, list[Any]]
) -> tuple[list[Column], list[ExportRow]]:
    """Return the columns that tell runs apart, and each run's cells in them."""
    columns = [Column("run", "text", "the run's name")]
    cells: list[ExportRow] = [{"run": view.name} for view in named_apart(views)]
    for key, values in settings.items():
        name = f"settings.{key}" if key in {*taken, "run"} else key
        kind = _kind(values)
        columns.append(Column(name, kind, f"the setting {key}"))
        for own, value in zip(cells, values, strict=True):
            own[name] = _cell(value, kind)
    return columns, cells


def _kind(values: Sequence[Any]) -> ColumnKind:
    there = [value for value in values if value is not None]
    kinds: Mapping[type, ColumnKind] = {bool: "switch", int: "whole", float: "number", str: "text"}
    found = {kinds.get(type(value), "text") for value in there}
    if found == {"whole", "number"}:
        return "number"
    return found.pop() if len(found) == 1 else "text"


def _cell(value: Any, kind: ColumnKind) -> Any:
    if value is None or kind == "switch":
        return value
    if kind == "number":
        return float(value)
    if kind == "whole":
        return value
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
