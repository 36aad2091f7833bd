"""`ebbflow --help` answers at once: it imports typer, the standard library and nothing else."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys

HELP = "import sys; sys.argv = ['ebbflow', '--help']; from ebbflow.cli import main; main()"
TYPER = "import typer"
LOADED = """
import atexit, json, sys
import typer
before = set(sys.modules)
atexit.register(lambda: print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr))
"""
REPEATS = 7
# Beside importing typer: building all commands, about a millisecond each, and printing the help.
# Drawing the help with rich would take as long again as all of it.
RATIO, SECONDS = 2.2, 0.25


def seconds(program: str) -> float:
    """Return the processor time that a Python program takes: a busy machine does not change it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_imports_nothing_but_typer_and_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED + HELP], check=True, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    # Some versions of typer are built on click.
    assert loaded - sys.stdlib_module_names <= {"click", "ebbflow", "typer"}


def test_help_takes_little_longer_than_importing_typer() -> None:
    pairs = [(seconds(HELP), seconds(TYPER)) for _ in range(REPEATS)]
    helping, importing = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert helping < RATIO * importing
    assert min(first for first, _ in pairs) < SECONDS
