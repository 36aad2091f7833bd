"""Runs a command line: one sentence and exit code 2 for any error that a user can fix."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.names import printable, shortened

# An unknown option, a missing argument, a value of the wrong type. The name and module of their
# common base class differ between versions of typer, some of which take it from click and some of
# which do not install click; all versions export BadParameter, which inherits from it.
USAGE_ERRORS: tuple[type[Exception], ...] = tuple(
    base
    for base in typer.BadParameter.__mro__
    if issubclass(base, Exception) and hasattr(base, "format_message")
)


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line called ``name`` and exit with its code."""
    try:
        with _told():
            code = app(prog_name=name, standalone_mode=False)
    except EbbflowError as error:
        if error.details:
            typer.echo(error.details, err=True)
        _fail(name, str(error))
    except USAGE_ERRORS as error:
        sentence = getattr(error, "format_message", error.__str__)().rstrip(".")
        _fail(name, f"{sentence}; see `{name} --help`")
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped", err=True)
        sys.exit(130)
    except OSError as error:
        path = error.filename or "a file"
        _fail(name, f"{path}: {error.strerror or error}; check the path and the disk")
    else:
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _told() -> Iterator[None]:
    """Print our own warnings as sentences, each once; others look as they always do."""
    told: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", EbbflowWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, EbbflowWarning):
                if str(message) not in told:
                    typer.echo(f"warning: {printable(str(message))}", err=True)
                told.add(str(message))
            else:
                usual(message, category, *place)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _fail(name: str, sentence: str) -> None:
    typer.echo(f"{name}: {shortened(printable(sentence))}", err=True)
    sys.exit(2)
