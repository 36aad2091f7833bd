"""What the members of a session are asked: to say that they are here, to train, to evaluate."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    FedAvg,
    QFedAvg,
    Strategy,
)
from flwr.supercore.differential_privacy import KEY_NORM_BIT

from ebbflow.core.rng import generator
from ebbflow.flower.checks import MOST_LOSS, Checks, another_of, odd_metric
from ebbflow.flower.crowd import Answers, Crowd, Present, one_line
from ebbflow.flower.members import MembersGrid
from ebbflow.flower.strategy import AlgorithmStrategy
from ebbflow.flower.strategy_state import accountant_of, adds_noise, chain_of
from ebbflow.flower.wire import Form

MINIMA = {
    "min_train_nodes": "fraction_train",
    "min_evaluate_nodes": "fraction_evaluate",
    "min_available_nodes": None,
}
"""Attributes by which Flower's strategies wait for ever if a session has fewer members."""


@dataclass
class Trained:
    """What came of a round: the new model, if there is one, and what happened to every member.

    ``odd`` says of whose updates a metric that is only reported is not finite; ``warning`` is said
    once in a session.
    """

    arrays: ArrayRecord | None
    metrics: MetricRecord | None = None
    asked: int = 0
    kept: tuple[int, ...] = ()
    refused: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    odd: dict[int, str] = field(default_factory=dict)
    warning: str = ""
    why: str = ""  # the round was abandoned, if it was

    def line(self) -> dict[str, Any]:
        """Return what is recorded."""
        return {
            "asked": self.asked,
            "used": list(self.kept),
            "refused": {str(device): why for device, why in self.refused.items()},
            "failed": {str(device): why for device, why in self.failed.items()},
            "late": list(self.late),
            "busy": list(self.busy),
            "odd": {str(device): what for device, what in self.odd.items()},
            "abandoned": self.why,
        }


class Evaluated(NamedTuple):
    """What came of an evaluation by members: the means, and why some are left out of them."""

    metrics: MetricRecord | None = None
    left_out: Mapping[int, str] = MappingProxyType({})


