"""Surveys in a simulation: which devices are asked, about which samples, and what it costs.

A real device computes its own summands, and so does a simulated one with the reference engine. With
any other engine the samples of a group of devices are put together, which gives the same sums up to
rounding. No number of a single device leaves this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ebbflow.core import counters
from ebbflow.core.answers import (
    AskedSample,
    added_expansions,
    added_losses,
    label_factors,
    members_of_groups,
    sampled_rows,
)
from ebbflow.core.counters import Cost, charged
from ebbflow.core.inputs import prepared
from ebbflow.core.mixtures import SentModels, basis_bytes, expansion_passes
from ebbflow.core.rng import generator
from ebbflow.core.survey import Array, Expansion, Half, LossSums, SurveyPlan
from ebbflow.core.types import Indices, ModelState, Session
from ebbflow.data.schedule import participants
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World

SCALAR = 4
"""Bytes of a number in a question or an answer."""


Group = list[AskedSample]
"""The samples of a group's devices: those of each device by themselves, or all of them together."""


class SimulatedPanel:
    """The devices that a survey asks; see `ebbflow.core.survey.Panel`.

    ``payer`` is the track that the questions are charged to.
    """

    noisy = False

    def __init__(
        self,
        world: World,
        session: Session,
        models: Sequence[ModelState],
        plan: SurveyPlan,
        payer: Track | None = None,
    ) -> None:
        self._payer = payer
        sizes = [session.samples(device) for device in session.devices]
        draw = generator(world.seed, "survey-devices", session.index)
        self.devices = participants(draw, session.devices, sizes, plan.devices, "uniform")
        held = sum(session.samples(device) for device in self.devices)
        self.share = held / sum(sizes)
        self._models = len(models)
        self._groups = self._sampled(world, session, models, plan)
        self._linear = world.model.hints.linear
        layout, buffers = world.model.layout, world.model.buffer_layout
        down = basis_bytes(layout.total, buffers.total, len(models), plan.compression)
        up = 0
        if plan.balance > 0 and world.model.task.labels:
            # The sum of label counts goes up, and comes back to all.
            up = SCALAR * world.dataset.classes
            down += up
        # Logits that are linear in theta are computed once, for all models, and then mixed.
        drawn = sum(map(_count, self._groups.values()))
        passes = len(models) * drawn if self._linear else 0
        self._charge(Cost(broadcasts=len(models), bytes_down=down), up, questions=1, passes=passes)

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        groups = self._groups[half]
        sums = added_losses([[part.losses(mixtures) for part in group] for group in groups])
        asked = len(mixtures)
        numbers = asked + 1 + asked * (asked + 1) // 2
        self._charge(
            Cost(bytes_down=SCALAR * asked * self._models),
            SCALAR * numbers,
            questions=1,
            passes=self._passes(asked, groups),
        )
        return sums

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture."""
        groups, size = self._groups[half], self._models
        sums = added_expansions([[part.expansion(mixture) for part in group] for group in groups])
        self._charge(
            Cost(bytes_down=SCALAR * size),
            SCALAR * (2 + size + size * (size + 1) // 2),
            questions=1,
            passes=self._passes(expansion_passes(size), groups),
        )
        return sums

    def _passes(self, each: int, groups: Sequence[Group]) -> int:
        """Return the forward passes of a question that takes ``each`` for every sample."""
        return 0 if self._linear else each * _count(groups)

    def _charge(self, cost: Cost, bytes_up: int, *, questions: int, passes: int) -> None:
        """Add a question to the payer's costs; ``bytes_up`` are those of one device's answer."""
        if self._payer is not None:
            answers = Cost(
                bytes_up=bytes_up * len(self.devices), questions=questions, passes=passes
            )
            costs = charged(self._payer.costs, counters.SURVEY, cost + answers)
            self._payer.costs, self._payer.asked = costs, self.devices

    def _sampled(
        self, world: World, session: Session, models: Sequence[ModelState], plan: SurveyPlan
    ) -> dict[Half, list[Group]]:
        """Draw every device's samples, and put together those that are asked about together."""
        groups = members_of_groups(
            world.seed, session.index, self.devices, plan.groups_of(len(self.devices))
        )
        drawn = {device: _drawn(world, session, device, plan.samples) for device in self.devices}
        if world.config.engine.kind == "sequential":
            parts = [[[device] for device in group] for group in groups]
        else:
            parts = [[group] for group in groups]
        rows: dict[Half, list[list[_Rows]]] = {
            half: [[_together(drawn, half, part) for part in group] for group in parts]
            for half in ("learn", "judge")
        }
        examples, classes = world.dataset.train, world.dataset.classes
        factors = np.ones(classes)
        labelled = world.model.task.labels
        if plan.balance > 0 and labelled:
            # The devices add up what their samples count by label; nobody learns who holds which.
            labels, counts = examples.y.cpu().numpy(), np.zeros(classes)
            for of_groups in rows.values():
                for group in of_groups:
                    for picked, weights in group:
                        counts += np.bincount(labels[picked], weights, classes)
            factors = label_factors(counts, plan.balance)
        sent = SentModels(world.model, models, plan.compression, examples.x.device)

        def sample(part: _Rows) -> AskedSample:
            picked, counts = part
            at = torch.from_numpy(picked).to(examples.x.device)
            x, y = prepared(examples.x[at], examples.pixels), examples.y[at]
            basis, x = sent.for_samples(x)
            balanced = counts * factors[y.cpu().numpy()] if labelled else counts
            return AskedSample(basis, x, y, torch.from_numpy(balanced).to(basis.thetas))

        return {
            half: [[sample(part) for part in group] for group in of_groups]
            for half, of_groups in rows.items()
        }


_Rows = tuple[Indices, Array]
"""Rows of the data set, and what each of them counts."""


def _drawn(world: World, session: Session, device: int, samples: int) -> dict[Half, _Rows]:
    """Draw a device's two halves.

    A device counts with all its samples D_k, however few are drawn from it.
    """
    shard, size = session.shards[device], session.samples(device)
    halves = sampled_rows(world.seed, session.index, device, len(shard), samples)
    return {
        half: (shard[places], np.full(len(places), size / len(places)))
        for half, places in halves.items()
    }


def _together(
    drawn: Mapping[int, Mapping[Half, _Rows]], half: Half, devices: Sequence[int]
) -> _Rows:
    """Return the rows of several devices in one half."""
    rows, weights = zip(*(drawn[device][half] for device in devices), strict=True)
    return np.concatenate(rows), np.concatenate(weights)


def _count(groups: Sequence[Group]) -> int:
    return sum(len(part.y) for group in groups for part in group)
