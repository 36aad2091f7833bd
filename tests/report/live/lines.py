"""Lines as a run writes them, for files that grow in tests."""

from __future__ import annotations

from typing import Any

from ebbflow.runs import records
from ebbflow.runs.records import Round


def round_line(number: int, accuracy: float = 50.0, **changes: Any) -> bytes:
    """Return a line of ``metrics.jsonl``."""
    done = Round("fedavg", "previous", 1, 1, number, accuracy, 0.5, 0.01, 4, 4)
    return records.line_of(done.line() | changes)


def warning_line(text: str) -> bytes:
    """Return a line of ``events.jsonl``."""
    return records.line_of({"event": "warning", "text": text})


def finished_line(session: int, seconds: float) -> bytes:
    """Return a line of ``events.jsonl`` whose length depends on how long a session took."""
    return records.line_of({"event": "finished", "seed": 1, "session": session, "seconds": seconds})
