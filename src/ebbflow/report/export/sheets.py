"""What a printed table is: few numbers, rounded, with a caption that says what they are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.export.columns import ExportRow, Frame

NOT_KNOWN = "–"
MOST_SETTINGS = 3
"""Columns of settings that a printed table has room for."""
MOST_DIGITS = 7


class SheetCell(NamedTuple):
    """A cell as it is printed, and whether it is the best of its kind."""

    text: str
    best: bool = False


class HeadCell(NamedTuple):
    """The name of a column, and what it has in common with its neighbours under the same head."""

    name: str
    over: str = ""

    @property
    def title(self) -> str:
        """Both in one line."""
        return f"{self.over} {self.name}" if self.over else self.name


SheetRows = list[list[SheetCell]]


@dataclass(frozen=True)
class Sheet:
    """One printed table: what it shows, its head, and groups of rows with rules between them.

    ``words`` says which columns hold words, which begin at the left; numbers end at the right.
    """

    title: str
    note: str
    label: str
    head: Sequence[HeadCell]
    words: Sequence[bool]
    groups: Sequence[SheetRows]

    @property
    def length(self) -> int:
        """The number of rows below the head."""
        return sum(map(len, self.groups))


def shown(value: Any) -> str:
    """Return a cell of any table, numbers with four digits.

    >>> shown(None), shown(3), shown(-0.123456), shown(True), shown(math.inf)
    ('–', '3', '−0.1235', 'yes', '∞')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "∞" if math.isinf(value) else signed(f"{value:.4g}")
    return signed(str(value)) if isinstance(value, int) else str(value)


def signed(number: str) -> str:
    """Return a number with a minus sign instead of a hyphen.

    >>> signed("-3.1")
    '−3.1'
    """
    return f"−{number[1:]}" if number.startswith("-") else number


def slug(*parts: object) -> str:
    """Return a label in letters, digits and hyphens only.

    >>> slug("tab", "My run", "fedavg", 10)
    'tab:my-run-fedavg-10'
    """
    kind, *rest = (re.sub(r"[^a-z0-9]+", "-", str(part).lower()).strip("-") for part in parts)
    return f"{kind}:{'-'.join(part for part in rest if part)}"


def over_seeds(counts: Iterable[int]) -> str:
    """Return what the numbers of a table are, by the numbers of seeds that they rest on.

    >>> over_seeds([3, 3]), over_seeds([1])
    ('mean ± standard deviation over 3 seeds', 'one seed')
    """
    found = sorted(set(counts))
    if found[-1] == 1:
        return "one seed"
    number = str(found[-1]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return f"mean ± standard deviation over {number} seeds"


def called(views: Sequence[RunView]) -> str:
    """Return what a caption calls runs: the run's name, or how many there are."""
    return views[0].name if len(views) == 1 else f"{len(views)} runs"


def telling(frame: Frame) -> list[str]:
    """Return the columns that tell runs apart, if there are several.

    That is their name, and the settings in which they differ unless these are many. A setting that
    is the same as another, as the rounds of pilot sessions often are, is left out.
    """
    if frame.names[0] != "run":
        return []
    settings: dict[tuple[Any, ...], str] = {}
    for name in frame.names[1 : frame.names.index("algorithm")]:
        settings.setdefault(tuple(frame.column(name)), name)
    return ["run", *(settings.values() if len(settings) <= MOST_SETTINGS else ())]


def decimals(values: Iterable[float | None], *, percent: bool) -> int | None:
    """Return how many decimals numbers of a table have: four digits for the largest of them.

    None says that they are too large or too small for that.

    >>> decimals([0.99, 1.2], percent=False), decimals([85.0, None], percent=True)
    (3, 2)
    """
    largest = max((abs(v) for v in values if v is not None and math.isfinite(v)), default=0.0)
    if percent or not largest:
        return 2
    digits = 3 - math.floor(math.log10(largest))
    return max(digits, 0) if -MOST_DIGITS < digits < MOST_DIGITS else None


def spread(row: ExportRow, digits: int | None) -> str:
    """Return the mean of a row with its deviation.

    >>> spread({"mean": 85.029, "deviation": 5.689}, 2)
    '85.03 ± 5.69'
    """
    mean, deviation = (_rounded(row[name], digits) for name in ("mean", "deviation"))
    return mean if row["deviation"] is None else f"{mean} ± {deviation}"


def _rounded(value: float | None, digits: int | None) -> str:
    if value is None or not math.isfinite(value) or digits is None:
        return shown(value)
    return signed(f"{value:.{digits}f}")


def grouped(rows: Iterable[ExportRow], *names: str) -> dict[tuple[Any, ...], list[ExportRow]]:
    """Return rows by what they hold in some columns, in order."""
    groups: dict[tuple[Any, ...], list[ExportRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def plain(values: Iterable[Any]) -> list[SheetCell]:
    """Return cells none of which is in bold."""
    return [SheetCell(shown(value)) for value in values]


def words_first(head: Sequence[HeadCell], count: int) -> list[bool]:
    """Return which columns hold words, if the first few do."""
    return [place < count for place in range(len(head))]
