"""Runs a command line: one sentence and exit code 2 for any error that a user can fix."""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ebbflow.cli.printing import output_given_back
from ebbflow.core.errors import EbbflowError, EbbflowWarning, nearest
from ebbflow.core.names import printable, shortened

# An unknown option, a missing argument, a value of the wrong type. The name and module of their
# common base class differ between versions of typer, some of which take it from click and some of
# which do not install click; all versions export BadParameter, which inherits from it.
USAGE_ERRORS: tuple[type[Exception], ...] = tuple(
    base
    for base in typer.BadParameter.__mro__
    if issubclass(base, Exception) and hasattr(base, "format_message")
)


_began = time.perf_counter()


def seconds_so_far() -> float:
    """Return how long the command has been at work, with all that it has imported."""
    return time.perf_counter() - _began


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command line called ``name`` and exit with its code."""
    global _began  # noqa: PLW0603 - a process runs one command line
    _began = time.perf_counter()
    try:
        with _told(), output_given_back():
            code = app(prog_name=name, standalone_mode=False)
    except EbbflowError as error:
        if error.details:
            typer.echo(error.details, err=True)
        _fail(name, str(error))
    except USAGE_ERRORS as error:
        _fail(name, usage_sentence(error, name))
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


def usage_sentence(error: Exception, name: str) -> str:
    """Return what is wrong with a command line, what may have been meant, and where the help is."""
    sentence = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".?")
    context = getattr(error, "ctx", None)
    where = getattr(context, "command_path", None) or name
    known: Iterable[str] = ()
    # Versions of click differ in quotation marks and colons.
    unknown = re.match(r"No such (?P<what>option|command):? '?(?P<name>[^\s']+)", sentence)
    if unknown is not None:
        quote = "'" if unknown["what"] == "command" else ""
        sentence = f"No such {unknown['what']} {quote}{unknown['name']}{quote}"
        command = getattr(context, "command", None)
        if unknown["name"].startswith("-"):
            options = getattr(command, "params", ())
            shown = [option for option in options if not getattr(option, "hidden", False)]
            known = [text for option in shown for text in option.opts]
        else:
            known = list(getattr(command, "commands", ()))
    close = unknown and nearest(unknown["name"], known, 0.6)
    meant = f": did you mean {close}?" if close else ";"
    return f"{sentence}{meant} see `{where} --help`"


def _fail(name: str, sentence: str) -> None:
    typer.echo(f"{name}: {shortened(printable(sentence))}", err=True)
    sys.exit(2)
