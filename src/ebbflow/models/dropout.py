"""Dropout whose draws are functions of names, in place of torch's own.

A module's ``nn.Dropout`` layers draw from torch's global generator, so what they drop would depend
on the engine and on how the work is divided. In their place comes a layer that computes its mask
from one number for each sample, drawn by name like everything else, by a hash of that number, the
layer's place and the unit's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

_BITS = 24  # of a uniform draw in single precision, and of a unit's
_GOLDEN, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""The odd constants of SplitMix64, as signed numbers."""
_DROPS_CHANNELS = {
    nn.Dropout.forward: False,
    nn.Dropout1d.forward: True,
    nn.Dropout2d.forward: True,
    nn.Dropout3d.forward: True,
}
"""What the layers that are replaced do, and whether they drop whole channels."""


class SampleDraws:
    """The numbers that the dropout layers of a module compute their masks from, ``[B, layers]``."""

    def __init__(self) -> None:
        self.noise: Tensor | None = None


class NamedDropout(nn.Module):
    """Drops units with probability p, or whole channels, as the samples' numbers say."""

    def __init__(self, p: float, place: int, draws: SampleDraws, *, channels: bool) -> None:
        super().__init__()
        self.p, self.place, self.draws, self.channels = p, place, draws, channels

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs with some units set to zero, and the others scaled up."""
        if not self.training or self.p == 0:
            return x
        if self.p == 1:
            return x * 0
        noise = self.draws.noise
        if noise is None:
            raise ValueError("a dropout layer is trained without numbers to compute its mask from")
        if noise.shape[0] != x.shape[0]:
            raise ValueError(
                f"a dropout layer has {x.shape[0]} rows where the batch has {noise.shape[0]}: its "
                "inputs must have the samples first"
            )
        shape = x.shape[1:2] if self.channels else x.shape[1:]
        kept = kept_units(noise[:, self.place], math.prod(shape), self.p, self.place)
        kept = kept.view(len(x), *shape, *(1,) * (x.dim() - 1 - len(shape)))
        return x * (kept.to(x.dtype) / (1 - self.p))


def kept_units(noise: Tensor, units: int, p: float, place: int) -> Tensor:
    """Return which units of every sample are kept, ``[B, units]``, from its draw in [0, 1).

    >>> kept_units(torch.tensor([0.25, 0.75]), 10_000, 0.4, 0).double().mean(1).round(decimals=1)
    tensor([0.6000, 0.6000], dtype=torch.float64)
    """
    # Products of 64-bit numbers wrap around, as the hash wants them to.
    layer = torch.tensor(place + 1, device=noise.device) * _FIRST
    seeds = (noise.double() * 2**_BITS).long() * _GOLDEN + layer
    numbers = torch.arange(units, device=noise.device) * _SECOND
    mixed = seeds.unsqueeze(-1) ^ numbers
    for shift, factor in ((30, _SECOND), (27, _FIRST), (31, _GOLDEN)):
        mixed = (mixed ^ (mixed >> shift)) * factor
    drawn: Tensor = (mixed >> (63 - _BITS)) & (2**_BITS - 1)
    kept: Tensor = drawn >= p * 2**_BITS
    return kept


def with_named_dropout(module: nn.Module) -> tuple[nn.Module, SampleDraws | None, int]:
    """Return the module with its dropout layers replaced, their draws, and how many there are.

    One layer that is used in several places drops alike in all of them. A subclass that computes
    something of its own stays as it is.
    """
    draws = SampleDraws()
    replaced: dict[int, NamedDropout] = {}
    for parent in module.modules():
        # Not named_children, which leaves out what occurs a second time.
        for name, child in list(parent._modules.items()):
            if isinstance(child, _DropoutNd) and type(child).forward in _DROPS_CHANNELS:
                made = replaced.get(id(child))
                if made is None:
                    channels = _DROPS_CHANNELS[type(child).forward]
                    made = NamedDropout(child.p, len(replaced), draws, channels=channels)
                    replaced[id(child)] = made
                setattr(parent, name, made)
    return module, draws if replaced else None, len(replaced)


def draws_itself(module: nn.Module) -> bool:
    """Whether a layer draws from torch's generator in a way that cannot be replaced."""
    for part in module.modules():
        if isinstance(part, _DropoutNd) and part.p > 0:
            return True
        if isinstance(part, nn.MultiheadAttention | nn.RNNBase) and part.dropout > 0:
            return True
    return False
