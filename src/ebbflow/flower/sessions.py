"""Sessions for a Flower federation: `Sessions(strategy, history=...).run(grid, arrays)`.

`ebbflow.flower.running` is what it does then.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.start import Start
from ebbflow.core.triggers import Trigger, after_rounds
from ebbflow.flower import strategy_state
from ebbflow.flower.checks import Checks
from ebbflow.flower.members import Opening
from ebbflow.flower.running import Running
from ebbflow.flower.saving import HistoryFolder
from ebbflow.flower.strategy import Training
from ebbflow.flower.wire import running_statistics
from ebbflow.runs.retention import keep_all, keep_last
from ebbflow.sessions.memory import SessionRules
from ebbflow.starts import AUTO, RECOMMENDED, STARTS

Factory = Callable[[], Strategy] | Callable[[Opening], Strategy] | Training
"""Makes a session's strategy; it may ask for the session's number and members."""

Gather = Callable[[int, frozenset[int]], bool]
"""Says whether a session may begin with the devices that are here."""

EvaluateFunction = (
    Callable[[int, ArrayRecord], MetricRecord | None]
    | Callable[[int, ArrayRecord, Opening], MetricRecord | None]
)
"""Tests a model at the server. It is given the number of the round, counted over all sessions, and,
if it takes a third argument, the `Opening` of the session."""


class Sessions:
    """Trains a federation in sessions, each with the members that are there.

    Args:
        strategy: Makes the strategy of a session, so that nothing leaks from one to the next: a
            function without arguments, or one that is given the `Opening` of the session; or a
            `Training` for nodes that run ``ebbflow.flower.client_app``.
        history: The folder of checkpoints, past models and records. If it holds a federation, that
            one goes on.
        trigger: Says when a session is over; by default after ten rounds.
        start: How a session's first model is chosen: ``learned``, ``warm_start``, ``previous`` or
            ``average``, or a `Start`.
        sessions: How many sessions to train; None: for ever.
        pilot_sessions: The first P sessions, which make the pilot model.
        probe_rounds: The V rounds of a probe with a strategy of Flower's.
        deadline: The most seconds to wait for the answer to any message.
        quorum: The share of the nodes asked in a round whose updates must be left.
        min_nodes: The fewest members of a session.
        gather: Says whether a session may begin with the devices that are here.
        checks: What an update must be like.
        keep: How many past sessions are kept; None: all.
        seed: Begins the names of all draws; by default it is drawn itself, and saved.
        keys: The digests of public keys, in the order of the numbers that the devices get, or a
            JSON file that lists them; others get the next numbers as they come.
        loss: The metric that holds the loss when nodes evaluate a model; by default the only one
            whose name ends with "loss".
        is_buffer: Says which arrays are not trained, by name.
        tell: Is given every event as a sentence; by default Flower's log.
    """

    def __init__(
        self,
        strategy: Factory,
        history: Path | str,
        *,
        trigger: Trigger | None = None,
        start: str | Start = AUTO,
        sessions: int | None = None,
        pilot_sessions: int = 1,
        probe_rounds: int = 1,
        deadline: float = 600.0,
        quorum: float = 0.5,
        min_nodes: int = 2,
        gather: Gather | None = None,
        checks: Checks | None = None,
        keep: int | None = None,
        seed: int | None = None,
        keys: Sequence[str] | Path = (),
        loss: str | None = None,
        is_buffer: Callable[[str], bool] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        _refuse_numbers(sessions, pilot_sessions, deadline, quorum, min_nodes)
        self.strategy, self.history = strategy, Path(history)
        self.trigger = trigger
        self.start, self.start_name = _start(start)
        self.sessions, self.probe_rounds = sessions, probe_rounds
        self.rules = SessionRules(
            pilot_sessions, retention=keep_all if keep is None else keep_last(keep)
        )
        self.deadline, self.quorum, self.min_nodes = deadline, quorum, min_nodes
        self.gather, self.checks = gather, Checks() if checks is None else checks
        self.seed, self.keys, self.loss = seed, _keys(keys), loss
        self.is_buffer = is_buffer or _buffers_of(strategy)
        self.tell = tell or _log

    def run(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Train all sessions, from the beginning or from where a saved federation stopped.

        The arguments are those of ``strategy.start``: ``num_rounds`` are the rounds of a session,
        if there is no trigger, and ``timeout`` replaces the deadline.
        """
        trigger = self.trigger or after_rounds(num_rounds or 10)
        folder = HistoryFolder(self.history)
        try:
            running = Running(
                self,
                grid,
                folder,
                initial_arrays,
                trigger,
                timeout or self.deadline,
                ConfigRecord() if train_config is None else train_config,
                ConfigRecord() if evaluate_config is None else evaluate_config,
                evaluate_fn,
                takes_opening=evaluate_fn is not None and required_arguments(evaluate_fn) > 2,
            )
            return running.all_sessions()
        finally:
            folder.close()

    def make_strategy(self, opening: Opening) -> Strategy:
        """Return a fresh strategy for a session."""
        made = self.strategy
        strategy: Strategy = made(opening) if _wants_opening(made) else made()  # type: ignore[call-arg]
        if not isinstance(strategy, Strategy):
            raise EbbflowError(
                f"Sessions(strategy=...) made a {type(strategy).__name__}: give a function that "
                "returns a strategy of flwr.serverapp.strategy, such as lambda: FedAvg()"
            )
        strategy_state.refuse_unknown(strategy)
        if strategy_state.adds_noise(strategy) and self.start_name == RECOMMENDED:
            raise EbbflowError(
                'start = "learned" asks devices for losses, which this strategy adds no noise to: '
                'choose "warm_start" or "previous" with differential privacy'
            )
        return strategy


