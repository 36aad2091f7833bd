"""What cells will take: time, memory and room on the disk, measured before anything starts.

Cells that differ in their seeds alone take the same, and are measured once.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256
from ebbflow.runs.records import read_sealed, write_sealed
from ebbflow.runs.schemas import checked
from ebbflow.sweeps.plan import SweepCell
from ebbflow.sweeps.servants import start_servant

FILE = "estimates.json"
REMEDY = "remove the file, and it is measured again"


class CellEstimate(NamedTuple):
    """What a cell will take.

    ``seconds`` is None if it does not fit into the memory of the machine that would have measured
    it; ``memory`` and ``disk`` are the most at any time, in bytes; ``cores`` is how many processor
    cores time and memory are for, and ``each_core`` the bytes that each of them adds.
    """

    seconds: float | None
    memory: int
    disk: int
    cores: int
    each_core: int = 0

    def memory_on(self, cores: int) -> int:
        """Return the bytes of memory on so many cores."""
        return max(0, self.memory + (cores - self.cores) * self.each_core)


@with_config(ConfigDict(extra="forbid", strict=True))
class EstimateLine(TypedDict):
    """An estimate in the file."""

    seconds: Annotated[float, Field(ge=0)] | None
    memory: Annotated[int, Field(ge=0)]
    disk: Annotated[int, Field(ge=0)]
    cores: Annotated[int, Field(ge=1)]
    each_core: NotRequired[Annotated[int, Field(ge=0)]]


@with_config(ConfigDict(extra="forbid", strict=True))
class EstimateContent(TypedDict):
    """The file of estimates, by the cells' names."""

    cells: dict[str, EstimateLine]


def alike(cells: Iterable[SweepCell]) -> list[list[SweepCell]]:
    """Return cells in groups that differ in their seeds alone."""
    groups: dict[str, list[SweepCell]] = {}
    for cell in cells:
        rest = {key: value for key, value in cell.settings.items() if key != "seeds"}
        text = json.dumps([rest, len(cell.settings["seeds"])], sort_keys=True)
        groups.setdefault(sha256(text.encode()), []).append(cell)
    return list(groups.values())


def measured(
    cells: Sequence[SweepCell],
    out: Path,
    cores: Sequence[int],
    plugins: Sequence[str] = (),
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, CellEstimate]:
    """Return what cells will take on these processor cores; a bad cell is refused by name.

    ``tell`` is told how many of how many different cells have been measured.
    """
    groups = alike(cells)
    by_first = {group[0].name: group for group in groups}
    order = {
        "do": "estimate",
        "cells": [{"name": g[0].name, "settings": dict(g[0].settings)} for g in groups],
        "out": str(out),
        "plugins": list(plugins),
        "cores": list(cores),
    }
    found: dict[str, CellEstimate] = {}
    tell(0, len(groups))
    servant = start_servant(order, stdout=subprocess.PIPE)
    try:
        for number, line in enumerate(servant.stdout or (), start=1):
            facts: dict[str, Any] = json.loads(line)
            if "error" in facts:
                raise EbbflowError(f"cell {facts['name']}: {facts['error']}")
            told = CellEstimate(
                facts["seconds"],
                facts["memory"],
                facts["disk"],
                max(1, len(cores)),
                facts["each_core"],
            )
            found |= {cell.name: told for cell in by_first[facts["name"]]}
            tell(number, len(groups))
    finally:
        # Without us it ends, and what it was measuring with it.
        if servant.stdin is not None:
            servant.stdin.close()
        if servant.stdout is not None:
            servant.stdout.close()
        servant.wait()
    lacking = [cell.name for cell in cells if cell.name not in found]
    if lacking:
        raise EbbflowError(
            f"cell {lacking[0]}: what it takes could not be measured, for the process that did "
            f"so ended with code {servant.returncode}: try again"
        )
    return found


def read_estimates(path: Path) -> dict[str, CellEstimate]:
    """Return what is known of cells by name; nothing if there is no file."""
    if not path.exists():
        return {}
    content = checked(EstimateContent, read_sealed(path, REMEDY), str(path), REMEDY)
    return {name: CellEstimate(**line) for name, line in content["cells"].items()}


def write_estimates(path: Path, estimates: Mapping[str, CellEstimate]) -> None:
    """Keep what is known of cells."""
    lines = {name: estimate._asdict() for name, estimate in estimates.items()}
    write_sealed(path, {"cells": lines})
