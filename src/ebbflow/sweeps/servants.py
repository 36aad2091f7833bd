"""Processes that work for this one: told what to do in a line, and gone when this one is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any


def import_paths() -> list[str]:
    """Return where this process imports code from, so that others can take the same."""
    return [str(Path(path).absolute()) for path in sys.path if path]


def start_servant(
    order: Mapping[str, Any], *, stdout: int | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that does what an order says, by `ebbflow.sweeps.servant`.

    It is in a session of its own: an interrupt at the keyboard reaches us, and we tell the others.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "ebbflow.sweeps"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(import_paths())},
        start_new_session=True,
    )
    line = json.dumps(order).encode() + b"\n"
    with suppress(BrokenPipeError):  # it is gone already, and its exit code says so
        if process.stdin is not None:
            process.stdin.write(line)
            process.stdin.flush()
    return process
