"""A federation under way: the loop of the paper's Algorithm 1 with real nodes.

A session's members are the nodes that answer its first question. `ebbflow.sessions.memory` chooses
the model that it begins with, and keeps the one that it ends with. In between a strategy trains in
rounds, until a trigger ends the session. After every round everything is saved, so that a server
that was killed goes on where it was.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from ebbflow.core import sketch, vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.start import StartingPoint
from ebbflow.core.triggers import Observed, Trigger
from ebbflow.core.types import ModelState
from ebbflow.flower import strategy_state
from ebbflow.flower.asking import Asking, Evaluated, Trained
from ebbflow.flower.crowd import Crowd, DeviceNumbers, Present
from ebbflow.flower.members import Opening
from ebbflow.flower.opening import Opener
from ebbflow.flower.saving import (
    DONE,
    EVENTS,
    OVER,
    ROUNDS,
    HistoryFolder,
    memory_read,
    memory_saved,
)
from ebbflow.flower.strategy import AlgorithmStrategy, Training
from ebbflow.flower.wire import Form, form_of
from ebbflow.runs.history import Store
from ebbflow.sessions.memory import Memory, finish

if TYPE_CHECKING:
    from ebbflow.flower.sessions import EvaluateFunction, Sessions

WAIT = 1.0
"""Seconds between two looks at who is here, where there is nothing else to do."""
MOST_ABANDONED = 20
"""Rounds in a row that may be abandoned before the federation stops, with a checkpoint."""


@dataclass
class Place:
    """How far a federation is.

    Attributes:
        session: The number of the session that goes on.
        round: The rounds it has had.
        rounds: The rounds of all sessions.
        members: Its devices, with their numbers of samples; empty before it begins.
        strange: Who was here when it began, and has not answered.
        known: The devices of all earlier sessions.
        began: When it began, in seconds since 1970.
        untested: What is known of the last round, until its model has been evaluated.
    """

    session: int = 1
    round: int = 0
    rounds: int = 0
    members: dict[int, int] = field(default_factory=dict)
    strange: list[Present] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    began: float = 0.0
    untested: dict[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        """Return what is saved."""
        return {**vars(self), "members": sorted(self.members.items()), "known": sorted(self.known)}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Place:
        """Return the place that was saved."""
        members = {int(device): int(samples) for device, samples in facts["members"]}
        strange = [Present(*one) for one in facts.get("strange", ())]
        own = {field.name: facts[field.name] for field in fields(cls) if field.name in facts}
        read = {"members": members, "strange": strange, "known": set(facts["known"])}
        return cls(**{**own, **read})


@dataclass
class _Waiting:
    """No round can begin: since when, why, and whether that is because members are busy."""

    since: float = field(default_factory=time.monotonic)
    told: float = -math.inf
    why: str = ""
    busy: bool = False


class RunOrder(NamedTuple):
    """What `Sessions.run` was asked for.

    ``takes_opening`` says whether ``evaluate_fn`` wants to know the session.
    """

    initial: ArrayRecord
    trigger: Trigger
    deadline: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    evaluate_fn: EvaluateFunction | None = None
    takes_opening: bool = False


class Running:
    """A federation under way."""

    def __init__(
        self, settings: Sessions, grid: Grid, folder: HistoryFolder, order: RunOrder
    ) -> None:
        self.settings, self.folder, self.order = settings, folder, order
        self.form: Form = form_of(order.initial, settings.is_buffer)
        plan = None
        if settings.start.sketch_distance is not None:
            plan = sketch.plan(self.form.layout, settings.start.sketch_distance)
        self.store = Store(folder.path / "past", self.form.layout, self.form.buffer_layout, plan)
        self.place, self.seed = Place(), settings.seed
        self.devices = DeviceNumbers(list(settings.keys))
        self.initial = self.form.state(order.initial)
        self.memory = Memory(self.initial)
        self.strategy: Strategy | None = None
        self.spent: Mapping[str, Any] | None = None
        self.used: dict[int, str] = {}  # which upload of each device was used last, in any session
        self.used_by: Mapping[str, Any] = {}  # the method of these sessions
        self.abandoned = 0
        self._warned = 0  # the session in which a warning of its rounds was told
        self._read()
        self.crowd = Crowd(grid, self.devices)
        terms, place = settings.terms, self.place
        self.asking = Asking(
            self.crowd,
            self.form,
            terms.checks,
            order.deadline,
            terms.quorum,
            members=frozenset(place.members),
            first=frozenset(place.strange),
        )

    # --- the loop ---

    def all_sessions(self) -> Result:
        """Train until all sessions are over."""
        self.settings.tell(f"models and records are in {self.folder.path.absolute()}")
        while not self._finished:
            if not self.place.members:
                self._begin()
            self._train()
            self._finish()
        # Whoever follows knows by this that the folder is let go of because there is no more to do.
        self.event(DONE, "all is over")
        return self._result()

    @property
    def _finished(self) -> bool:
        """Whether all is over; a resumed federation may be asked for more sessions, or fewer."""
        wanted = self.settings.sessions
        return wanted is not None and self.place.session > wanted

    def _begin(self) -> None:
        """Gather members, choose w^(s,1), and set the strategy up."""
        settings, place = self.settings, self.place
        opener = Opener(self)
        members = opener.members()
        opening = Opening(place.session, members, self.form, self._seed())
        self._tell_members(members)
        self.asking.members = frozenset(members)
        self.strategy = settings.make_strategy(opening)
        strategy_state.restore_accountant(self.strategy, self.spent)
        point = opener.starting_point(opening)
        place.members, place.round, place.began = members, 0, time.time()
        if isinstance(self.strategy, AlgorithmStrategy):
            opener.set_up_state(self.strategy, self.used)
        for sentence in point.warnings:
            self.event("warning", f"session {place.session}: {sentence}")
        self.event(
            "start",
            f"session {place.session} starts from {_origin(point)}",
            mixture=dict(point.mixture),
            weights={str(past): weight for past, weight in point.weights.items()},
        )
        if self.order.evaluate_fn is not None:
            place.untested = _known_of(Trained(None), 0.0)
            self._tested()
        self.save()

    def _train(self) -> None:
        """Train in rounds until the trigger ends the session."""
        place = self.place
        waiting: _Waiting | None = None
        if place.untested is not None:  # the server was killed in between
            self._tested()
            self.save()
        while (reason := self._ends(waiting)) is None:
            began = time.time()
            t = place.round + 1
            config = ConfigRecord(
                {
                    **self.order.train_config,
                    "session": place.session,
                    "global-round": place.rounds + 1,
                }
            )
            assert self.strategy is not None
            arrays = self.form.arrays(self.memory.model)
            names = (self._seed(), place.session, t)
            done = self.asking.train(self.strategy, t, arrays, config, names)
            if not done.asked:
                waiting = waiting or _Waiting()
                self._tell_waiting(waiting, t, done)
                time.sleep(WAIT)
                continue
            waiting = None
            if done.arrays is not None:
                model = self.form.state(done.arrays)
                if all(map(vector.all_finite, model)):
                    self.memory.model = model
                else:
                    done.arrays, done.why = None, "the model made of the updates is not finite"
            place.round, place.rounds = t, place.rounds + 1
            self.tell_of(f"round {t}", done)
            if done.why:
                self.event(
                    "abandoned",
                    f"session {place.session}, round {t}: abandoned, the model stays as it was: "
                    f"{done.why}",
                )
            place.untested = _known_of(done, time.time() - began)
            if strategy_state.accountant_of(self.strategy) is not None:
                self.save()  # nobody is sent a model that is not paid for
            self._tested()
            self.save()
            self.abandoned = self.abandoned + 1 if done.why else 0
            if self.abandoned > MOST_ABANDONED:
                raise EbbflowError(
                    f"session {place.session}, round {t}: {self.abandoned} rounds in a row were "
                    f"abandoned ({done.why}): look at {self.folder.path / EVENTS}, and resume when "
                    "the nodes answer again"
                )
        last = place.session == self.settings.sessions
        self.event(OVER, f"session {place.session} is over: {reason}", last=last)

    def _ends(self, waiting: _Waiting | None) -> str | None:
        """Return why the session is over, if it is; not before a first round, if that can begin."""
        place = self.place
        present = self.asking.present()
        now = time.time()
        if waiting is None and place.round == 0:
            return None
        if waiting is not None and (reason := self._hopeless(waiting)):
            return reason
        return self.order.trigger(
            Observed(
                session=place.session,
                rounds=place.round,
                members=frozenset(place.members),
                present=present,
                known=frozenset(place.known),
                seconds=now - place.began,
                now=now,
            )
        )

    def _hopeless(self, waiting: _Waiting) -> str:
        """Return why there will be no other round, if so and another session may begin."""
        place, here = self.place, frozenset(self.crowd.present())
        if not here & set(place.members):
            reason = "none of its members is left"
        elif not waiting.busy and time.monotonic() - waiting.since > self.order.deadline:
            reason = f"no round has begun for {self.order.deadline:g} seconds: {waiting.why}"
        else:
            return ""
        return reason if self.settings.terms.may_begin(place.session + 1, here) else ""

    def _finish(self) -> None:
        """Save w^(s,T+1), and go on to the next session."""
        place, rules, memory = self.place, self.settings.rules, self.memory
        had_pilot = memory.pilot is not None
        finish(memory, place.session, rules)
        if not rules.is_pilot(place.session):
            memory.past[-1] = self.store.write(memory.past[-1], devices=len(memory.devices))
        elif memory.pilot is not None and not had_pilot:
            self.store.write_pilot(memory.pilot)
        if isinstance(self.strategy, AlgorithmStrategy):
            self.used |= self.strategy.used
            self.used_by = self.strategy.training.method()
        place.known |= set(place.members)
        place.members, place.round = {}, 0
        place.session += 1
        self.asking.members, self.asking.first, self.strategy = frozenset(), frozenset(), None
        self.save()
        self.store.keep([past.number for past in memory.past])

    # --- records ---

    def _tested(self) -> None:
        """Evaluate the present model, and record the round."""
        place = self.place
        arrays = self.form.arrays(self.memory.model)
        evaluated = Evaluated()
        if place.round > 0 and self.strategy is not None:
            evaluated = self.asking.evaluate(
                self.strategy, place.round, arrays, self.order.evaluate_config
            )
            self._tell_left_out(evaluated)
        tested = (
            None
            if self.order.evaluate_fn is None
            else self._at_server(self.order.evaluate_fn, arrays)
        )
        self.folder.append(
            ROUNDS,
            {
                "session": place.session,
                "round": place.round,
                "rounds": place.rounds,
                **(place.untested or {}),
                "evaluate": _plain(evaluated.metrics),
                "not_evaluated": {str(d): why for d, why in evaluated.left_out.items()},
                "server": _plain(tested),
            },
        )
        place.untested = None

    def _at_server(self, evaluate: Any, arrays: ArrayRecord) -> MetricRecord | None:
        """Test a model with the user's function, which may want to know the session."""
        given = [self.place.rounds, arrays]
        if self.order.takes_opening:
            given.append(
                Opening(self.place.session, dict(self.place.members), self.form, self._seed())
            )
        found: MetricRecord | None = evaluate(*given)
        return found

    def tell_of(self, which: str, done: Trained) -> None:
        """Tell whose updates of a round are not used, why not, and what is odd about others."""
        session = self.place.session
        where = f"session {session}, {which}"
        for device, why in done.refused.items():
            self.event("refused", f"{where}: the update of device {device} was refused: {why}")
        for device, why in done.failed.items():
            self.event("failed", f"{where}: device {device} failed: {why}")
        for device in done.late:
            self.event("late", f"{where}: device {device} did not answer in time")
        for device, what in done.odd.items() if not done.why else ():
            self.event(
                "odd",
                f"{where}: the update of device {device} is used, but {what}, so that a mean of it "
                "says nothing",
            )
        if done.warning and self._warned != session:
            self._warned = session
            self.event("warning", f"{where}: {done.warning}")

    def _tell_left_out(self, evaluated: Evaluated) -> None:
        """Tell whose evaluations are not in the means; of a reason that many have, once."""
        together: dict[str, list[int]] = {}
        for device, why in evaluated.left_out.items():
            together.setdefault(why, []).append(device)
        where = f"session {self.place.session}, round {self.place.round}"
        for why, devices in together.items():
            self.event("evaluation", f"{where}: the evaluation leaves out {_named(devices)}: {why}")

    def _tell_waiting(self, waiting: _Waiting, t: int, done: Trained) -> None:
        """Tell that no round can begin, and why, once a minute."""
        waiting.why, waiting.busy = done.why, bool(done.busy)
        if time.monotonic() - waiting.told > 60:
            waiting.told = time.monotonic()
            here = len(self.crowd.present().keys() & self.place.members.keys())
            self.settings.tell(
                f"session {self.place.session} waits before round {t}: {done.why}; "
                f"{here} of its {len(self.place.members)} members are here"
            )

    def _tell_members(self, members: Collection[int]) -> None:
        here, before, session = set(members), set(self.memory.devices), self.place.session
        sentence = f"session {session} begins with {_named(here)}"
        if session > 1:
            for word, devices in (
                ("new", here - before - self.place.known),
                ("back", (here - before) & self.place.known),
                ("gone", before - here),
            ):
                sentence += f"; {word}: {_named(devices)}" if devices else ""
        self.event("session", sentence, members=sorted(members))

    def event(self, kind: str, sentence: str, **facts: Any) -> None:
        """Record an event, and tell it."""
        line = {"event": kind, "time": round(time.time(), 3), "said": sentence, **facts}
        self.folder.append(EVENTS, line)
        self.settings.tell(sentence)

    # --- saving ---

    def save(self) -> None:
        """Write a checkpoint."""
        self.place.strange = sorted(self.asking.strange())
        remembered, tensors = memory_saved(self.memory)
        facts: dict[str, Any] = {
            "place": self.place.facts(),
            "seed": self._seed(),
            "keys": self.devices.keys,
            "names": [list(self.form.layout.names), list(self.form.buffer_layout.names)],
            "trigger": repr(self.order.trigger),
            "start": self.settings.starting.name,
            "memory": remembered,
            "used": sorted(self.used.items()),
            "used_by": self.used_by,
            "strategy": None,
        }
        if self.strategy is not None:
            facts["strategy"], own = strategy_state.saved(self.strategy)
            tensors |= own
            self.spent = facts["strategy"].get("accountant", self.spent)
        facts["spent"] = self.spent
        tensors |= {"initial/theta": self.initial.theta, "initial/buffers": self.initial.buffers}
        self.folder.write(facts, tensors)

    def _read(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        found = self.folder.read()
        if found is None:
            return
        facts, tensors = found
        names = [list(self.form.layout.names), list(self.form.buffer_layout.names)]
        saved_initial = tensors["initial/theta"]
        if facts["names"] != names or len(saved_initial) != len(self.initial.theta):
            raise EbbflowError(
                f"{self.folder.path} holds a federation of another model: give the arrays it was "
                "begun with, or another history folder"
            )
        if self.seed is not None and self.seed != facts["seed"]:
            raise EbbflowError(
                f"{self.folder.path} was begun with the seed {facts['seed']}, not {self.seed}: "
                "leave Sessions(seed=...) as it was, or choose another history folder"
            )
        self.seed, self.devices = facts["seed"], DeviceNumbers(list(facts["keys"]))
        self.initial = ModelState(saved_initial, tensors["initial/buffers"])
        self.place = Place.of(facts["place"])
        self.memory = memory_read(facts["memory"], tensors, self.store)
        self.spent = facts["spent"]
        self.used = {int(device): str(upload) for device, upload in facts["used"]}
        self.used_by = facts.get("used_by", {})
        if self.place.members:
            opening = Opening(self.place.session, self.place.members, self.form, self.seed)
            self.strategy = self.settings.make_strategy(opening)
            strategy_state.restore(self.strategy, facts["strategy"], tensors)
        self._forget_other_states()
        if not self._finished:
            at = f"session {self.place.session}, after round {self.place.round}"
            self.event("resumed", f"goes on at {at}")

    def _forget_other_states(self) -> None:
        """Let devices begin afresh if what they have kept is another algorithm's."""
        made = self.settings.strategy
        if not isinstance(made, Training) or self.used_by in ({}, made.method()):
            return
        self.used, self.used_by = {}, {}
        if made.states == "keep":
            self.event("warning", "the algorithm has changed: all devices begin with a fresh state")

    def _seed(self) -> int:
        if self.seed is None:
            self.seed = secrets.randbits(48)
        return self.seed

    def _result(self) -> Result:
        result = Result(arrays=self.form.arrays(self.memory.model))
        for line in self.folder.lines(ROUNDS):
            number = line["rounds"]
            for kind, into in (
                ("train", result.train_metrics_clientapp),
                ("evaluate", result.evaluate_metrics_clientapp),
                ("server", result.evaluate_metrics_serverapp),
            ):
                if line[kind]:
                    into[number] = MetricRecord(line[kind])
        return result


def _known_of(done: Trained, seconds: float) -> dict[str, Any]:
    """Return what is recorded of a round before its model is evaluated."""
    return {**done.line(), "train": _plain(done.metrics), "seconds": round(seconds, 3)}


def _plain(metrics: MetricRecord | None) -> dict[str, Any]:
    return {} if metrics is None else dict(metrics)


def _named(devices: Collection[int]) -> str:
    numbers = sorted(devices)
    some = ", ".join(map(str, numbers[:20]))
    more = f" and {len(numbers) - 20} more" if len(numbers) > 20 else ""
    return f"device{'' if len(numbers) == 1 else 's'} {some}{more}"


def _origin(point: StartingPoint) -> str:
    if point.mixture:
        parts = [f"{weight:+.2f} {name}" for name, weight in point.mixture.items()]
        return f"a mixture: {', '.join(parts)}"
    if point.weights:
        parts = [f"{weight:.2f} of session {z}" for z, weight in sorted(point.weights.items())]
        return f"past sessions: {', '.join(parts)}"
    return "the model that was there"
