"""Grids: which values each key takes, as files, options and Python write them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ebbflow.config.merge import keys, leaves, literal
from ebbflow.config.schema import SHORTCUTS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.seed_lists import seeds

SEEDS = "seeds"
MOST_CELLS = 10_000
"""Cells of a sweep: more are most likely a slip."""


class Axis(NamedTuple):
    """A key that varies: its values in order, and where they were written."""

    key: str
    values: list[Any]
    place: str


def axis(key: str, values: Any, place: str) -> Axis:
    """Return an axis after checking that there are values, and each once.

    Seeds may be a text such as "1-5", and a key may be one of the command line's shortcuts.
    """
    name = full_key(key)
    if name == SEEDS and isinstance(values, str):
        values = _seeds(values, place)
    if isinstance(values, tuple | range):
        values = list(values)
    if not isinstance(values, list):
        raise EbbflowError(
            f"{key} = {values!r} ({place}) is no list of values: write them as in {key} = "
            f"[{_shown(values)}]"
        )
    if not values:
        raise EbbflowError(f"{key} = [] ({place}) has no values: name at least one, or leave it")
    for number, value in enumerate(values):
        if any(_same(value, other) for other in values[:number]):
            raise EbbflowError(f"{key} ({place}) names {value!r} more than once: name it once")
    return Axis(name, values, place)


def _seeds(text: str, place: str) -> list[int]:
    try:
        return seeds(text, SEEDS)
    except EbbflowError as error:
        raise EbbflowError(f"{place}: {error}") from None


def full_key(key: str) -> str:
    """Return the key that a shortcut of the command line stands for, or the key itself.

    >>> full_key("alpha"), full_key("rounds")
    ('partition.alpha', 'rounds')
    """
    return key if key in set(keys()) else SHORTCUTS.get(key, key)


def axes_of(grid: Mapping[str, Any], place: str) -> list[Axis]:
    """Return the axes of a table: keys with lists of values, nested or dotted."""
    return distinct([axis(dotted(path, place), values, place) for path, values in leaves(grid)])


def dotted(path: Sequence[Any], place: str) -> str:
    """Return the parts of a key with dots between them, after checking that they are texts."""
    for part in path:
        if not isinstance(part, str):
            raise EbbflowError(f'{part!r} ({place}) is no key: a key is a text, as in "rounds"')
    return ".".join(path)


def axis_of_text(text: str) -> Axis:
    """Return the axis that ``--grid KEY=V1,V2`` names.

    >>> axis_of_text("partition.alpha=0.3,0.7").values, axis_of_text("seeds=1-3").values
    ([0.3, 0.7], [1, 2, 3])
    """
    key, equals, values = text.partition("=")
    place = f"--grid {text}"
    name = ".".join(part.strip() for part in key.split("."))
    if not equals or not values.strip() or not all(name.split(".")):
        raise EbbflowError(
            f'--grid "{text}" is not of the form KEY=VALUE,VALUE, as in --grid partition.alpha='
            "0.3,0.7"
        )
    if full_key(name) == SEEDS and not values.strip().startswith("["):
        return axis(name, values, place)
    return axis(name, _values(values.strip()), place)


def _values(text: str) -> list[Any]:
    """Return values between commas; what is no TOML is a text without quotes."""
    found = literal(f"[{text}]")
    if not isinstance(found, list):
        return [literal(part.strip()) for part in text.split(",")]
    # One pair of brackets may be written, as in a file.
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def distinct(axes: Sequence[Axis]) -> list[Axis]:
    """Return axes after checking that no key has two."""
    seen: dict[str, Axis] = {}
    for each in axes:
        if each.key in seen:
            raise EbbflowError(
                f"{each.key} varies twice ({seen[each.key].place}, {each.place}): name it once"
            )
        seen[each.key] = each
    return list(axes)


def combinations(axes: Sequence[Axis]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values, the last key varying fastest."""
    count = math.prod(len(each.values) for each in axes)
    if count > MOST_CELLS:
        sizes = " x ".join(str(len(each.values)) for each in axes)
        raise EbbflowError(
            f"the grid has {sizes} = {count:,} cells: a sweep has at most {MOST_CELLS:,}"
        )
    for values in itertools.product(*(each.values for each in axes)):
        yield {each.key: value for each, value in zip(axes, values, strict=True)}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value}"
