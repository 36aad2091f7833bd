"""Makes a plan of what a user wrote: a base, a grid, a list of cells, and options on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from ebbflow.config.merge import Layers, leaves, read_toml
from ebbflow.config.schema import Section
from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256
from ebbflow.data.names import ALIASES
from ebbflow.data.sources import SOURCES
from ebbflow.sweeps.cell_names import cell_names, namesake
from ebbflow.sweeps.digests import digest
from ebbflow.sweeps.grids import (
    MOST_CELLS,
    Axis,
    axes_of,
    combinations,
    distinct,
    dotted,
    full_key,
)
from ebbflow.sweeps.plan import SweepCell, SweepPlan

TABLES = ("base", "grid", "cells")
"""What a sweep's file has and the configuration of a run has not."""
CHECKPOINT = {"checkpoint.seconds": 1.0, "checkpoint.share": 0.05}
"""How often cells are saved, unless the user says otherwise: workers come and go at any time, and
what they have computed should not be lost."""
PATHS = ("data.test", "lr.file", "model.weights", "schedule.file")
"""Keys that hold paths; with them, ``dataset`` may."""
OPTIONS = ("--", "argument ")
"""How the place of a value begins that was given as an option, or as an argument in Python."""


class SweepFile(Section):
    """A sweep as it is written: what cells share, what varies, and cells one by one."""

    name: str = ""
    base: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, Any] = Field(default_factory=dict)
    cells: list[dict[str, Any]] = Field(default_factory=list)


class ListedCell(NamedTuple):
    """A cell of a list: its name, if it has one, its settings by dotted key, and its place."""

    name: str | None
    settings: dict[str, Any]
    place: str


@dataclass
class Wish:
    """What a user asks for: layers that all cells share, keys that vary, and listed cells."""

    layers: Layers = field(default_factory=Layers)
    axes: list[Axis] = field(default_factory=list)
    listed: list[ListedCell] = field(default_factory=list)
    name: str = ""

    def vary(self, axes: Sequence[Axis]) -> None:
        """Let keys vary; one that does already takes these values instead."""
        new = {each.key: each for each in distinct(axes)}
        self.axes = [new.pop(each.key, each) for each in self.axes] + list(new.values())


def wish_of_file(path: Path) -> Wish:
    """Return what a file asks for: that of a sweep, or the configuration of a run."""
    values = read_toml(path)
    wish = Wish(name=path.stem)
    if not any(key in values for key in TABLES):
        wish.layers.add_written(values, path)
        return wish
    try:
        written = SweepFile.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, reason = ".".join(map(str, first["loc"])), str(first["msg"])
        known = f"a sweep has name, {', '.join(TABLES)}; settings that cells share are in [base]"
        raise EbbflowError(
            f"{key} ({path}) is refused: {reason[0].lower()}{reason[1:]}; {known}"
        ) from None
    wish.name = written.name or wish.name
    wish.layers.add_written(written.base, path)
    wish.axes = axes_of(written.grid, f"grid of {path}")
    wish.listed = [
        listed_cell(cell, f"cell {number} of {path}")
        for number, cell in enumerate(written.cells, start=1)
    ]
    return wish


def listed_cell(values: Mapping[str, Any], place: str) -> ListedCell:
    """Return a cell of a list; its settings may be nested, dotted, or shortcuts."""
    name = values.get("name")
    if name is not None and (not isinstance(name, str) or not name):
        raise EbbflowError(f"name = {name!r} ({place}) is no text: a cell's name is one")
    rest = {key: value for key, value in values.items() if key != "name"}
    settings = {full_key(dotted(path, place)): value for path, value in leaves(rest)}
    return ListedCell(name, settings, f"{place}, {name}" if name else place)


# --- from a wish to a plan -----------------------------------------------------------------------


def plan_of(wish: Wish) -> SweepPlan:
    """Return the cells of a sweep, each resolved and checked; a bad one is refused by name."""
    _refuse_contradictions(wish)
    _refuse_namesakes(wish.listed)
    base = wish.layers.copy()
    for key, value in CHECKPOINT.items():
        if key not in base.places:
            base.add_key(key, value, "sweep")
    drafts = list(_drafts(wish))
    listed = (key for cell in wish.listed for key in cell.settings)
    keys = dict.fromkeys([*listed, *(each.key for each in wish.axes)])
    names = cell_names(
        [_told(draft, keys) for draft in drafts], [draft.listed.name for draft in drafts]
    )
    if double := namesake(names):
        raise EbbflowError(f"two cells would be called {double}: give each a name of its own")
    cells = [_resolved(base, draft, name) for draft, name in zip(drafts, names, strict=True)]
    _refuse_twins(cells)
    return SweepPlan(wish.name, tuple(keys), tuple(cells))


