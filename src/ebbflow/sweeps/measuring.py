"""Measures what cells will take, each in a child of its own and one at a time."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any, TextIO

from ebbflow import experiment
from ebbflow.config.merge import read_written
from ebbflow.core.errors import EbbflowError
from ebbflow.core.malloc import use_one_arena
from ebbflow.plugins import load_recorded
from ebbflow.simulation.ceilings import available_memory
from ebbflow.sweeps.children import METHOD, Leaving
from ebbflow.sweeps.failures import sentence_of


def measure_all(order: Mapping[str, Any], lifeline: int, answers: TextIO) -> None:
    """Write a line of JSON for each cell of an order, as soon as it is known."""
    for cell in order["cells"]:
        found = _in_child(cell, order["out"], order["plugins"], lifeline)
        print(json.dumps({"name": cell["name"], **found}), file=answers, flush=True)


def _in_child(
    cell: Mapping[str, Any], out: str, plugins: Sequence[str], lifeline: int
) -> dict[str, Any]:
    """Return what a cell takes, measured in a process that has computed nothing before."""
    context: Any = get_context(METHOD)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, cell, out, plugins), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that wait for work
        process.start()
    there.close()
    while True:
        ready = connection.wait([here, lifeline])
        if here in ready:
            break
        if os.read(lifeline, 1024) == b"":  # nobody wants to know any more
            process.kill()
            os._exit(1)
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        process.join()
        found = {
            "error": f"its process died ({process.exitcode}) while it was tried: perhaps there is "
            "too little memory here"
        }
    process.join()
    return found


def _child(
    there: connection.Connection, cell: Mapping[str, Any], out: str, plugins: Sequence[str]
) -> None:
    Leaving(lambda: os._exit(1))
    use_one_arena()
    try:
        there.send(_measured(cell, Path(out), plugins))
    except EbbflowError as error:
        there.send({"error": str(error)})
    except Exception as error:
        there.send({"error": sentence_of(error)})
    there.close()
    sys.stderr.flush()
    os._exit(0)


def _measured(cell: Mapping[str, Any], out: Path, plugins: Sequence[str]) -> dict[str, Any]:
    config = read_written(dict(cell["settings"]), f"cell {cell['name']}")
    load_recorded(config.plugins, [Path(path) for path in plugins])
    available = available_memory()
    planned, seconds = experiment.dry_run(config, out, math.inf if available is None else available)
    return {
        "seconds": None if math.isnan(seconds) else seconds,
        "memory": planned.most_memory,
        "disk": planned.most_disk,
        "each_core": planned.each_core,
    }
