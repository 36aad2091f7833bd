"""Runs a command line: a sentence and exit code 2 for whatever the user can mend."""

from __future__ import annotations

import sys

import typer

from ebbflow.core.errors import EbbflowError


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line called ``name`` and exit with its code."""
    try:
        code = app(standalone_mode=False)
    except EbbflowError as error:
        if error.details:
            typer.echo(error.details, err=True)
        _fail(name, str(error))
    except typer.TyperException as error:  # an unknown option, a missing argument
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


def _fail(name: str, sentence: str) -> None:
    typer.echo(f"{name}: {sentence}", err=True)
    sys.exit(2)
