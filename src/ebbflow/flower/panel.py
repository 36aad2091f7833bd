"""The devices that a learned start asks, in a real federation.

`RemotePanel` asks nodes that run `ebbflow.flower.client`. `EvaluatedPanel` asks the nodes of any
Flower app: they are sent mixtures of models to evaluate, as plain ``evaluate`` messages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from ebbflow.core.answers import (
    added_expansions,
    added_losses,
    label_factors,
    members_of_groups,
)
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator
from ebbflow.core.survey import Array, Expansion, Half, LossSums, SurveyPlan
from ebbflow.core.types import ModelState
from ebbflow.core.vector import mix
from ebbflow.data.schedule import participants
from ebbflow.flower.checks import samples_claimed
from ebbflow.flower.crowd import Answers
from ebbflow.flower.members import Opening
from ebbflow.flower.survey_node import HALVES, models_record
from ebbflow.flower.wire import EXAMPLES

MOST = float(np.finfo(np.float32).max)
"""Whatever is beyond it is as good as infinite, and its sums would not be finite."""

SLACK = 1.01
"""How many times the largest device's samples anybody's may weigh: nodes add up in 32 bits."""

Ask = Callable[[Mapping[int, RecordDict]], Answers]
"""Sends each device its question as an ``evaluate`` message, and returns what came of it."""


class SurveyInterruptedError(Exception):
    """Devices have not answered a question; a survey needs the same devices from first to last."""

    def __init__(self, why: Mapping[int, str]) -> None:
        said = "; ".join(f"device {device}: {reason}" for device, reason in why.items())
        super().__init__(f"not all devices answered ({said})")
        self.devices = tuple(why)


class _Asked:
    """The devices of a survey and their groups."""

    noisy = False

    def __init__(self, opening: Opening, plan: SurveyPlan, ask: Ask) -> None:
        self.opening, self.plan, self._ask = opening, plan, ask
        present = sorted(opening.members)
        sizes = [opening.members[device] for device in present]
        draw = generator(opening.seed, "survey-devices", opening.session)
        self.devices = participants(draw, present, sizes, plan.devices, "uniform")
        held = sum(opening.members[device] for device in self.devices)
        self.share = held / sum(sizes)
        count = plan.groups_of(len(self.devices))
        self.groups = members_of_groups(opening.seed, opening.session, self.devices, count)

    def answers(self, questions: Mapping[int, RecordDict]) -> dict[int, dict[str, Any]]:
        """Return the metrics of every device's answer."""
        given = self._ask(questions)
        found: dict[int, dict[str, Any]] = {}
        wrong = {d: given.failed.get(d, "no answer") for d in questions if d not in given.replies}
        for device, reply in given.replies.items():
            records = list(reply.content.metric_records.values())
            if len(records) != 1:
                wrong[device] = f"its answer has {len(records)} records of metrics instead of one"
            elif samples_claimed(records[0]) is None:
                wrong[device] = f"its {EXAMPLES} is {records[0][EXAMPLES]}"
            else:
                found[device] = dict(records[0])
        _leave_out(wrong)
        return found


