"""Finds run folders, one by one or all of those under a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.runs.records import CONFIG, HISTORY

DEEPEST = 4
"""How many levels below a folder runs are looked for."""


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders that are named, and those that lie under a folder of several runs."""
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise EbbflowError(f"{path} is no folder: name a run folder, or one that holds some")
        own = [path] if _is_run(path) else list(_below(path, DEEPEST))
        if not own:
            raise EbbflowError(
                f"{path} holds no ebbflow run ({CONFIG} is missing, there and in the folders below "
                "it): check the path"
            )
        for folder in own:
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file()


def _below(path: Path, levels: int) -> Iterator[Path]:
    """Yield the runs below a folder in order of their names; runs hold no other runs."""
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        # Links are not followed: they may lead anywhere, or round in circles.
        if not entry.is_dir(follow_symlinks=False) or entry.name in (HISTORY, ".venv"):
            continue
        folder = path / entry.name
        if _is_run(folder):
            yield folder
        elif levels > 1:
            yield from _below(folder, levels - 1)


def told_apart(folders: Sequence[Path]) -> list[str]:
    """Return a name for each folder: its last part, or as many as it takes to tell them apart.

    >>> told_apart([Path("a/x"), Path("b/x"), Path("b/y")])
    ['a/x', 'b/x', 'b/y']
    >>> told_apart([Path("a/x"), Path("b/y")])
    ['x', 'y']
    """
    parts = [folder.absolute().parts for folder in folders]
    for count in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(own[-count:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]
