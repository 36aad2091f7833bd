"""The `Aggregation` record: how the server makes one update of those that devices sent.

The usual mean needs only sums. Every other aggregation looks at single updates, so that a few
devices, broken or malicious, cannot move the model wherever they like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.algorithm import Broadcast, Upload, combine

COLUMNS = 2**22
"""Entries of all updates that are combined at once: a sort takes three times their memory."""


class Updates(NamedTuple):
    """What K devices sent: ``moved [K, P]`` are their theta_k - theta, ``samples [K]`` their D_k.

    ``server [P]`` is how far the model moves on the server's own data, if it has any.
    """

    moved: Tensor
    samples: Tensor
    server: Tensor | None = None


@dataclass(frozen=True)
class Aggregation:
    """How updates become one; at most one of ``weights`` and ``entries`` is given, or the mean.

    Attributes:
        name: What settings and messages call it.
        weights: The weight of each device's update. They need not add up to one: less than one
            shortens the step.
        entries: A function of the K values ``[K, n]`` of n entries that returns ``[n]``.
        server_data: Whether the server needs data of its own.
    """

    name: str
    weights: Callable[[Updates], Tensor] | None = None
    entries: Callable[[Tensor], Tensor] | None = None
    server_data: bool = False

    @property
    def needs_single_updates(self) -> bool:
        """Whether sums are not enough."""
        return self.weights is not None or self.entries is not None


def aggregate(
    rule: Aggregation, uploads: Sequence[Upload], shared: Broadcast, server: Upload | None = None
) -> Upload:
    """Return uploads as the one sum that an algorithm's server step then uses.

    Uploads that are not finite are left out. The result counts with the samples of all others, so
    that the mean of it is what the rule makes of the devices' means.
    """
    usable = [upload for upload in uploads if is_finite(upload)]
    each = [combine(lambda field, u=upload: field / u.samples, upload) for upload in usable]
    samples = torch.stack([upload.samples for upload in usable])
    if rule.entries is not None:
        mean = combine(lambda *values: _by_entries(rule.entries, values), *each)
    else:
        own = None if server is None else server.delta / server.samples
        updates = Updates(torch.stack([one.delta for one in each]), samples, own)
        weights = samples / samples.sum() if rule.weights is None else rule.weights(updates)
        mean = combine(lambda *values: weights @ torch.stack(values), *_plain(each))
        total = weights.sum()
        # Buffers are a state, not a step: their weights have to add up to one.
        buffers = mean.buffers / total if bool(total > 0) else shared.buffers
        mean = mean._replace(buffers=buffers)
    whole = combine(lambda field: field * samples.sum(), mean)
    count = samples.new_tensor(float(len(usable)))
    return whole._replace(samples=samples.sum(), devices=count)


def is_finite(upload: Upload) -> bool:
    """Whether every number of an upload is finite."""
    vectors = (upload.delta, upload.buffers, *upload.extras.values())
    return all(map(vector.all_finite, vectors))


def _plain(uploads: Sequence[Upload]) -> list[Upload]:
    """Return uploads whose counts are vectors, too, so that all fields are summed alike."""
    return [
        one._replace(samples=one.samples.view(1), devices=one.devices.view(1)) for one in uploads
    ]


def _by_entries(function: Callable[[Tensor], Tensor] | None, values: Sequence[Tensor]) -> Tensor:
    """Apply a function to the devices' values of a few entries after another."""
    assert function is not None
    if values[0].ndim == 0 or not len(values[0]):
        return values[0]
    width = max(1, COLUMNS // len(values))
    parts = [
        function(torch.stack([value[at : at + width] for value in values]))
        for at in range(0, len(values[0]), width)
    ]
    return torch.cat(parts)
