"""Tables and files by user that make no sense, or just some: made from a random generator."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.chaos.made_files import damaged

CELLS = (
    *("", " ", "nan", "NaN", "inf", "-inf", "1e400", "-1e308", "0", "1", "1.5", "1,5", "True"),
    *("yes", "no", "?", "2024-05-01", "01.05.2024", "2024-05-01T12:00:00Z", "x" * 5000, "\x1b[31m"),
    *(
        "[bold]",
        "=cmd()",
        '"',
        '"a""b"',
        "\ud7ff",
        "ward 1",
        "9" * 400,
        "-0",
        "0x10",
        "\u0661",
        "None",
    ),
)
HEADERS = ("age", "ward", "outcome", "sex", "age ", "AGE", "", "x,y", "outcome", "unnamed: 0", "é")
LABELS = (*["outcome"] * 12, "age", "sex", "ward", "nothing", "age,outcome", "")
TASKS = (*["classes"] * 3, *["binary"] * 2, *["regression"] * 2, "multilabel", "tokens")


def table(draw: random.Random) -> bytes:
    """Return a CSV file of patients, in which some cells, rows or bytes are odd."""
    header = ["age", "ward", "sex", "outcome"]
    rows = [
        [str(draw.randrange(20, 90)), f"ward {n % 5}", draw.choice("mf"), draw.choice("01")]
        for n in range(draw.choice((0, 1, 2, 40, 40, 120)))
    ]
    for _ in range(draw.choice((0, 0, 1, 1, 3, 30))):
        if rows:
            row = draw.choice(rows)
            row[draw.randrange(len(row))] = draw.choice(CELLS)
    chance = draw.random()
    if chance < 0.15:
        header[draw.randrange(4)] = draw.choice(HEADERS)
    elif chance < 0.25 and rows:
        row = draw.choice(rows)
        row[draw.randrange(5) :] = [draw.choice(CELLS)] * draw.randrange(4)
    elif chance < 0.3:
        header, rows = header[:1], [row[:1] for row in rows]
    separator = ";" if draw.random() < 0.03 else ","
    text = "\n".join(separator.join(row) for row in [header, *rows])
    ending = draw.choice(("\n", "\r\n", "\n\n", ""))
    odd = ("utf-16", "latin-1", "utf-8-sig")
    encoding = draw.choice(odd) if draw.random() < 0.1 else "utf-8"
    content = (text + ending).encode(encoding, errors="replace")
    return damaged(draw, content) if draw.random() < 0.2 else content


def by_user(draw: random.Random) -> bytes:
    """Return a file in LEAF's layout, in which something may be odd."""
    users = [f"u{n}" for n in range(draw.choice((0, 1, 3, 8)))]
    data: dict[str, Any] = {
        user: {"x": [[draw.random(), 1.0] for _ in range(4)], "y": [draw.randrange(3)] * 4}
        for user in users
    }
    whole: dict[str, Any] = {"users": users, "num_samples": [4] * len(users), "user_data": data}
    for _ in range(draw.choice((0, 1, 1, 2))):
        draw.choice(_ODD)(draw, whole)
    content = json.dumps(whole).encode()
    return damaged(draw, content) if draw.random() < 0.2 else content


def _lost(draw: random.Random, whole: dict[str, Any]) -> None:
    whole.pop(draw.choice(sorted(whole)), None)


def _other(draw: random.Random, whole: dict[str, Any]) -> None:
    odd: tuple[Any, ...] = (None, 3, "text", [], {}, [1, 2], {"u0": 1}, [None], 1e400, [[]])
    whole[draw.choice(("users", "num_samples", "user_data", "more"))] = draw.choice(odd)


def _of_a_user(draw: random.Random, whole: dict[str, Any]) -> None:
    data = whole.get("user_data")
    if isinstance(data, dict) and data:
        odd: tuple[Any, ...] = (
            *(None, [], {"x": []}, {"x": [[1.0]], "y": [0, 1]}, {"x": ["text"], "y": ["a"]}),
            *({"x": [[1.0, "a"]], "y": [0]}, {"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "text"),
            {"x": [[float("nan"), 1.0]], "y": [0]},
            {"x": [[1.0, 1.0]], "y": [-1]},
            {"x": [[1.0, 1.0]], "y": [10**30]},
        )
        data[draw.choice(sorted(data))] = draw.choice(odd)


_ODD: tuple[Callable[[random.Random, dict[str, Any]], None], ...] = (_lost, _other, _of_a_user)
