"""What a federation's sessions go by: how nodes are asked, and how sessions start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, get_args

from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.start import Start
from ebbflow.data.batches import StepRule
from ebbflow.flower.checks import Checks
from ebbflow.runs.retention import keep_all, keep_last
from ebbflow.sessions.memory import SessionRules
from ebbflow.starts import AUTO, RECOMMENDED, STARTS

if TYPE_CHECKING:
    from ebbflow.flower.strategy import Local, Training

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
        refuse_unless("deadline", self.deadline, 0 < self.deadline < inf, "seconds above 0")
        refuse_unless("quorum", self.quorum, 0 <= self.quorum <= 1, "a share from 0 to 1")
        refuse_unless("min_nodes", self.min_nodes, self.min_nodes >= 1, "at least 1")

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
        refuse_unless("pilot_sessions", self.pilot_sessions, self.pilot_sessions >= 1, "at least 1")
        refuse_unless("probe_rounds", self.probe_rounds, self.probe_rounds >= 1, "at least 1")
        refuse_unless("keep", self.keep, self.keep is None or self.keep >= 1, "at least 1, or None")
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


def check_training(training: Training) -> None:
    """Refuse numbers with which no device can train; a simulation refuses the same."""
    local, probing = training.local, training.probing
    _check_numbers("local", local)
    named = isinstance(probing.lr, str)
    fine = not named or probing.lr in ("half", "same")
    refuse_unless("probing.lr", probing.lr, fine, 'a rate above 0, "half" or "same"')
    changed = {
        "rounds": probing.rounds,
        "share": probing.share,
        "steps": local.steps if probing.steps is None else probing.steps,
        "batch": local.batch if probing.batch is None else probing.batch,
        "lr": local.lr if named else probing.lr,
    }
    _check_numbers("probing", replace(local, **changed))  # type: ignore[arg-type]  # checked there


def _check_numbers(where: str, local: Local) -> None:
    def check(name: str, fine: bool, remedy: str) -> None:
        refuse_unless(f"{where}.{name}", getattr(local, name), fine, remedy)

    steps = (local.steps,) * 2 if isinstance(local.steps, int) else tuple(local.steps)
    share, whole = local.share, isinstance(local.share, int)
    check("rounds", local.rounds >= 1, "at least 1")
    check("lr", 0 < local.lr < inf, "a rate above 0")
    check("floor", 0 <= local.floor <= 1, "a share of the first rate, from 0 to 1")
    check("power", 0 < local.power < inf, "a number above 0")
    check("steps", len(steps) == 2 and 1 <= steps[0] <= steps[1], "at least 1, or a range (2, 6)")
    check("batch", local.batch >= 1, "at least 1")
    check("rule", local.rule in get_args(StepRule), '"one_pass" or "each_step"')
    check("momentum", 0 <= local.momentum < 1, "a number from 0 to below 1")
    check("radius", local.radius is None or 0 < local.radius < inf, "a length above 0, or None")
    fits = share is None or (share >= 1 if whole else 0 < share <= 1)
    check("share", fits, "a fraction such as 0.5, a number of devices, or None for all")


def refuse_unless(name: str, value: object, fine: bool, remedy: str) -> None:
    """Refuse a value that is not fine, and say what would be."""
    if not fine:
        raise EbbflowError(f"{name} = {value} cannot be: give {remedy}")
