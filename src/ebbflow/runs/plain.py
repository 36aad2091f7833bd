"""A run folder may come from a stranger: it may hold plain files and folders, and nothing else.

A symbolic link would let a folder read or overwrite files outside of it, a FIFO would block for
ever, a device may never end.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import make_folder, write_atomically

QUARANTINE = "damaged"
"""The folder within a run to which damaged files are moved."""
DEEPEST = 8
"""Levels of folders; a run has four."""
MOST_FILES = 2_000_000
LOG_LINK = "wandb/*/logs/debug-core.log"

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def check_plain(folder: Path) -> None:
    """Raise an error if there is anything in a run folder but plain files and folders."""
    for path, kind in _unusual(folder):
        raise EbbflowError(
            f"{path} is {kind}, and a run folder holds only plain files: remove it, or use a copy "
            "of the run that you trust"
        )


def _unusual(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield what does not belong in a run folder, and what it is."""
    waiting, seen = [(os.fspath(folder), 0)], 0
    while waiting:
        here, depth = waiting.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                seen += 1
                if seen > MOST_FILES:
                    yield folder, f"a folder of more than {MOST_FILES:,} files"
                if entry.is_symlink():
                    if _is_log_link(folder, entry):
                        continue
                    yield Path(entry.path), "a symbolic link"
                elif entry.is_dir(follow_symlinks=False):
                    if depth == DEEPEST:
                        yield Path(entry.path), f"a folder below {DEEPEST} others"
                    waiting.append((entry.path, depth + 1))
                elif not entry.is_file(follow_symlinks=False):
                    kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
                    yield Path(entry.path), _KINDS.get(kind, "no plain file")


def _is_log_link(folder: Path, entry: os.DirEntry[str]) -> bool:
    """Whether this is W&B's link to a log of its own, which nothing here ever follows.

    Its tracker removes the link at once; it stays if the process dies at that moment.
    """
    place = Path(entry.path).relative_to(folder)
    return place.match(LOG_LINK) and len(place.parts) == 4 and not entry.is_dir()


def unshared(path: Path) -> None:
    """Give a file that is about to be changed in place a copy of its own.

    If another name outside of the run folder leads to the same content (a hard link, as some
    backups use), that one stays as it is.
    """
    if path.exists() and path.stat().st_nlink > 1:
        write_atomically(path, path.read_bytes())


def set_aside(run: Path, path: Path, name: str | None = None) -> Path:
    """Move a file of a run, if it is there, to its folder ``damaged``; return where to.

    Without a name it is called after its place in the run. A name that is taken gets a number.
    """
    name = name or str(path.relative_to(run)).replace(os.sep, "-")
    folder = run / QUARANTINE
    target, number = folder / name, 1
    while target.exists():
        number += 1
        target = folder / f"{name}.{number}"
    if path.exists():
        make_folder(folder)
        path.replace(target)
    return target
