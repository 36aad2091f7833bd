"""Surveys in a simulation: which devices are asked, about which samples, and what it costs.

A real device would compute its own summands. Here the samples of a group of devices are put
together, which gives the same sums; no number of a single device leaves this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import counters
from ebbflow.core.counters import Cost, charged
from ebbflow.core.inputs import prepared
from ebbflow.core.mixtures import (
    Basis,
    basis_bytes,
    basis_of,
    expanded,
    expansion_passes,
    received,
    sample_losses,
)
from ebbflow.core.rng import generator
from ebbflow.core.survey import Array, Expansion, Half, LossSums, SurveyPlan
from ebbflow.core.types import Indices, ModelState, Session
from ebbflow.data.schedule import participants
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World

SCALAR = 4
"""Bytes of a number in a question or an answer."""


class _Group(NamedTuple):
    """The samples of a group's devices in one half, and what each counts."""

    basis: Basis
    x: Tensor
    y: Tensor
    weights: Tensor


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
        drawn = sum(len(group.y) for groups in self._groups.values() for group in groups)
        passes = len(models) * drawn if self._linear else 0
        self._charge(Cost(broadcasts=len(models), bytes_down=down), up, questions=1, passes=passes)

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        groups = self._groups[half]
        stacked = torch.from_numpy(np.stack(mixtures))
        losses, weights, products = [], [], np.zeros((len(mixtures), len(mixtures)))
        for basis, x, y, counts in groups:
            each = sample_losses(basis, stacked.to(basis.thetas), x, y).double() * counts
            losses.append(each.sum(1).cpu().numpy())
            weights.append(float(counts.sum()))
            # A group whose losses are no numbers is left out; the others' errors must not be lost.
            products += np.nan_to_num((each @ each.T).cpu().numpy(), posinf=0.0)
        asked = len(mixtures)
        numbers = asked + 1 + asked * (asked + 1) // 2
        self._charge(
            Cost(bytes_down=SCALAR * asked * self._models),
            SCALAR * numbers,
            questions=1,
            passes=self._passes(asked, groups),
        )
        return LossSums(np.array(weights), np.array(losses), products)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture."""
        groups, size = self._groups[half], self._models
        alpha = torch.from_numpy(mixture)
        sums = [
            expanded(basis, alpha.to(basis.thetas), x, y, counts) for basis, x, y, counts in groups
        ]
        loss, slope, curvature = (
            np.stack([each.numpy() for each in kind]) for kind in zip(*sums, strict=True)
        )
        self._charge(
            Cost(bytes_down=SCALAR * size),
            SCALAR * (2 + size + size * (size + 1) // 2),
            questions=1,
            passes=self._passes(expansion_passes(size), groups),
        )
        return Expansion(np.array([float(g.weights.sum()) for g in groups]), loss, slope, curvature)

    def _passes(self, each: int, groups: Sequence[_Group]) -> int:
        """Return the forward passes of a question that takes ``each`` for every sample."""
        return 0 if self._linear else each * sum(len(group.y) for group in groups)

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
    ) -> dict[Half, list[_Group]]:
        """Draw every device's samples and put those of each group together."""
        count = plan.groups_of(len(self.devices))
        order = generator(world.seed, "survey-groups", session.index).permutation(len(self.devices))
        members = [[self.devices[place] for place in order[g::count]] for g in range(count)]
        rows: dict[Half, list[tuple[Indices, Array]]] = {"learn": [], "judge": []}
        for group in members:
            samples = [_sample(world, session, device, plan.samples) for device in group]
            for half, of_groups in rows.items():
                drawn = [sample[half] for sample in samples]
                # A device counts with all its samples D_k, however few are drawn from it.
                each = [
                    np.full(len(own), session.samples(device) / len(own))
                    for device, own in zip(group, drawn, strict=True)
                ]
                of_groups.append((np.concatenate(drawn), np.concatenate(each)))
        examples = world.dataset.train
        factors = np.ones(world.dataset.classes)
        labelled = world.model.task.labels
        if plan.balance > 0 and labelled:
            sampled = [*rows["learn"], *rows["judge"]]
            labels = examples.y.cpu().numpy()
            factors = _balancing(labels, sampled, len(factors), plan.balance)
        layout = world.model.layout
        basis = basis_of(world.model, received(models, layout, plan.compression))
        basis = basis.to(examples.x.device)
        groups: dict[Half, list[_Group]] = {}
        for half, of_groups in rows.items():
            groups[half] = []
            for picked, counts in of_groups:
                at = torch.from_numpy(picked).to(examples.x.device)
                x, y = prepared(examples.x[at], examples.pixels), examples.y[at]
                simplest, x = basis.for_samples(x)
                balanced = counts * factors[y.cpu().numpy()] if labelled else counts
                weights = torch.from_numpy(balanced).to(basis.thetas)
                groups[half].append(_Group(simplest, x, y, weights))
        return groups


def _sample(world: World, session: Session, device: int, samples: int) -> dict[Half, Indices]:
    """Draw a device's two halves; a device with a single sample has to use it for both."""
    shard = session.shards[device]
    draw = generator(world.seed, "survey", session.index, device)
    rows = shard[draw.permutation(len(shard))[: 2 * samples]]
    middle = max(1, len(rows) // 2)
    return {"learn": rows[:middle], "judge": rows[middle:] if len(rows) > 1 else rows}


def _balancing(
    y: Indices, sampled: Iterable[tuple[Indices, Array]], classes: int, balance: float
) -> Array:
    """Return the factor by which the samples of each label count.

    The devices add up what their samples count by label; nobody learns who holds which. A factor is
    the sum of a label that all would have if they were equal, over its own, to the power of
    ``balance``: with 1, all labels count alike.
    """
    counts = np.zeros(classes)
    for rows, weights in sampled:
        counts += np.bincount(y[rows], weights, classes)
    present = counts > 0
    ratios = counts.sum() / (present.sum() * np.maximum(counts, 1e-300))
    return np.where(present, ratios**balance, 0.0)
