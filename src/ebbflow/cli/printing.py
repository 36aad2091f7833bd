"""What commands print as JSON, and the examples at the end of their help."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer


def print_json(content: Mapping[str, Any]) -> None:
    """Print an object as JSON that every reader takes: what is no finite number is null."""
    typer.echo(json.dumps(plain(content), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """Return a value as JSON may hold it.

    >>> plain({"rounds": (3, float("inf")), "at": Path("a")})
    {'rounds': [3, None], 'at': 'a'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def json_option(what: str) -> Any:
    """Return the option --json of a command that prints this."""
    return typer.Option("--json", help=f"Print {what} as JSON and nothing else.")


def examples(*commands: str) -> str:
    """Return the end of a command's help: commands that can be typed as they are."""
    # The first character asks that lines stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])
