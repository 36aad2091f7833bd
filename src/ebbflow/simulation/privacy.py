"""Client-level differential privacy: every device's message is clipped, and the sum gets noise.

The server is trusted with single updates; what is private is every model that leaves it. A device
counts once, whatever its number of samples, because a device with many would else reveal more.
Devices that are missing count as zero, and the mean is over those that were asked: how many that
are is no secret. `ebbflow.analysis.privacy` adds up what a run has spent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Upload
from ebbflow.core.local import Cohort
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.survey import Array, Expansion, Half, LossSums, SurveyPlan
from ebbflow.core.types import ModelState, Session
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.tracks import Track
from ebbflow.simulation.world import World


def private_total(world: World, cohort: Cohort, uploads: Sequence[Upload]) -> Upload:
    """Return the sum of clipped updates with noise, as the sum that a server step then uses.

    With m_k what device k sends, all vectors together, of n participants the mean is
    (sum_k m_k min(1, C / ||m_k||) + N(0, (z C)^2)) / n.
    """
    clip, noise = world.config.privacy.clip, world.config.privacy.noise
    assert clip is not None
    names = ["delta", *uploads[0].extras]
    sizes = [len(vector) for vector in (uploads[0].delta, *uploads[0].extras.values())]
    total = torch.zeros(sum(sizes)).to(uploads[0].delta)
    for upload in uploads:
        message = torch.cat([upload.delta, *upload.extras.values()]) / upload.samples
        total += _clipped(message, clip)
    draw = torch_generator(*cohort.names, "privacy", cohort.session, cohort.round)
    total += (noise * clip * torch.randn(len(total), generator=draw)).to(total)
    counted = sum(map(cohort.weight, range(len(cohort.devices))))
    mean = dict(zip(names, torch.split(total / len(cohort.devices), sizes), strict=True))
    return Upload(
        delta=counted * mean.pop("delta"),
        buffers=uploads[0].buffers / uploads[0].samples * counted,
        samples=uploads[0].samples.new_tensor(float(counted)),
        devices=uploads[0].devices.new_tensor(float(len(cohort.devices))),
        extras={name: counted * value for name, value in mean.items()},
    )


def _clipped(message: Tensor, clip: float) -> Tensor:
    """Return a message no longer than ``clip``; one that is not finite says nothing."""
    if not vector.all_finite(message):
        return torch.zeros_like(message)
    return message * min(1.0, clip / max(float(message.double().norm()), 1e-30))


class PrivatePanel:
    """A survey whose answers are clipped and get noise; see `ebbflow.core.survey.Panel`.

    A device answers with means over its samples, all numbers of an answer clipped together to
    ``privacy.answers``, and counts once. Labels are not made to count alike, because their counts
    would have to be sent.
    """

    noisy = True

    def __init__(
        self,
        world: World,
        session: Session,
        models: Sequence[ModelState],
        plan: SurveyPlan,
        payer: Track | None = None,
    ) -> None:
        single = plan._replace(groups=plan.devices, least=1, balance=0.0)
        self._devices = SimulatedPanel(world, session, models, single, payer)
        self.share = self._devices.share
        count = len(self._devices.devices)
        self._group = np.arange(count) % plan.groups_of(count)
        self._weight = np.bincount(self._group).astype(float)
        self._clip, self._noise = world.config.privacy.answers, world.config.privacy.noise
        self._names = world.seed, "privacy-survey", session.index
        self._asked = 0

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures."""
        found = self._devices.losses(mixtures, half)
        sums = self._noised(found.loss / found.weight[:, None])
        # Post-processing of sums that have their noise costs nothing.
        products = np.einsum("ga,gb,g->ab", sums, sums, 1 / self._weight)
        noise = len(sums) * (self._noise * self._clip) ** 2
        return LossSums(self._weight, sums, products + noise * np.eye(len(products)))

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture."""
        found = self._devices.expansion(mixture, half)
        size = found.slope.shape[1]
        upper = np.triu_indices(size)
        answers = np.column_stack([found.loss, found.slope, found.curvature[:, *upper]])
        sums = self._noised(answers / found.weight[:, None])
        curvature = np.zeros((len(sums), size, size))
        curvature[:, *upper] = sums[:, 1 + size :]
        curvature[:, upper[1], upper[0]] = sums[:, 1 + size :]
        return Expansion(self._weight, sums[:, 0], sums[:, 1 : 1 + size], curvature)

    def _noised(self, answers: Array) -> Array:
        """Return the sum of every group's clipped answers, with noise."""
        self._asked += 1
        lengths = np.linalg.norm(answers, axis=1, keepdims=True)
        clipped = answers * np.minimum(1.0, self._clip / np.maximum(lengths, 1e-30))
        sums = np.zeros((len(self._weight), answers.shape[1]))
        np.add.at(sums, self._group, clipped)
        draw = generator(*self._names, self._asked)
        return sums + self._noise * self._clip * draw.standard_normal(sums.shape)
