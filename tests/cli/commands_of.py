"""Every command of the command line, and what its help says."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import typer.main

from ebbflow import cli

ROOT: Any = typer.main.get_command(cli.app)


def every_command(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each command and group with its name, as in ``data show``."""
    yield " ".join(path), command
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*path, name))


COMMANDS = dict(every_command())


def options_of(name: str) -> set[str]:
    return {text for param in COMMANDS[name].params for text in param.opts if text.startswith("-")}


def examples_of(name: str) -> list[list[str]]:
    """Return the words of each example in a command's help."""
    lines = (COMMANDS[name].epilog or "").partition("Examples:\n")[2].splitlines()
    found = []
    for line in lines:
        if not line.startswith("  ebbflow"):
            break
        found.append(shlex.split(line)[1:])
    return found


def parsed(words: list[str]) -> None:
    """Parse a command line as it would be parsed, and run nothing."""
    command, path, rest = ROOT, ["ebbflow"], list(words)
    while rest and hasattr(command, "commands"):
        rest = getattr(command, "with_command", list)(rest)  # one may be meant without a name
        if rest[0] not in command.commands:
            break
        path.append(rest[0])
        command = command.commands[rest.pop(0)]
    if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        raise ValueError(f"No such command {rest[0]!r}")
    if rest not in (["--help"], ["-h"]):
        command.make_context(" ".join(path), rest)
