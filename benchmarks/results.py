"""What a benchmark leaves behind: numbers in JSON, from which the page is written."""

from __future__ import annotations

import statistics
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically

GIGABYTE = 10**9


def seconds_text(seconds: float) -> str:
    """Return a duration with three digits or so.

    >>> [seconds_text(s) for s in (0.0421, 1.234, 75.2, 1510.0)]
    ['42.1 ms', '1.23 s', '75.2 s', '1510 s']
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Row(_Record):
    """One contender: the seconds of every repeat, and what else is known of it.

    ``difference`` is the largest one between its model and the reference's; ``memory`` the peak of
    anonymous memory in bytes; ``operations`` the floating-point operations and ``steps`` the local
    steps behind one repeat; ``devices`` the size on a scaling curve.
    """

    name: str
    seconds: list[float] = []
    difference: float | None = None
    memory: int | None = None
    operations: int | None = None
    steps: int | None = None
    devices: int | None = None
    peer: bool = False
    note: str = ""

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)


class Check(_Record):
    """A bound that should hold, and what was found."""

    what: str
    found: float
    bound: float
    at_least: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether it holds.

        >>> Check(what="faster", found=2.9, bound=3, at_least=True).met
        False
        """
        return self.found >= self.bound if self.at_least else self.found <= self.bound


class Suite(_Record):
    """The rows of one work, the bounds on them, and what they were measured with.

    ``shares`` are of a profile: for each thing that was watched, where its time went.
    """

    name: str
    title: str
    rows: list[Row] = []
    checks: list[Check] = []
    notes: list[str] = []
    shares: dict[str, dict[str, float]] = {}
    machine: dict[str, str] = {}
    versions: dict[str, str] = {}


class Results(_Record):
    """The suites that were measured, each in a run of its own, by name."""

    suites: dict[str, Suite] = {}

    def updated(self, suites: list[Suite]) -> Results:
        """Return these results with newer suites in place of their predecessors."""
        return Results(suites=self.suites | {suite.name: suite for suite in suites})


def read_results(path: Path) -> Results:
    """Return what a file holds; nothing if there is none."""
    if not path.exists():
        return Results()
    try:
        return Results.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise EbbflowError(
            f"{path} holds no results of a benchmark ({error.error_count()} mistakes): delete it"
        ) from None


def write_results(path: Path, results: Results) -> None:
    """Write results beside the page that is made of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (results.model_dump_json(indent=1) + "\n").encode())
