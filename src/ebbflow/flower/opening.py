"""How a session opens: who is there, and which model it begins with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.start import DevicesPresent, StartingPoint
from ebbflow.core.survey import Panel, SurveyPlan
from ebbflow.core.types import ModelState
from ebbflow.flower import strategy_state
from ebbflow.flower.checks import MOST_EXAMPLES, samples_claimed
from ebbflow.flower.crowd import one_line
from ebbflow.flower.members import Opening
from ebbflow.flower.panel import EvaluatedPanel, RemotePanel, SurveyInterruptedError
from ebbflow.flower.strategy import STATE, AlgorithmStrategy, Training
from ebbflow.flower.wire import EXAMPLES, tensors
from ebbflow.sessions.memory import begin
from ebbflow.starts import STARTS

if TYPE_CHECKING:
    from ebbflow.flower.running import Running

WAIT = 1.0
TRIES = 3
"""How often a survey is begun, without those who did not answer; then the session just goes on."""


class Opener:
    """Opens a session of a federation."""

    def __init__(self, running: Running) -> None:
        self.running, self.settings = running, running.settings
        self.asking, self.form = running.asking, running.form
        self.session = running.place.session

    # --- who is there ---

    def members(self) -> dict[int, int]:
        """Wait for devices, ask them, and return those that answered, with their samples."""
        told = 0.0
        while True:
            present = frozenset(self.running.crowd.present())
            if self._may_begin(present):
                members, unfit = self._answering()
                if self._may_begin(frozenset(members)):
                    for device, why in unfit.items():
                        self.running.event(
                            "warning",
                            f"session {self.session} begins without device {device}: {why}",
                        )
                    return members
            if time.monotonic() - told > 60:
                told = time.monotonic()
                self.running.settings.tell(
                    f"session {self.session} waits for devices; here are {len(present)}"
                )
            time.sleep(WAIT)

    def _may_begin(self, devices: frozenset[int]) -> bool:
        return self.settings.terms.may_begin(self.session, devices)

    def _answering(self) -> tuple[dict[int, int], dict[int, str]]:
        """Ask everybody who is here the session's first question.

        Returns the samples of those that can be members, and why others that answered cannot.
        """
        config = ConfigRecord({**self.running.order.evaluate_config, "server-round": 0})
        if isinstance(self.settings.strategy, Training):
            content = RecordDict({"config": ConfigRecord({"question": "hello"})})
        else:
            arrays = self.form.arrays(self.running.memory.model)
            content = RecordDict({"arrays": arrays, "config": config})
        answers = self.asking.hello(content)
        members, unfit = dict[int, int](), dict(answers.failed)
        for device, reply in answers.replies.items():
            records = list(reply.content.metric_records.values())
            count = samples_claimed(records[0]) if len(records) == 1 else None
            if count is not None:
                members[device] = int(count)
            elif len(records) == 1:
                claim = records[0][EXAMPLES]
                unfit[device] = one_line(
                    f"{EXAMPLES} is {claim!r}, not from 1 to {MOST_EXAMPLES:g}"
                )
            else:
                unfit[device] = f"its answer has {len(records)} records of metrics instead of one"
        if not members and answers.failed:
            # An app without an evaluate function says so itself: those nodes are alive.
            members = {d: 1 for d, why in answers.failed.items() if "error 2:" in why}
            if members:
                self.running.event(
                    "warning",
                    f"session {self.session}: no node could evaluate the model, so that who is "
                    "here is known by the errors they answered with; they count alike",
                )
        return members, {d: why for d, why in sorted(unfit.items()) if d not in members}

    # --- where it starts ---

    def starting_point(self, opening: Opening) -> StartingPoint:
        """Choose w^(s,1), and remember where it came from."""
        without: set[int] = set()
        for _ in range(TRIES):
            asked = {d: n for d, n in opening.members.items() if d not in without}
            try:
                return self._begun(opening, opening._replace(members=asked))
            except SurveyInterruptedError as error:
                without |= set(error.devices)
                self.running.event("warning", f"session {self.session}: in the survey, {error}")
                if len(without) == len(opening.members):
                    break
            except TrainingError as error:
                self.running.event("warning", f"session {self.session}: the probe failed: {error}")
                break
        self.running.event(
            "warning", f"session {self.session} goes on with the last model, for want of answers"
        )
        return self._begun(opening, None)

    def _begun(self, opening: Opening, asked: Opening | None) -> StartingPoint:
        memory = self.running.memory

        def probe(model: ModelState) -> ModelState:
            return self._probe(opening, model)

        def survey(models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
            assert asked is not None
            return self._survey(asked, models, plan)

        point = begin(
            memory,
            self.session,
            self.settings.start if asked is not None else STARTS["previous"].build({}),
            self.settings.rules,
            initial=self.running.initial,
            layout=self.form.layout,
            present=DevicesPresent(probe, survey, tuple(sorted(opening.members))),
        )
        radius = self._radius()
        if point.kept is not None and radius is not None:
            # A mixture of models within the ball may lie outside it.
            inside = point.model._replace(theta=vector.project(point.model.theta, radius))
            point = point._replace(model=inside, kept=inside)
            memory.start, memory.model = point, inside
        return point

    def set_up_state(self, strategy: AlgorithmStrategy, used: Mapping[int, str]) -> None:
        """Set the algorithm's state up: fresh, or from what returning devices have kept."""
        memory = self.running.memory
        if strategy.training.states == "reset":
            strategy.begin(memory.model)
            return
        members = strategy.opening.members
        strategy.used = {device: upload for device, upload in used.items() if device in members}
        if strategy.algorithm.rejoin is None or not strategy.used:
            strategy.begin(memory.model)
            return
        content = {
            device: RecordDict(
                {"config": ConfigRecord({"question": "state", "purpose": "local", "used": upload})}
            )
            for device, upload in strategy.used.items()
        }
        answers = self.asking.survey(content)
        expected = strategy.expected_state(memory.model)
        lost = self.asking.checks.refusals(answers.replies, expected)
        silent = strategy.used.keys() - answers.replies.keys()
        lost |= {device: answers.failed.get(device, "no answer") for device in silent}
        for device, why in sorted(lost.items()):
            del strategy.used[device]  # what it has lost, it cannot go on from
            self.running.event(
                "warning",
                f"session {self.session}: device {device} begins with a fresh state: {why}",
            )
        kept = {
            device: tensors(reply.content.array_records[STATE])
            for device, reply in answers.replies.items()
            if device not in lost
        }
        strategy.rejoin(memory.model, kept)

    def _radius(self) -> float | None:
        made = self.settings.strategy
        return made.local.radius if isinstance(made, Training) else None

    def _probe(self, opening: Opening, model: ModelState) -> ModelState:
        """Return the model after V short rounds, by a strategy of its own."""
        made, running = self.settings.strategy, self.running
        strategy: Strategy
        if isinstance(made, Training):
            strategy, rounds = made.probe(opening), made.probing.rounds
        else:
            strategy, rounds = (
                self.settings.make_strategy(opening),
                self.settings.starting.probe_rounds,
            )
        # All sessions and all probes are paid from one budget.
        strategy_state.share_budget(running.strategy, strategy)
        for v in range(1, rounds + 1):
            config = ConfigRecord(
                {**running.order.train_config, "session": self.session, "global-round": 0}
            )
            names = (opening.seed, "probe", self.session, v)
            done = self.asking.train(strategy, v, self.form.arrays(model), config, names)
            running.tell_of(f"round {v} of the probe", done)
            if done.arrays is None:
                raise TrainingError(f"round {v} was abandoned ({done.why})")
            model = self.form.state(done.arrays)
            strategy_state.share_budget(strategy, running.strategy)
            if strategy_state.accountant_of(strategy) is not None:
                running.save()  # the next round sends out what this one has made
        return model

    def _survey(self, asked: Opening, models: Sequence[ModelState], plan: SurveyPlan) -> Panel:
        assert self.running.strategy is not None
        strategy_state.refuse_survey(self.running.strategy)
        if isinstance(self.settings.strategy, Training):
            return RemotePanel(asked, models, plan, self.asking.survey)
        config = ConfigRecord({**self.running.order.evaluate_config, "server-round": 0})
        return EvaluatedPanel(asked, models, plan, self.asking.survey, self._loss, config)

    def _loss(self, metrics: Mapping[str, Any]) -> float:
        name = self.settings.starting.loss
        if name is None:
            found = [key for key in metrics if key.lower().endswith("loss")]
            if len(found) != 1:
                raise EbbflowError(
                    f"the nodes' evaluations have the metrics {', '.join(sorted(metrics))}, and "
                    "which is the loss is not clear: name it by Starting(loss=...)"
                )
            name = found[0]
        value = metrics.get(name)
        if not isinstance(value, int | float):
            raise EbbflowError(
                f"the nodes' evaluations have no metric {name}, but {', '.join(sorted(metrics))}: "
                "set Starting(loss=...) to one of them"
            )
        return float(value)
