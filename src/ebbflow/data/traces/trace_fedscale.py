"""FedScale's client availability: when each client is active, as JSON.

FedScale ships a pickle, which may run code and is therefore never read. The same dictionary as JSON
is: from a client to ``active``, the times at which it becomes active, and ``inactive``, those at
which it stops, in seconds. ``finish_time`` (FedScale starts again after it; we do not),
``duration`` and ``model`` are not needed.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ebbflow.core.errors import EbbflowError
from ebbflow.data.traces.trace_oddities import Stay

_FORM = '{"client": {"active": [0, 9], "inactive": [5, 12]}, ...}'


class Availability(NamedTuple):
    """Numbered stays, and the place of each number in the file."""

    stays: list[tuple[int, Stay]]
    place: Callable[[int], str]


def refuse_pickle(path: Path, content: bytes) -> None:
    """Raise an error that tells how to convert a pickle, if the file is one."""
    marked = len(content) > 1 and content[0] == 0x80 and 2 <= content[1] <= 5
    if marked or path.suffix.lower() in (".pkl", ".pickle"):
        name = path.name
        raise EbbflowError(
            f"The trace {path} is a pickle, which can run code and is never read; if you trust it, "
            f"load it once with Python's own module for pickles, write what you get to {name}.json "
            "by `json.dump(trace, file, default=float)`, and point `schedule.file` to that file."
        )


def read_availability(path: Path, text: str) -> Availability:
    """Return the stays of FedScale's client availability."""
    try:
        clients = json.loads(text, object_pairs_hook=_distinct)
    except _TwiceError as error:
        raise EbbflowError(
            f"{path}: the key {str(error)!r} is there twice; give each client once."
        ) from None
    except (ValueError, RecursionError):
        raise EbbflowError(
            f"{path} is not one JSON document; name a file with one object per line '.jsonl'."
        ) from None
    if not isinstance(clients, dict) or not clients:
        raise EbbflowError(
            f"{path} is not FedScale's client availability; write it as {_FORM}, or write events "
            "as JSON Lines and name the file '.jsonl'."
        )
    stays: list[tuple[int, Stay]] = []
    names, firsts = list(clients), []
    for name, client in clients.items():
        firsts.append(len(stays))
        where = f"{path}, client {name!r}"
        begins, ends = (_times(where, client, key) for key in ("active", "inactive"))
        if not 0 <= len(begins) - len(ends) <= 1:
            raise EbbflowError(
                f"{where}: 'active' has {len(begins)} times and 'inactive' {len(ends)}; give each "
                "stay both, or leave out the end of the last."
            )
        for start, end in zip(begins, [*ends, None], strict=False):
            stays.append((len(stays), Stay(name, start, end)))

    def place(number: int) -> str:
        index = bisect_right(firsts, number) - 1
        return f"client {names[index]!r}, stay {number - firsts[index] + 1}"

    return Availability(stays, place)


class _TwiceError(Exception):
    """An object of a JSON document has a key twice."""


def _distinct(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return values


def _times(where: str, client: object, key: str) -> list[float]:
    times = client.get(key) if isinstance(client, dict) else None
    if not isinstance(times, list):
        raise EbbflowError(f"{where}: there is no list {key!r}; write each client as in {_FORM}.")
    for time in times:
        number = isinstance(time, int | float) and not isinstance(time, bool)
        if not number or not abs(time) < math.inf or abs(time) > 1e300:
            raise EbbflowError(
                f"{where}: {str(time)[:60]!r} in {key!r} is no time; give finite numbers, in "
                "seconds."
            )
    return [float(time) for time in times]