@dataclass
class Asking:
    """Asks nodes, within a deadline, and refuses what is wrong.

    Attributes:
        crowd: The nodes.
        form: The arrays of the model.
        checks: What an update must be like.
        deadline: The most seconds to wait for an answer.
        quorum: The share of those asked whose updates must be left, or the round is abandoned;
            members that are still busy count as if they were asked in the same proportion.
        members: The devices of the session; empty before it is known.
        first: Who was here at the session's first question, and has been ever since.
    """

    crowd: Crowd
    form: Form
    checks: Checks
    deadline: float
    quorum: float
    members: frozenset[int] = frozenset()
    first: frozenset[Present] = frozenset()

    def present(self) -> frozenset[int]:
        """Return the devices that are here and are members, or could be of the next session.

        Who is strange could not be: only who has left and come back, or has answered after all.
        """
        here, busy = self.crowd.present(), self.crowd.busy()
        self.first &= frozenset(here.values())
        strange = {one.node_id for one in self.strange()} | busy
        return frozenset(
            d for d, one in here.items() if d in self.members or one.node_id not in strange
        )

    def strange(self) -> frozenset[Present]:
        """Return who was here at the first question, is no member, and has not answered since."""
        heard = self.crowd.heard
        return frozenset(
            one for one in self.first if one.device not in self.members and one.node_id not in heard
        )

    def grid(self) -> tuple[MembersGrid, tuple[int, ...]]:
        """Return the members that can be asked, and those that still work on something."""
        busy = self.crowd.busy()
        here = {d: one.node_id for d, one in self.crowd.present().items() if d in self.members}
        free = {node: device for device, node in here.items() if node not in busy}
        working = tuple(sorted(device for device, node in here.items() if node in busy))
        return MembersGrid(self.crowd.grid, free), working

    def hello(self, contents: RecordDict) -> Answers:
        """Ask everybody who is here; who answers may be a member."""
        here, busy = self.crowd.present(), self.crowd.busy()
        self.first = frozenset(here.values())
        self.crowd.heard.clear()
        nodes = {one.node_id: one.device for one in self.first if one.node_id not in busy}
        messages = [Message(contents, node, MessageType.EVALUATE) for node in sorted(nodes)]
        return self.crowd.ask(messages, nodes, self.deadline)

    def survey(self, questions: Mapping[int, RecordDict]) -> Answers:
        """Ask members a question each, as an ``evaluate`` message."""
        grid, _ = self.grid()
        nodes = grid.node_of
        messages = [
            Message(content, nodes[device], MessageType.EVALUATE)
            for device, content in questions.items()
            if device in nodes
        ]
        return self.crowd.ask(messages, grid.devices, self.deadline)

    def train(
        self,
        strategy: Strategy,
        t: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        names: tuple[int | str, ...],
    ) -> Trained:
        """Run a round with a strategy; ``names`` are those of its draws."""
        grid, busy = self.grid()
        _cap_minima(strategy, len(grid.devices))
        unfit = _unfit_for_noise(strategy, len(grid.devices))
        if unfit:
            return Trained(None, busy=busy, why=unfit)
        # Flower's strategies draw nodes with Python's global generator.
        random.seed(int(generator(*names, "strategy").integers(2**63)))
        averaged = self.form.without_counters(arrays)
        messages = self._whole(strategy.configure_train(t, averaged, config, grid))
        answers = self.crowd.ask(messages, grid.devices, self.deadline)
        ours = strategy if isinstance(strategy, AlgorithmStrategy) else None
        refused: dict[int, str] = {}
        if answers.replies:
            checks = _checks_of(self.checks, strategy)
            expected = another_of(arrays) if ours is None else ours.expected()
            expected = expected._replace(metrics=_metrics_used(strategy))
            refused = checks.refusals(answers.replies, expected)
            if accountant_of(strategy) is not None:
                fine = {d: reply for d, reply in answers.replies.items() if d not in refused}
                refused |= checks.unequal(fine)
        kept = {d: reply for d, reply in answers.replies.items() if d not in refused}
        done = Trained(
            None, None, answers.asked, tuple(kept), refused, answers.failed, answers.late, busy
        )
        if ours is not None:
            ours.note_failures(answers.failed)
        else:
            for reply in kept.values():  # strategies compare arrays by their places as well
                ((name, record),) = reply.content.array_records.items()
                reply.content[name] = self.form.without_counters(record)
            if adds_noise(strategy) and accountant_of(strategy) is None:
                done.warning = _checks_of(self.checks, strategy).count_alike(kept)
        # Who still works on an earlier round is as good as not answering this one.
        missing = len(busy) / max(1, len(grid.devices))
        least = max(1.0, self.quorum * answers.asked * (1 + missing))
        left = f"{len(kept)} of {answers.asked} updates are left"
        if not answers.asked:
            done.why = "nobody could be asked"
        elif len(kept) < least:
            done.why = f"{left}, and {least:g} are needed"
        elif len(kept) < (wanted := _updates_for_noise(strategy)):
            # Nothing is made of them, so nothing is released, and nothing is spent.
            done.why = f"{left}, and the noise is made for {wanted}"
        else:
            done.odd = {} if ours is not None else _odd_metrics(kept)
            done.arrays, done.metrics = strategy.aggregate_train(t, list(kept.values()))
            if done.arrays is None:
                done.why = "the strategy made no model of the updates"
        return done

    def evaluate(
        self, strategy: Strategy, t: int, arrays: ArrayRecord, config: ConfigRecord
    ) -> Evaluated:
        """Let members evaluate a model, if the strategy asks for it."""
        grid, _ = self.grid()
        if not grid.devices:
            return Evaluated()
        _cap_minima(strategy, len(grid.devices))
        averaged = self.form.without_counters(arrays)
        messages = self._whole(strategy.configure_evaluate(t, averaged, config, grid))
        if not messages:
            return Evaluated()
        answers = self.crowd.ask(messages, grid.devices, self.deadline)
        left_out = _checks_of(self.checks, strategy).evaluation_refusals(answers.replies)
        fine = [reply for device, reply in answers.replies.items() if device not in left_out]
        left_out |= answers.failed | dict.fromkeys(answers.late, "no answer in time")
        metrics = strategy.aggregate_evaluate(t, fine) if fine else None
        return Evaluated(metrics, dict(sorted(left_out.items())))

    def _whole(self, messages: Iterable[Message]) -> list[Message]:
        """Return a strategy's messages, with the counters that it was not given and nodes need."""
        found = list(messages)
        for message in found if self.form.counters else ():
            for name, record in list(message.content.array_records.items()):
                if record.keys() == self.form.kinds.keys():
                    message.content[name] = self.form.with_counters(record)
        return found