def _start(start: str | Start) -> tuple[Start, str]:
    if isinstance(start, Start):
        return start, "own"
    name = RECOMMENDED if start == AUTO else start
    if name not in STARTS:
        raise unknown(name, STARTS, "start", "Sessions(start=...)")
    built = STARTS[name].build({})
    if built.algorithm is not None or name == "continuous":
        raise EbbflowError(
            f'start = "{name}" changes how devices train, which a federation\'s nodes do not know: '
            'choose "learned", "warm_start", "previous" or "average"'
        )
    return built, name


def _wants_opening(made: Factory) -> bool:
    """Whether a factory has to be given something; FedAvg itself, say, can be called without."""
    return required_arguments(made) > 0


def required_arguments(function: Callable[..., object]) -> int:
    """Return how many arguments a function must be given."""
    required = (p for p in inspect.signature(function).parameters.values() if p.default is p.empty)
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in required)


def _keys(keys: Sequence[str] | Path) -> list[str]:
    if not isinstance(keys, Path):
        return list(keys)
    try:
        listed = json.loads(keys.read_bytes()) if keys.exists() else []
    except (OSError, ValueError) as error:
        raise EbbflowError(f"{keys} is no list of keys ({error}): give a JSON list") from None
    if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
        raise EbbflowError(f"{keys} is no list of keys: give a JSON list of texts")
    return listed


def _buffers_of(strategy: Factory) -> Callable[[str], bool]:
    if isinstance(strategy, Training) and strategy.buffers:
        return strategy.buffers.__contains__
    return running_statistics


def _refuse_numbers(
    sessions: int | None, pilot_sessions: int, deadline: float, quorum: float, min_nodes: int
) -> None:
    for name, value, fine, remedy in (
        ("sessions", sessions, sessions is None or sessions >= 1, "at least 1, or None"),
        ("pilot_sessions", pilot_sessions, pilot_sessions >= 1, "at least 1"),
        ("deadline", deadline, 0 < deadline < float("inf"), "a number of seconds above 0"),
        ("quorum", quorum, 0 <= quorum <= 1, "a share from 0 to 1"),
        ("min_nodes", min_nodes, min_nodes >= 1, "at least 1"),
    ):
        if not fine:
            raise EbbflowError(f"Sessions({name}={value}) cannot be: give {remedy}")


def _log(sentence: str) -> None:
    log(INFO, "%s", sentence)
