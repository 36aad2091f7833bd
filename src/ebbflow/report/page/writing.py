"""Where a page is written, and what is said of it in a terminal."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically
from ebbflow.report.page.content import PageContent
from ebbflow.report.page.rendering import GENERATOR, render_page
from ebbflow.runs.finding import run_folders

NAME = "report.html"
BEGINNING = 4096
"""Bytes of a file within which a page of ours says that it is one."""


def default_page(paths: Sequence[Path]) -> Path:
    """Return where a page goes: into the run, or into the folder that all runs have in common."""
    folders = run_folders(paths)
    if len(folders) == 1:
        return folders[0] / NAME
    if len(paths) == 1:
        return paths[0] / NAME
    common = Path(os.path.commonpath([path.resolve() for path in paths]))
    here = Path.cwd()
    return (common.relative_to(here) if common.is_relative_to(here) else common) / NAME


def check_page(path: Path) -> None:
    """Raise an error unless a page may be written here: it replaces nothing but a page of ours."""
    if not path.parent.is_dir():
        raise EbbflowError(f"--out {path}: there is no folder {path.parent}; make it first")
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_file():
        raise EbbflowError(f"{path} is no plain file: choose another --out")
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    if GENERATOR.encode() not in beginning:
        raise EbbflowError(
            f"{path} is not a report of ebbflow and will not be overwritten: choose another --out"
        )


def write_page(path: Path, content: PageContent) -> None:
    """Write the page that shows this content."""
    check_page(path)
    write_atomically(path, render_page(content).encode())


def verdict_lines(content: PageContent) -> Iterator[str]:
    """Yield what a terminal says: a run's verdicts, or how often each start won."""
    if len(content["runs"]) == 1:
        (run,) = content["runs"]
        for verdict in run["verdicts"]:
            whose = f"{verdict['algorithm']}: " if len(run["verdicts"]) > 1 else ""
            yield f"{whose}{verdict['sentence']}"
        if not run["verdicts"]:
            yield run["nothing_yet"]
        return
    winners = [verdict["winner"] for run in content["runs"] for verdict in run["verdicts"]]
    if not winners:
        yield f"{len(content['runs'])} runs, and no transition is over yet"
    for winner, count in Counter(winners).most_common():
        yield f"{winner} was best in {count} of {len(winners)} comparisons"