def _checks_of(checks: Checks, strategy: Strategy) -> Checks:
    """Return the checks with the name that a strategy has for the number of samples."""
    names = (getattr(each, "weighted_by_key", None) for each in chain_of(strategy))
    own = next((name for name in names if isinstance(name, str)), checks.weighted_by)
    return replace(checks, weighted_by=own)


def _odd_metrics(replies: Mapping[int, Message]) -> dict[int, str]:
    """Return which metrics are not finite, by device."""
    found = {device: odd_metric(reply.content) for device, reply in replies.items()}
    return {device: one_line(what) for device, what in found.items() if what is not None}


def _metrics_used(strategy: Strategy) -> dict[str, float]:
    """Return the metrics beside the number of samples that a model is made of, and their limits.

    QFedAvg weights by powers of losses; adaptive clipping at the nodes counts bits.
    """
    used: dict[str, float] = {}
    for each in chain_of(strategy):
        if isinstance(each, QFedAvg):
            used[each.train_loss_key] = MOST_LOSS ** (1 / max(1.0, each.q))
        if isinstance(each, DifferentialPrivacyClientSideAdaptiveClipping):
            used[KEY_NORM_BIT] = 1.0
    return used


def _updates_for_noise(strategy: Strategy) -> int:
    """Return how many updates a strategy's noise is made for; 0 if it adds none.

    Flower's noise falls with the number of updates that it was told of. What one device can change
    falls with the number of those that there are: of fewer, the noise would hide less than it says.
    """
    counts = (getattr(each, "num_sampled_clients", None) for each in chain_of(strategy))
    wanted = next((count for count in counts if isinstance(count, int)), 0)
    return wanted if adds_noise(strategy) else 0


def _unfit_for_noise(strategy: Strategy, free: int) -> str:
    """Return why a strategy that adds noise could not use a round, if so.

    It needs as many updates as its noise is made for. With an accountant it must not ask for more
    either, or Flower stops.
    """
    wanted = _updates_for_noise(strategy)
    sampled = _sampled(strategy, free, wanted)
    if not wanted or sampled == wanted:
        return ""
    if sampled > wanted and accountant_of(strategy) is None:
        return ""
    which = f"{free} members can be asked"
    if sampled != free:
        which = f"of {free} members that can be asked {sampled} would be sampled"
    return f"{which}, and the noise is made for {wanted} updates"


def _sampled(strategy: Strategy, free: int, wanted: int) -> int:
    """Return how many of the members that can be asked a strategy would ask, by Flower's rule.

    One with a rule of its own is taken to ask as many as its noise is made for, if there are.
    """
    inner = chain_of(strategy)[-1]
    rule = type(inner).configure_train.__module__
    if not isinstance(inner, FedAvg) or rule.partition(".")[0] != "flwr":
        return min(free, wanted)
    return max(int(free * inner.fraction_train), inner.min_train_nodes)


def _cap_minima(strategy: Strategy, members: int) -> None:
    """Let a strategy wait for no more nodes than there are members."""
    for each in chain_of(strategy):
        for name, fraction in MINIMA.items():
            wanted = getattr(each, name, None)
            if isinstance(wanted, int):
                # What the user asked for comes back when there are enough members again.
                asked = each.__dict__.setdefault("_ebbflow_minima", {}).setdefault(name, wanted)
                unused = fraction is not None and getattr(each, fraction, None) == 0.0
                setattr(each, name, 0 if unused else min(asked, members))