class _Draft(NamedTuple):
    listed: ListedCell
    combination: dict[str, Any]
    axes: Sequence[Axis]

    @property
    def varied(self) -> dict[str, Any]:
        return {**self.listed.settings, **self.combination}


def _drafts(wish: Wish) -> Iterator[_Draft]:
    """Yield the cells before they are resolved; each listed one is multiplied by the grid."""
    listed = wish.listed or [ListedCell(None, {}, "")]
    every = list(combinations(wish.axes))
    if len(listed) * len(every) > MOST_CELLS:
        raise EbbflowError(
            f"{len(listed)} cells times a grid of {len(every):,} are more than {MOST_CELLS:,} "
            "cells: make several sweeps of them"
        )
    for cell in listed:
        for combination in every:
            yield _Draft(cell, combination, wish.axes)


def _told(draft: _Draft, keys: Mapping[str, None]) -> dict[str, Any]:
    """Return what a cell's name tells: a given name stands for the settings listed with it."""
    own = draft.combination if draft.listed.name else draft.varied
    return {key: own[key] for key in keys if key in own}


def _resolved(base: Layers, draft: _Draft, name: str) -> SweepCell:
    layers = base.copy()
    for key, value in draft.listed.settings.items():
        layers.add_key(key, value, draft.listed.place)
    places = {each.key: each.place for each in draft.axes}
    for key, value in draft.combination.items():
        layers.add_key(key, value, places[key])
    try:
        _make_absolute(layers)
        config = layers.config()
    except EbbflowError as error:
        raise EbbflowError(f"cell {name}: {error}") from None
    return SweepCell.of(name, cell_digest(config), config)


def cell_digest(config: Any) -> str:
    """Return the digest of a cell; unlike a kept result's, it knows which weights it starts from.

    Cells of one sweep may differ in nothing else.
    """
    plain, weights = digest(config), config.model.weights
    return plain if weights is None else sha256(f"{plain} {weights}".encode())[: len(plain)]


def _make_absolute(layers: Layers) -> None:
    """Write paths so that a worker in any working directory finds the same files."""
    for path, value in list(leaves(layers.values)):
        key = ".".join(path)
        known = key == "dataset" and value in {*SOURCES, *ALIASES}
        if key not in (*PATHS, "dataset") or known or not isinstance(value, str):
            continue
        try:
            there = Path(value).exists()
        except (OSError, ValueError):  # no path at all: the check of the settings says so
            continue
        if there and not Path(value).is_absolute():
            layers.add_key(key, str(Path(value).absolute()), layers.places.get(key, ""))


def _refuse_contradictions(wish: Wish) -> None:
    """Raise an error if a key is set in two places neither of which should give way."""
    places = wish.layers.places
    varied = {each.key: each.place for each in wish.axes}
    for key, place in varied.items():
        if places.get(key, "").startswith(OPTIONS):
            raise EbbflowError(
                f"{key} is set by {places[key]} and varies by {place}: leave one of them out"
            )
    for cell in wish.listed:
        for key in cell.settings:
            if key in varied:
                raise EbbflowError(
                    f"{key} is set by {cell.place} and varies by {varied[key]}: leave one of them "
                    "out"
                )
            if places.get(key, "").startswith(OPTIONS):
                raise EbbflowError(
                    f"{key} is set by {places[key]} and by {cell.place}: leave one of them out"
                )


def _refuse_namesakes(listed: Sequence[ListedCell]) -> None:
    seen: dict[str, str] = {}
    for cell in listed:
        name = (cell.name or "").casefold()
        if name in seen:
            raise EbbflowError(
                f"{seen[name]} and {cell.place} have the same name, or one that differs in capital "
                "letters alone: give each a name of its own"
            )
        seen |= {name: cell.place} if name else {}


def _refuse_twins(cells: Sequence[SweepCell]) -> None:
    seen: dict[str, str] = {}
    for cell in cells:
        if cell.digest in seen:
            raise EbbflowError(
                f"the cells {seen[cell.digest]} and {cell.name} would give the same result, for "
                "they differ in nothing that changes one: leave one of them out"
            )
        seen[cell.digest] = cell.name
