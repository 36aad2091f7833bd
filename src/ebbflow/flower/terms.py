"""What a federation's sessions go by: how nodes are asked, and how sessions start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.start import Start
from ebbflow.flower.checks import Checks
from ebbflow.runs.retention import keep_all, keep_last
from ebbflow.sessions.memory import SessionRules
from ebbflow.starts import AUTO, RECOMMENDED, STARTS

Gather = Callable[[int, frozenset[int]], bool]
"""Says whether a session, by its number, may begin with the devices that are here."""


@dataclass(frozen=True)
class AskingTerms:
    """How nodes are asked.

    Attributes:
        deadline: The most seconds to wait for the answer to any message.
        quorum: The share of the nodes asked in a round whose updates must be left; below it the
            model stays as it is.
        min_nodes: The fewest members of a session.
        gather: Says whether a session may begin with the devices that are here, if there is more to
            it than their number.
        checks: What an update must be like.
    """

    deadline: float = 600.0
    quorum: float = 0.5
    min_nodes: int = 2
    gather: Gather | None = None
    checks: Checks = field(default_factory=Checks)

    def __post_init__(self) -> None:
        _refuse("deadline", self.deadline, 0 < self.deadline < float("inf"), "seconds above 0")
        _refuse("quorum", self.quorum, 0 <= self.quorum <= 1, "a share from 0 to 1")
        _refuse("min_nodes", self.min_nodes, self.min_nodes >= 1, "at least 1")

    def may_begin(self, session: int, devices: frozenset[int]) -> bool:
        """Whether a session may begin with these devices."""
        if self.gather is not None:
            return self.gather(session, devices)
        return len(devices) >= self.min_nodes


@dataclass(frozen=True)
class Starting:
    """How sessions start, and what is kept for that.

    Attributes:
        start: ``learned``, ``warm_start``, ``previous`` or ``average``, or a `Start`.
        pilot_sessions: The first P sessions, which make the pilot model.
        probe_rounds: The V rounds of a probe with one of Flower's strategies.
        keep: How many past sessions are kept; None: all.
        loss: The metric that holds the loss when nodes of any Flower app evaluate a model; by
            default the only one whose name ends with "loss".
    """

    start: str | Start = AUTO
    pilot_sessions: int = 1
    probe_rounds: int = 1
    keep: int | None = None
    loss: str | None = None

    def __post_init__(self) -> None:
        _refuse("pilot_sessions", self.pilot_sessions, self.pilot_sessions >= 1, "at least 1")
        _refuse("probe_rounds", self.probe_rounds, self.probe_rounds >= 1, "at least 1")
        _refuse("keep", self.keep, self.keep is None or self.keep >= 1, "at least 1, or None")
        if isinstance(self.start, str) and self.name not in STARTS:
            raise unknown(self.name, STARTS, "start", "Sessions(start=...)")
        if self.built.algorithm is not None or self.name == "continuous":
            raise EbbflowError(
                f'start = "{self.name}" changes how devices train, which a federation\'s nodes do '
                'not know: choose "learned", "warm_start", "previous" or "average"'
            )

    @property
    def name(self) -> str:
        """What the start is called."""
        if isinstance(self.start, Start):
            return "own"
        return RECOMMENDED if self.start == AUTO else self.start

    @property
    def built(self) -> Start:
        """The start itself."""
        return self.start if isinstance(self.start, Start) else STARTS[self.name].build({})

    @property
    def rules(self) -> SessionRules:
        """How sessions follow each other."""
        retention = keep_all if self.keep is None else keep_last(self.keep)
        return SessionRules(self.pilot_sessions, retention=retention)


def _refuse(name: str, value: object, fine: bool, remedy: str) -> None:
    if not fine:
        raise EbbflowError(f"{name} = {value} cannot be: give {remedy}")
