"""Reads run folders, finished or not, without importing torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import overload

from ebbflow.analysis.views.run_view import RunView, load_view
from ebbflow.core.errors import EbbflowError
from ebbflow.outcomes.one_run import FINISHED, Records
from ebbflow.outcomes.several_runs import Runs
from ebbflow.runs import records
from ebbflow.runs.finding import run_folders, told_apart
from ebbflow.runs.state import run_state
from ebbflow.runs.summary import setting_of, summary_rows, without_broken_sessions


@overload
def load(run: Path | str, /) -> Records | Runs: ...


@overload
def load(run: Path | str, other: Path | str, /, *more: Path | str) -> Runs: ...


def load(*runs: Path | str) -> Records | Runs:
    """Read the records of a run, or of several, finished or not.

    A run folder gives `Records`. Several folders, or a folder that holds runs, give `Runs`. Nothing
    is computed again, and nothing in the folders is changed.
    """
    if not runs:
        raise EbbflowError("no run is named: name a run folder, or one that holds some")
    paths = [Path(run) for run in runs]
    folders = run_folders(paths)
    if len(paths) == 1 and folders == paths:
        return load_run(paths[0])
    names = told_apart(folders)
    found = [load_run(folder) for folder in folders]
    return Runs([replace(run, name=name) for run, name in zip(found, names, strict=True)])


def load_run(folder: Path) -> Records:
    """Read the records of one run."""
    view = load_view(folder)
    found = run_state(folder)
    finished = found.state == FINISHED
    return Records(
        view.config.model_dump(mode="json"),
        list(view.rounds),
        _summarised(folder) if finished else _rows(view),
        [dict(event) for event in view.events],
        folder,
        name=view.name,
        state=FINISHED if finished else f"{found.state}, {found.place}",
        environment=view.environment,
    )


def _summarised(folder: Path) -> list[dict[str, object]]:
    rows = records.read_sealed(folder / records.SUMMARY).get("rows")
    if not isinstance(rows, list):
        raise EbbflowError(f"{folder / records.SUMMARY} is no summary of a run: {records.RESTORE}")
    return rows


def _rows(view: RunView) -> list[dict[str, object]]:
    """Return the rows of sessions that are over, as the summary will have them."""
    ended = [event for event in view.events if event["event"] == "ended"]
    over = {(e["seed"], e["session"]) for e in view.events if e["event"] == "finished"}
    rounds = [r for r in view.rounds if (r.seed, r.session) in over]
    return summary_rows(
        without_broken_sessions(rounds, ended),
        [event for event in view.events if event["event"] == "tested"],
        windows=view.config.window,
        pilot=view.config.pilot.sessions,
        setting=setting_of(view.config),
    )
