"""The plugins that the user of this account has run before.

A run folder records the plugins it needs, but it may come from a stranger, and a plugin is code. So
there is a file of the user's own, outside of all run folders, with the path and the digest of every
plugin that was named on this account. Only what is in it may be loaded without being named again.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from filelock import FileLock, Timeout

from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.files import make_folder
from ebbflow.runs import records

FOLDER = "EBBFLOW_STATE"
"""The environment variable that names another folder for the file."""
FILE = "plugins.json"
MOST = 1000
"""Plugins that are remembered: those named last."""
PATIENCE = 10.0
"""Seconds to wait for another process that writes the file."""


class Plugin(NamedTuple):
    """A plugin: the absolute path of its file, and the SHA-256 digest of the file's content."""

    path: str
    digest: str


def trust_file() -> Path:
    """Return the path of the file with the plugins that are trusted."""
    folder = os.environ.get(FOLDER)
    return (Path(folder) if folder else platformdirs.user_state_path("ebbflow")) / FILE


def trusted() -> list[Plugin]:
    """Return the plugins that are trusted; none if the file is missing or damaged in any way."""
    try:
        content = records.read_json(trust_file())
    except EbbflowError:
        return []
    listed = content.get("plugins")
    if not records.is_sealed(content) or not isinstance(listed, list):
        return []
    return [Plugin(*entry) for entry in listed if _is_plugin(entry)]


def _is_plugin(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == len(Plugin._fields)
        and all(isinstance(part, str) for part in entry)
    )


def trust(plugins: Iterable[Plugin]) -> None:
    """Note plugins that the user has named; if that is impossible, a warning says so."""
    named = list(dict.fromkeys(plugins))
    if not set(named) - set(trusted()):
        return
    path = trust_file()
    try:
        make_folder(path.parent)
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE):
            kept = [plugin for plugin in trusted() if plugin not in named]
            records.write_sealed(path, {"plugins": [*kept, *named][-MOST:]}, indent=1)
    except (OSError, Timeout, EbbflowError) as error:
        warnings.warn(
            f"{path} cannot be written ({error}), so that the plugins of this run have to be named "
            "again by --plugin when it is resumed",
            EbbflowWarning,
            stacklevel=2,
        )
