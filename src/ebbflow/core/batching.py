"""Turns row numbers into mini-batches, in the same way for every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ebbflow.core.inputs import augmented, draw_crops, prepared
from ebbflow.core.local import Batch, Cohort
from ebbflow.core.rng import generator
from ebbflow.core.types import Examples, Model


class Feed:
    """Gathers samples, crops and mirrors them, and draws a model's noise.

    All draws are functions of names: session, round, device and step.
    """

    def __init__(self, examples: Examples, model: Model) -> None:
        self.examples = examples
        self.noise = model.noise
        pixels = examples.pixels
        self.crops = pixels if pixels is not None and (pixels.crop or pixels.flip) else None

    @property
    def sample_bytes(self) -> int:
        """The memory that one sample takes as an input."""
        return self.examples.x[0].numel() * max(4, self.examples.x.element_size())

    def batch(
        self, cohort: Cohort, places: Sequence[int], step: int, size: int, like: Tensor
    ) -> Batch:
        """Return one step of several devices, ``[devices, size, ...]``.

        A device with fewer than ``size`` samples in the step is padded with its first one, which
        gets weight zero. Weights and noise have the type of ``like``.
        """
        rows = np.empty((len(places), size), dtype=np.int64)
        weights = np.zeros(rows.shape)
        noise = None
        if self.noise is not None:  # in single precision, or a draw could be rounded up to one
            noise = np.zeros((*rows.shape, *self.noise), dtype=np.float32)
        crops = None if self.crops is None else np.zeros((*rows.shape, 3), dtype=np.int64)
        for i, place in enumerate(places):
            real = cohort.batches[place][step]
            rows[i] = real[0]
            rows[i, : len(real)] = real
            weights[i, : len(real)] = 1 / len(real)
            if noise is None and crops is None:
                continue
            draw = _draw(cohort, place, step)
            if crops is not None and self.crops is not None:
                crops[i, : len(real)] = draw_crops(draw, len(real), self.crops)
            if noise is not None:
                noise[i, : len(real)] = draw.random((len(real), *noise.shape[2:]), dtype=np.float32)
        device = self.examples.y.device
        at = torch.from_numpy(rows).to(device)
        x = self.examples.x[at]
        if crops is not None and self.crops is not None:
            flat = augmented(
                x.flatten(0, 1), torch.from_numpy(crops).flatten(0, 1).to(device), self.crops
            )
            x = flat.view(*rows.shape, *flat.shape[1:])
        return Batch(
            prepared(x, self.examples.pixels),
            self.examples.y[at],
            torch.from_numpy(weights).to(like),
            None if noise is None else torch.from_numpy(noise).to(like),
        )

    def noise_of_steps(self, cohort: Cohort, place: int, like: Tensor) -> Tensor | None:
        """Return what a device draws for a model in all of its steps, one sample after another.

        Only for samples that are not cropped: that comes first in a step's draws.
        """
        if self.noise is None:
            return None
        assert self.crops is None
        drawn = [
            _draw(cohort, place, step).random((len(rows), *self.noise), dtype=np.float32)
            for step, rows in enumerate(cohort.batches[place])
        ]
        return torch.from_numpy(np.concatenate(drawn)).to(like)

    def steps(self, cohort: Cohort, place: int, like: Tensor) -> list[Batch]:
        """Return all mini-batches of one device, without padding: ``[size, ...]``."""
        held = cohort.held([place])
        return [
            first(self.batch(held, [place], step, len(rows), like))
            for step, rows in enumerate(held.batches[place])
        ]


def _draw(cohort: Cohort, place: int, step: int) -> np.random.Generator:
    """Return the generator of a device's draws in one step."""
    where = (cohort.session, cohort.round, cohort.devices[place], step)
    return generator(*cohort.names, "inputs", *where)


def first(batch: Batch) -> Batch:
    """Return the first device's part of a batch of several devices."""
    noise = None if batch.noise is None else batch.noise[0]
    return Batch(batch.x[0], batch.y[0], batch.weights[0], noise)
