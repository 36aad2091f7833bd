"""A user's own files and folders: which loader reads which of them."""

from __future__ import annotations

from pathlib import Path

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable, shortened
from ebbflow.core.types import Dataset
from ebbflow.data.own import pictures, table_files, tables, user_files, users
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.custom import from_npz

ENDINGS = (".npz", *table_files.ENDINGS, *user_files.ENDINGS)
"""How the names of files end that are read."""


def is_own(name: str) -> bool:
    """Whether a name is the path of a user's own data: it ends like one, or it is there."""
    try:
        return name.lower().endswith(ENDINGS) or bool(name and Path(name).expanduser().exists())
    except (OSError, RuntimeError, ValueError):  # too long, nobody's home, or a byte that is zero
        return False


def from_path(name: str, choices: Choices) -> Dataset:
    """Load a user's own data from a file or a folder."""
    if name.lower().endswith(".npz"):
        return from_npz(name, choices)
    path = Path(name).expanduser()
    if path.is_dir():
        if users.is_user_folder(path):
            return users.from_users(path, choices)
        return pictures.from_pictures(path, choices)
    ending = path.suffix.lower()
    if ending in table_files.ENDINGS:
        return tables.from_table(path, choices)
    if ending in user_files.ENDINGS:
        return users.from_users(path, choices)
    raise EbbflowError(
        f"the file {shortened(printable(name), 200)} is of no kind that can be loaded: give one "
        f"that ends in {', '.join(ENDINGS)}, or a folder"
    )
