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
from ebbflow.core.survey import Array, Expansion, LossSums, Part, SurveyPlan
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
        if plan.balanced:  # the sum of label counts goes up, and comes back to all
            up = SCALAR * world.dataset.classes
            down += up
        self._charge(Cost(broadcasts=len(models), bytes_down=down), up, questions=1, passes=0)

    def losses(self, mixtures: Sequence[Array], part: Part) -> LossSums:
        """Return sums of the losses at several mixtures."""
        groups = self._groups[part]
        stacked = torch.from_numpy(np.stack(mixtures))
        losses, weights, products = [], [], np.zeros((len(mixtures), len(mixtures)))
        for basis, x, y, counts in groups:
            each = sample_losses(basis, stacked.to(basis.thetas), x, y).double() * counts
            losses.append(each.sum(1).cpu().numpy())
            weights.append(float(counts.sum()))
            products += (each @ each.T).cpu().numpy()
        asked = len(mixtures)
        numbers = asked + 1 + asked * (asked + 1) // 2
        self._charge(
            Cost(bytes_down=SCALAR * asked * self._models),
            SCALAR * numbers,
            questions=1,
            passes=asked * sum(len(group.y) for group in groups),
        )
        return LossSums(np.array(weights), np.array(losses), products)

    def expansion(self, mixture: Array, part: Part) -> Expansion:
        """Return the loss, expanded around a mixture."""
        groups, size = self._groups[part], self._models
        alpha = torch.from_numpy(mixture)
        sums = [
            expanded(basis, alpha.to(basis.thetas), x, y, counts) for basis, x, y, counts in groups
        ]
        loss, slope, curvature = (
            np.stack([t.numpy() for t in part]) for part in zip(*sums, strict=True)
        )
        self._charge(
            Cost(bytes_down=SCALAR * size),
            SCALAR * (2 + size + size * (size + 1) // 2),
            questions=1,
            passes=expansion_passes(size, self._linear) * sum(len(group.y) for group in groups),
        )
        return Expansion(np.array([float(g.weights.sum()) for g in groups]), loss, slope, curvature)

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
    ) -> dict[Part, list[_Group]]:
        """Draw every device's samples and put those of each group together."""
        count = max(1, min(plan.groups, len(self.devices) // plan.least))
        order = generator(world.seed, "survey-groups", session.index).permutation(len(self.devices))
        members = [[self.devices[place] for place in order[g::count]] for g in range(count)]
        rows: dict[Part, list[tuple[Indices, Array]]] = {"learn": [], "judge": [], "both": []}
        for group in members:
            samples = [_sample(world, session, device, plan.samples) for device in group]
            for part, drawn_rows in rows.items():
                drawn = [sample[part] for sample in samples]
                # A device counts with all its samples D_k, however few are drawn from it.
                each = [
                    np.full(len(part), session.samples(device) / len(part))
                    for device, part in zip(group, drawn, strict=True)
                ]
                drawn_rows.append((np.concatenate(drawn), np.concatenate(each)))
        examples = world.dataset.train
        factors = np.ones(world.dataset.classes)
        if plan.balanced:
            factors = _balancing(examples.y.cpu().numpy(), rows["both"], len(factors))
        layout = world.model.layout
        basis = basis_of(world.model, received(models, layout, plan.compression))
        basis = basis.to(examples.x.device)
        groups: dict[Part, list[_Group]] = {}
        for part, parts in rows.items():
            groups[part] = []
            for picked, counts in parts:
                at = torch.from_numpy(picked).to(examples.x.device)
                x, y = prepared(examples.x[at], examples.pixels), examples.y[at]
                smaller, (x,) = basis.for_texts([x])
                weights = torch.from_numpy(counts * factors[y.cpu().numpy()]).to(basis.thetas)
                groups[part].append(_Group(smaller, x, y, weights))
        return groups


def _sample(world: World, session: Session, device: int, samples: int) -> dict[Part, Indices]:
    """Draw a device's two halves; a device with a single sample has to use it for both."""
    shard = session.shards[device]
    draw = generator(world.seed, "survey", session.index, device)
    rows = shard[draw.permutation(len(shard))[: 2 * samples]]
    middle = max(1, len(rows) // 2)
    return {"learn": rows[:middle], "judge": rows[middle:] if len(rows) > 1 else rows, "both": rows}


def _balancing(y: Indices, sampled: Iterable[tuple[Indices, Array]], classes: int) -> Array:
    """Return the factor by which the samples of each label count, so that all labels count alike.

    The devices add up what their samples count by label; nobody learns who holds which.
    """
    counts = np.zeros(classes)
    for rows, weights in sampled:
        counts += np.bincount(y[rows], weights, classes)
    present = counts > 0
    return np.where(present, counts.sum() / (present.sum() * np.maximum(counts, 1e-300)), 0.0)
