"""What a table is: named columns of one kind each, and rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ColumnKind = Literal["text", "whole", "number", "switch"]
"""What a column holds; any of its cells may be empty (None)."""

ExportRow = dict[str, Any]
"""A row by the names of its columns."""


class Column(NamedTuple):
    """A column: its name, what its cells are, and what they mean."""

    name: str
    kind: ColumnKind
    about: str


@dataclass(frozen=True)
class Frame:
    """A table of one or several runs: ordered columns, and rows that have a cell for each."""

    name: str
    columns: tuple[Column, ...]
    rows: list[ExportRow]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> list[Any]:
        """Return the cells of a column."""
        return [row[name] for row in self.rows]


def text(name: str, about: str) -> Column:
    """Return a column of texts."""
    return Column(name, "text", about)


def whole(name: str, about: str) -> Column:
    """Return a column of whole numbers."""
    return Column(name, "whole", about)


def number(name: str, about: str) -> Column:
    """Return a column of numbers."""
    return Column(name, "number", about)


ALGORITHM = text("algorithm", "the federated algorithm")
METHOD = text("method", "how sessions are started")
SEED = whole("seed", "the seed of the draws")
SESSION = whole("session", "the session, from 1 on")
TRANSITION = whole("transition", "k for the k-th session with a choice of models; empty before")
KEY = (ALGORITHM, METHOD, SEED, SESSION, TRANSITION)
"""What identifies a session of a method."""