class RemotePanel(_Asked):
    """Nodes that compute derivatives of their losses themselves; see `ebbflow.core.survey`."""

    def __init__(
        self, opening: Opening, models: Sequence[ModelState], plan: SurveyPlan, ask: Ask
    ) -> None:
        super().__init__(opening, plan, ask)
        self._size = len(models)
        self._most = SLACK * max(opening.members.values())
        self._factors: Array = np.zeros(0)
        records = {"models": models_record(list(models), plan.compression)}
        counts = self._asked_all("basis", {}, records)
        if plan.balance > 0:
            self._factors = self._label_factors(counts)

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        flat = np.concatenate(list(mixtures)).tolist()
        answers = self._asked_all("losses", {"half": half, "mixtures": flat})
        count = len(mixtures)

        def sums(device: int) -> LossSums:
            weight, losses, products = self._lists(
                answers, device, weight=1, losses=count, products=count * count
            )
            # A mixture that is no good may have no finite loss: the search passes it over.
            finite = np.isfinite(losses).all()
            self._check_sums(device, weight, *((losses, products) if finite else ()))
            return LossSums(weight, losses[None], products.reshape(count, count))

        return added_losses([[sums(device) for device in group] for group in self.groups])

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture."""
        answers = self._asked_all("expansion", {"half": half, "mixture": mixture.tolist()})
        size = self._size

        def sums(device: int) -> Expansion:
            weight, loss, slope, curvature = self._lists(
                answers, device, weight=1, losses=1, slope=size, curvature=size * size
            )
            if np.isfinite(loss).all():
                self._check_sums(device, weight, loss, slope, curvature)
            else:  # a step to there is not made, whatever the rest says
                self._check_sums(device, weight)
                slope, curvature = np.zeros_like(slope), np.zeros_like(curvature)
            return Expansion(weight, loss, slope[None], curvature.reshape(1, size, size))

        return added_expansions([[sums(device) for device in group] for group in self.groups])

    def _check_sums(self, device: int, weight: Array, *others: Array) -> None:
        """Refuse sums that would spoil those of all, or that weigh more than anybody's samples."""
        most = self._most * max(self._factors.tolist(), default=1.0)
        if not 0 <= weight[0] <= most:
            _leave_out({device: f"its weight is {weight[0]:g}, not from 0 to {most:g}"})
        if not all((np.abs(each) <= MOST).all() for each in others):
            _leave_out({device: "its sums are not finite"})

    def _label_factors(self, counts: Mapping[int, Mapping[str, Any]]) -> Array:
        told: dict[int, list[Any]] = {
            d: [each.get(half) for half in HALVES] for d, each in counts.items()
        }
        odd = [device for device, each in told.items() if not _fine(each, self._most)]
        _leave_out(dict.fromkeys(odd, "its counts of labels cannot be"))
        sizes = Counter(len(each[0]) for each in told.values())
        size, found = sizes.most_common(1)[0]
        if found < len(told):
            # Without a majority nobody knows who is wrong.
            usual = size if 2 * found > len(told) else None
            _leave_out(
                {
                    d: f"it tells {len(each[0])} labels apart, and others do not: give every "
                    "node's client_app the same model, or the same number of classes"
                    for d, each in told.items()
                    if len(each[0]) != usual
                }
            )
        if not size:  # samples without a label
            return np.zeros(0)
        total = np.zeros(size)
        for place in range(len(HALVES)):
            for device in (d for group in self.groups for d in group):
                total += np.array(told[device][place])
        return label_factors(total, self.plan.balance)

    def _asked_all(
        self, kind: str, config: Mapping[str, Any], records: Mapping[str, ArrayRecord] | None = None
    ) -> dict[int, dict[str, Any]]:
        questions = {}
        for device in self.devices:
            own = ConfigRecord(
                {
                    **config,
                    "question": kind,
                    "session": self.opening.session,
                    "seed": self.opening.seed,
                    "device": device,
                    "samples": self.plan.samples,
                    "factors": self._factors.tolist(),
                }
            )
            questions[device] = RecordDict({**(records or {}), "config": own})
        return self.answers(questions)

    def _lists(
        self, answers: Mapping[int, Mapping[str, Any]], device: int, **lengths: int
    ) -> list[Array]:
        found = []
        for name, length in lengths.items():
            values = answers[device].get(name)
            if not isinstance(values, list) or len(values) != length:
                raise SurveyInterruptedError({device: f"its {name} cannot be read"})
            found.append(np.array(values, dtype=np.float64))
        return found


