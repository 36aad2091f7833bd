"""Presets by name: TOML files, and one preset per row of the paper's tables."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

from ebbflow.config import paper_rows
from ebbflow.core.errors import EbbflowError, nearest


def preset_names() -> list[str]:
    """Return the names of all presets: files first, then the rows of the paper's tables.

    >>> {"authors-code", "paper-text", "mnist-dirichlet-o0.0-a0.3-moon"} <= set(preset_names())
    True
    """
    folder = resources.files("ebbflow.config") / "preset_files"
    files = [p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")]
    return [*sorted(files), *paper_rows.rows()]


def preset_text(name: str, place: str = "presets") -> str:
    """Return a preset's TOML."""
    if name in paper_rows.rows():
        return paper_rows.text(name)
    known = preset_names()
    if name not in known:
        close = nearest(name, known)
        hint = f"did you mean {close}? " if close else ""
        raise EbbflowError(f"{place}: there is no preset {name!r}: {hint}`ebbflow presets` has all")
    file = resources.files("ebbflow.config") / "preset_files" / f"{name}.toml"
    return file.read_text(encoding="utf-8")


def preset(name: str, place: str = "presets") -> dict[str, Any]:
    """Return a preset's values."""
    return tomllib.loads(preset_text(name, place))
