"""What commands print as JSON, and the examples at the end of their help."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

import typer


class _Output:
    """Standard output, once it is kept for JSON; ``undo`` lets everybody print there again."""

    kept: TextIO | None = None
    undo = ExitStack()


@contextmanager
def output_given_back() -> Iterator[None]:
    """Let everybody print to standard output again at the end, if a command has kept it."""
    try:
        yield
    finally:
        _Output.kept = None
        _Output.undo.close()


def keep_output() -> None:
    """Keep standard output for `print_json`: what anybody else prints goes to standard error.

    Plugins and libraries print when they are imported, and so may processes that they start.
    """
    if _Output.kept is not None:
        return
    _Output.kept = sys.stdout
    own = sys.__stdout__
    if own is not None and own is sys.stdout:
        own.flush()
        ours = os.dup(1)
        _Output.kept = _Output.undo.enter_context(
            os.fdopen(ours, "w", encoding=own.encoding, errors=own.errors)
        )
        os.dup2(2, 1)
        _Output.undo.callback(os.dup2, ours, 1)
    _Output.undo.enter_context(redirect_stdout(sys.stderr))


def print_json(content: Mapping[str, Any], *, in_a_line: bool = False) -> None:
    """Print an object as JSON that every reader takes: what is no finite number is null."""
    text = json.dumps(plain(content), indent=None if in_a_line else 1, allow_nan=False)
    typer.echo(text, file=_Output.kept)


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
    """Return the option --json of a command that prints this by `print_json`, and nothing else."""
    return typer.Option("--json", callback=_wanted, help=f"Print {what} as JSON and nothing else.")


def _wanted(context: typer.Context, value: bool) -> bool:
    if value and not context.resilient_parsing:  # which is how completions are found
        keep_output()
    return value


def examples(*commands: str) -> str:
    """Return the end of a command's help: commands that can be typed as they are."""
    # The first character asks that lines stay as they are.
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])
