"""Sessions for a Flower federation: `Sessions(strategy, history=...).run(grid, arrays)`.

`ebbflow.flower.running` is what it does then.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from logging import INFO
from math import inf
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from ebbflow.core.errors import EbbflowError
from ebbflow.core.start import Start
from ebbflow.core.triggers import Trigger, after_rounds
from ebbflow.flower import strategy_state
from ebbflow.flower.members import Opening
from ebbflow.flower.running import Running, RunOrder
from ebbflow.flower.saving import HistoryFolder
from ebbflow.flower.strategy import Training
from ebbflow.flower.terms import AskingTerms, Starting, check_training, refuse_unless
from ebbflow.flower.wire import running_statistics
from ebbflow.starts import AUTO

Factory = Callable[[], Strategy] | Callable[[Opening], Strategy] | Training
"""Makes a session's strategy; it may ask for the session's number and members."""

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
        start: How a session's first model is chosen: a name, a `Start`, or `Starting` with more.
        sessions: How many sessions to train; None: for ever.
        terms: How nodes are asked: deadline, quorum, checks.
        seed: Begins the names of all draws; by default it is drawn itself, and saved.
        keys: The digests of public keys, in the order of the numbers that the devices get, or a
            JSON file that lists them; others get the next numbers as they come.
        tell: Is given every event as a sentence; by default Flower's log.
    """

    def __init__(
        self,
        strategy: Factory,
        history: Path | str,
        *,
        trigger: Trigger | None = None,
        start: str | Start | Starting = AUTO,
        sessions: int | None = None,
        terms: AskingTerms | None = None,
        seed: int | None = None,
        keys: Sequence[str] | Path | str = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        fine = sessions is None or sessions >= 1
        refuse_unless("sessions", sessions, fine, "at least 1, or None")
        if isinstance(strategy, Training):
            check_training(strategy)
        self.strategy, self.history, self.trigger = strategy, Path(history), trigger
        self.starting = start if isinstance(start, Starting) else Starting(start)
        self.start, self.rules = self.starting.built, self.starting.rules
        self.sessions, self.terms = sessions, terms or AskingTerms()
        self.seed, self.keys = seed, _keys(keys)
        self.is_buffer = _buffers_of(strategy)
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
        fine = num_rounds is None or num_rounds >= 1
        refuse_unless("num_rounds", num_rounds, fine, "at least 1, or None")
        fine = timeout is None or 0 < timeout < inf
        refuse_unless("timeout", timeout, fine, "seconds above 0, or None")
        order = RunOrder(
            initial_arrays,
            self.trigger or after_rounds(num_rounds or 10),
            timeout or self.terms.deadline,
            ConfigRecord() if train_config is None else train_config,
            ConfigRecord() if evaluate_config is None else evaluate_config,
            evaluate_fn,
            takes_opening=evaluate_fn is not None and required_arguments(evaluate_fn) > 2,
        )
        folder = HistoryFolder(self.history)
        try:
            return Running(self, grid, folder, order).all_sessions()
        finally:
            folder.close()

    def make_strategy(self, opening: Opening) -> Strategy:
        """Return a fresh strategy for a session."""
        made = self.strategy
        # FedAvg itself, say, can be called without an argument.
        wanted = required_arguments(made) > 0
        strategy: Strategy = made(opening) if wanted else made()  # type: ignore[call-arg]
        if not isinstance(strategy, Strategy):
            raise EbbflowError(
                f"Sessions(strategy=...) made a {type(strategy).__name__}: give a function that "
                "returns a strategy of flwr.serverapp.strategy, such as lambda: FedAvg()"
            )
        strategy_state.refuse_unknown(strategy)
        if self.start.surveys:
            strategy_state.refuse_survey(strategy)
        return strategy


def required_arguments(function: Callable[..., object]) -> int:
    """Return how many arguments a function must be given."""
    required = (p for p in inspect.signature(function).parameters.values() if p.default is p.empty)
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in required)


def _keys(keys: Sequence[str] | Path | str) -> list[str]:
    if not isinstance(keys, Path | str):
        return list(keys)
    keys = Path(keys)
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


def _log(sentence: str) -> None:
    log(INFO, "%s", sentence)
