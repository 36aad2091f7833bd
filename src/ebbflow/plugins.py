"""Plugins: Python files and installed packages that register algorithms, starts and more.

A plugin is a file named by ``--plugin``, or a module named by an entry point of the group
``ebbflow.plugins``. It registers what it offers when it is imported. Only plugins that the user
names or has installed are loaded: a run folder cannot bring one with it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ebbflow.core.errors import EbbflowError

GROUP = "ebbflow.plugins"


class PluginError(EbbflowError):
    """A plugin that cannot be loaded; ``details`` is its traceback."""

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.details = details


def load_plugins(files: Iterable[Path] = ()) -> None:
    """Load the installed plugins, then these files, each once."""
    for entry_point in entry_points(group=GROUP):
        _load_installed(entry_point)
    for file in files:
        load_file(file)


def _load_installed(entry_point: EntryPoint) -> None:
    try:
        entry_point.load()
    except Exception as error:  # whatever a plugin raises, it is the plugin's
        raise _broken(f"the installed plugin {entry_point.name}", error) from error


def load_file(path: Path) -> None:
    """Import a file, so that it registers what it offers."""
    if not path.is_file():
        raise EbbflowError(f"--plugin {path}: there is no such file; check the path")
    name = f"ebbflow_plugin_{path.resolve().as_posix()}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise EbbflowError(f"--plugin {path} is no Python file: name one that ends with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a plugin raises, it is the plugin's
        del sys.modules[name]
        raise _broken(f"--plugin {path}", error) from error


def _broken(what: str, error: Exception) -> PluginError:
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    details = "".join(traceback.format_exception(error))
    return PluginError(f"{what} cannot be loaded ({reason}): mend it, or leave it out", details)
