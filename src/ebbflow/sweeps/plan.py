"""A sweep's plan: its cells, and the file that keeps them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import ConfigDict, Field, StringConstraints, with_config
from typing_extensions import TypedDict

from ebbflow.config.merge import read_written
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import PATTERN
from ebbflow.runs.records import is_sealed_text, sealed_text, without_none
from ebbflow.runs.schemas import checked
from ebbflow.sweeps.cell_names import namesake

FILE = "sweep.toml"
LARGEST = 2**28
REMEDY = "restore the file, or start the sweep in another folder"
VERSION = 1


@dataclass(frozen=True)
class SweepCell:
    """One run of a sweep: its name, the digest of what its result depends on, its settings."""

    name: str
    digest: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, digest: str, config: Config) -> SweepCell:
        """Return the cell of a resolved configuration."""
        return cls(name, digest, without_none(config.model_dump()))

    @cached_property
    def config(self) -> Config:
        """The resolved configuration."""
        return read_written(dict(self.settings), f"cell {self.name}")

    @property
    def rounds(self) -> int | None:
        """Rounds of all seeds, if the settings tell."""
        values = self.settings
        pilot, schedule = values["pilot"], values["schedule"]
        if schedule.get("kind", "groups") != "groups" and "round_time" in schedule:
            return None
        first = min(pilot["sessions"], values["sessions"])
        later = (values["sessions"] - first) * values["rounds"]
        return int(len(values["seeds"]) * (first * pilot["rounds"] + later))

    def value(self, key: str) -> Any:
        """Return the value of a dotted key; None if there is none."""
        node: Any = self.settings
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        return node


@dataclass(frozen=True)
class SweepPlan:
    """The cells of a sweep in order, and the dotted keys that vary."""

    name: str
    varied: tuple[str, ...]
    cells: tuple[SweepCell, ...]

    @cached_property
    def by_name(self) -> dict[str, SweepCell]:
        """The cells by their names."""
        return {cell.name: cell for cell in self.cells}

    def extended(self, other: SweepPlan, where: Path) -> SweepPlan:
        """Return this plan with the cells of another that it lacks; refuse to drop any.

        Cells are the same if their results would be. They keep the names that they have here.
        """
        wanted = {cell.digest: cell for cell in other.cells}
        ours = {cell.digest: cell for cell in self.cells}
        for cell in self.cells:
            if cell.digest not in wanted:
                raise EbbflowError(
                    f"{where} holds a sweep with the cell {cell.name}, which this one lacks"
                    f"{_difference(cell, other)}: use the same settings, or another --out"
                )
        taken = {name.casefold() for name in self.by_name}
        new = [cell for cell in other.cells if cell.digest not in ours]
        for cell in new:
            if cell.name.casefold() in taken:
                raise EbbflowError(
                    f"{where} holds another cell called {cell.name}: give this one another name, "
                    "or use another --out"
                )
        varied = dict.fromkeys([*self.varied, *other.varied])
        return SweepPlan(self.name, tuple(varied), (*self.cells, *new))


def _difference(cell: SweepCell, other: SweepPlan) -> str:
    """Return in what the cell of the same name differs, if there is one."""
    twin = other.by_name.get(cell.name)
    if twin is None:
        return ""
    ours, theirs = (_flat(each.settings) for each in (cell, twin))
    for key in {**ours, **theirs}:
        if ours.get(key) != theirs.get(key):
            return f" ({key} is {theirs.get(key)!r} and was {ours.get(key)!r})"
    return ""


# --- the file ------------------------------------------------------------------------------------

_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class CellLine(TypedDict):
    """A cell in the file: what it does not share with all others."""

    name: Annotated[str, StringConstraints(pattern=f"^{PATTERN}$")]
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    settings: dict[str, Any]


@with_config(_STRICT)
class PlanContent(TypedDict):
    """The file of a plan."""

    version: int
    name: Annotated[str, StringConstraints(max_length=200)]
    varied: list[str]
    base: dict[str, Any]
    cells: Annotated[list[CellLine], Field(min_length=1)]


def plan_text(plan: SweepPlan) -> bytes:
    """Return a plan as it is kept: what all cells share once, and then what they do not."""
    shared = _shared([cell.settings for cell in plan.cells])
    content = {
        "version": VERSION,
        "name": plan.name,
        "varied": list(plan.varied),
        "base": shared,
        "cells": [
            {
                "name": cell.name,
                "digest": cell.digest,
                "settings": _without(cell.settings, shared),
            }
            for cell in plan.cells
        ],
    }
    return sealed_text(tomli_w.dumps(content))


def read_plan(path: Path) -> SweepPlan:
    """Return the plan that a file keeps, after checking its digest."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise EbbflowError(
            f"{path.parent} holds no sweep ({path.name} is missing): check the path, or start one "
            f"by `ebbflow sweep SWEEP.toml --out {path.parent}`"
        ) from None
    except OSError as error:
        raise EbbflowError(f"{path} cannot be read ({error.strerror}): {REMEDY}") from None
    if len(text) > LARGEST or not is_sealed_text(text):
        raise EbbflowError(f"{path} was changed or damaged: {REMEDY}")
    content = checked(PlanContent, tomllib.loads(text.decode()), str(path), REMEDY)
    if content["version"] != VERSION:
        raise EbbflowError(f"{path} is of version {content['version']}, which is not known here")
    if double := namesake(cell["name"] for cell in content["cells"]):
        raise EbbflowError(f"{path} holds two cells called {double}: {REMEDY}")
    base = content["base"]
    return SweepPlan(
        content["name"],
        tuple(content["varied"]),
        tuple(
            SweepCell(cell["name"], cell["digest"], _merged(base, cell["settings"]))
            for cell in content["cells"]
        ),
    )


def _shared(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values that all have in common, table by table."""
    first, *others = every
    common: dict[str, Any] = {}
    for key, value in first.items():
        if not all(key in own for own in others):
            continue
        if isinstance(value, Mapping) and all(isinstance(own[key], Mapping) for own in others):
            common[key] = _shared([own[key] for own in every])
        elif all(_equal(own[key], value) for own in others):
            common[key] = value
    return common


def _without(values: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for key, value in values.items():
        if key not in shared:
            own[key] = value
        elif isinstance(value, Mapping):
            below = _without(value, shared[key])
            own |= {key: below} if below else {}
    return own


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = _merged(below, value)
        else:
            merged[key] = value
    return merged


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{key}"
        found |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


def _equal(one: Any, other: Any) -> bool:
    # 1 and 1.0 and true are equal to Python, and not to TOML.
    return repr(one) == repr(other)
