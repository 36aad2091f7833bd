"""What a process does that works for another one: compute cells, or measure what they take."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

LONGEST_ORDER = 2**28


def main() -> None:
    """Read an order, and follow it until it is done or the other process is gone."""
    order = read_order(0)
    from ebbflow.sweeps.cores import VISIBLE, bind_to  # noqa: PLC0415

    bind_to(order["cores"])
    if order.get("gpu") is not None:  # before torch is imported, which asks once
        os.environ[VISIBLE] = order["gpu"]
    if order["do"] == "estimate":
        answers = _answers()
        from ebbflow.sweeps.measuring import measure_all  # noqa: PLC0415

        measure_all(order, 0, answers)
        return
    sys.exit(_work(order))


def _work(order: dict[str, Any]) -> int:
    from ebbflow.core.errors import EbbflowError  # noqa: PLC0415
    from ebbflow.sweeps.jobs import JobsReference  # noqa: PLC0415
    from ebbflow.sweeps.working import Worker  # noqa: PLC0415

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    try:
        jobs = JobsReference(order["factory"], order["arguments"]).open()
        worker = Worker(jobs, say, lifeline=0, grace=order["grace"])
        worker.work()
    except EbbflowError as error:
        say(f"ebbflow: {error}")
        return 2
    return 0 if worker.stopped_by is None else 128 + worker.stopped_by


def _answers() -> TextIO:
    """Return standard output for us alone; what plugins and libraries print goes to the errors."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def read_order(handle: int) -> dict[str, Any]:
    """Return the object of the first line, without reading on behind it."""
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(handle, 2**16)
        text += part
        if not part or len(text) > LONGEST_ORDER:
            sys.exit("python -m ebbflow.sweeps is for other commands to start: use `ebbflow sweep`")
    order: dict[str, Any] = json.loads(text)
    return order
