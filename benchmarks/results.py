"""The measurements of a benchmark, stored as JSON; the performance page is written from them."""

from __future__ import annotations

import statistics
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import write_atomically

GIGABYTE = 10**9


def seconds_text(seconds: float) -> str:
    """Return a duration with about three significant digits.

    >>> [seconds_text(s) for s in (0.0421, 1.234, 75.2, 1510.0)]
    ['42.1 ms', '1.23 s', '75.2 s', '1510 s']
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measurement(_Frozen):
    """One contender: the seconds of each repeat, and what else was measured.

    ``difference`` is the largest difference between an entry of its model and the reference
    model's; ``memory`` the peak of anonymous memory in bytes; ``operations`` and ``steps`` the
    floating-point operations and local steps of one repeat; ``devices`` the size of the session in
    the scaling suite. ``peer`` marks another simulator.
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


class Requirement(_Frozen):
    """A measured value and the bound that it should keep."""

    what: str
    value: float
    bound: float
    at_least: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the value keeps the bound.

        >>> Requirement(what="faster", value=2.9, bound=3, at_least=True).met
        False
        """
        return self.value >= self.bound if self.at_least else self.value <= self.bound


class Suite(_Frozen):
    """The measurements of one suite, its requirements, the machine and the versions used.

    ``shares`` belong to the profile: for each profiled program, the share of time per stage.
    """

    name: str
    title: str
    measurements: list[Measurement] = []
    requirements: list[Requirement] = []
    notes: list[str] = []
    shares: dict[str, dict[str, float]] = {}
    machine: dict[str, str] = {}
    versions: dict[str, str] = {}


class Results(_Frozen):
    """Suites by name; each was measured in a run of its own."""

    suites: dict[str, Suite] = {}

    def updated(self, suites: list[Suite]) -> Results:
        """Return these results with the given suites added or replaced."""
        return Results(suites=self.suites | {suite.name: suite for suite in suites})


def read_results(path: Path) -> Results:
    """Return the results in a file; none if the file does not exist."""
    if not path.exists():
        return Results()
    try:
        return Results.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise EbbflowError(
            f"{path} holds no benchmark results ({error.error_count()} errors): delete it"
        ) from None


def write_results(path: Path, results: Results) -> None:
    """Write results as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (results.model_dump_json(indent=1) + "\n").encode())