class EvaluatedPanel(_Asked):
    """Nodes that only evaluate models: expansions come from a quadratic through their losses.

    Losses at the models and half-way between each two of them determine one quadratic function of
    the mixing weights for every group. What is found with it is judged by true losses. Both halves
    are the same samples, since a Flower app has one test set.
    """

    def __init__(
        self,
        opening: Opening,
        models: Sequence[ModelState],
        plan: SurveyPlan,
        ask: Ask,
        loss: Callable[[Mapping[str, Any]], float],
        config: ConfigRecord,
    ) -> None:
        super().__init__(opening, plan, ask)
        self._models, self._loss, self._config = list(models), loss, config
        self._known: dict[bytes, dict[int, tuple[float, float]]] = {}
        self._quadratics: list[tuple[Array, Array, float]] | None = None

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        for mixture in mixtures:
            self._evaluate(mixture)
        found = [self._known[mixture.tobytes()] for mixture in mixtures]
        weight = np.array([sum(found[0][d][0] for d in group) for group in self.groups])
        loss = np.array(
            [[sum(each[d][0] * each[d][1] for d in g) for each in found] for g in self.groups]
        )
        # Of single samples nothing is known; a device's mean stands for all of its samples.
        by_device = np.array([[each[d][0] * each[d][1] for d in self.devices] for each in found])
        with np.errstate(invalid="ignore"):  # where losses are infinite
            products = np.nan_to_num(by_device @ by_device.T, posinf=0.0, neginf=0.0)
        return LossSums(weight, loss, products)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the quadratic through the losses, expanded around a mixture."""
        if self._quadratics is None:
            self._quadratics = self._fitted()
        parts = []
        for curvature, slope, weight in self._quadratics:
            towards = curvature @ mixture
            parts.append(
                Expansion(
                    np.array([weight]),
                    np.array([weight * float(mixture @ towards / 2 + slope @ mixture)]),
                    weight * (towards + slope)[None],
                    weight * curvature[None],
                )
            )
        return Expansion(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _fitted(self) -> list[tuple[Array, Array, float]]:
        """Return curvature, slope and weight of each group's quadratic a^T H a / 2 + g^T a.

        On weights that add up to one, a quadratic is given by its values at the corners, f_i, and
        half-way, f_ij: it is sum_i f_i a_i - sum_(i<j) 2 (f_i + f_j - 2 f_ij) a_i a_j.
        """
        size = len(self._models)
        corners = list(np.eye(size))
        pairs = list(combinations(range(size), 2))
        middles = [(corners[i] + corners[j]) / 2 for i, j in pairs]
        sums = self.losses([*corners, *middles], "learn")
        if not np.isfinite(sums.loss).all():
            _leave_out(dict.fromkeys(self.devices, "a model of the past has no finite loss"))
        fitted = []
        for weight, loss in zip(sums.weight, sums.loss / sums.weight[:, None], strict=True):
            curvature = np.zeros((size, size))
            for place, (i, j) in enumerate(pairs):
                bent = -2 * (loss[i] + loss[j] - 2 * loss[size + place])
                curvature[i, j] = curvature[j, i] = bent
            # a_i^2 = a_i - sum_(j != i) a_i a_j: a matrix without negative curvature is nearest.
            fitted.append((*_convex(curvature, loss[:size]), float(weight)))
        return fitted

    def _evaluate(self, mixture: Array) -> None:
        key = mixture.tobytes()
        if key in self._known:
            return
        arrays = self.opening.form.arrays(mix(self._models, mixture.tolist()))
        content = RecordDict({"arrays": arrays, "config": self._config})
        answers = self.answers(dict.fromkeys(self.devices, content))
        losses: dict[int, float] = {}
        unclear: dict[int, EbbflowError] = {}
        for device, metrics in answers.items():
            try:
                losses[device] = self._loss(metrics)
            except EbbflowError as error:
                unclear[device] = error
        if len(unclear) == len(answers):  # then it is the app's, or the settings'
            raise next(iter(unclear.values()))
        wrong = {device: str(error) for device, error in unclear.items()}
        beyond = {d: f"its loss is {n}" for d, n in losses.items() if not abs(n) <= MOST}
        if 2 * len(beyond) > len(losses):  # it is the mixture that is no good
            losses = dict.fromkeys(losses, math.inf)
        else:
            wrong |= beyond
        _leave_out(wrong)
        self._known[key] = {
            device: (float(metrics.get(EXAMPLES, 1)), losses[device])
            for device, metrics in answers.items()
        }


def _leave_out(wrong: Mapping[int, str]) -> None:
    """End a survey, to begin it again without some devices, if there are any."""
    if wrong:
        raise SurveyInterruptedError(dict(sorted(wrong.items())))


def _fine(counts: Sequence[Any], most: float) -> bool:
    """Whether a device has counted the labels of each half, as far as one can see."""
    lists = all(isinstance(each, list) for each in counts)
    return (
        lists
        and len({len(each) for each in counts}) == 1
        and all(number >= 0 for each in counts for number in each)
        and all(sum(each) <= most for each in counts)
    )


def _convex(curvature: Array, slope: Array) -> tuple[Array, Array]:
    """Return the nearest quadratic on the plane sum(a) = 1 that curves downwards nowhere."""
    size = len(slope)
    plane = np.eye(size) - np.ones((size, size)) / size
    values, directions = np.linalg.eigh(plane @ curvature @ plane)
    kept = (directions * np.maximum(values, 0.0)) @ directions.T
    # Both agree at the middle of the plane: value and slope there are those of the data.
    middle = np.ones(size) / size
    return kept, slope + (curvature - kept) @ middle
