"""The four label distributions of the paper's appendix: Two-Shard, Half, Partial-Overlap, Distinct.

Each hands out the training set to K devices in all (``partition.devices`` is their total here), no
sample to two of them, and names the two halves of the devices that take turns: the first half is
present in the odd sessions, the second in the even ones. Of an odd number of devices the second
half gets the larger part. ``alpha`` and ``overlap`` have no meaning for them.

The paper describes them for 10 and 100 labels and 10 or 20 devices, and does not say which devices
form a session. Every docstring states the rule for L labels and K devices, and what we chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Indices
from ebbflow.data.partition import ClassNumbers, rows_of

Groups = tuple[tuple[int, ...], tuple[int, ...]]
"""The devices of the odd and of the even sessions, each in ascending order."""


class Allocation(NamedTuple):
    """Who holds what, and who is here when: ``shards[k]`` are the ascending rows of device k."""

    shards: list[Indices]
    groups: Groups


class Distribution(Protocol):
    """A rule that hands the training set to devices, and divides these into two groups."""

    def __call__(
        self, y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator
    ) -> Allocation:
        """Return what each of ``devices`` devices holds of ``y``, whose labels are below L."""
        ...


def two_shard(y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator) -> Allocation:
    """Cut every label into equal shards and give each device two, of different labels.

    L < 100: 2 K shards in all, so 2 K / L of each label: with 10 labels and 10 devices the paper's
    two. Device after device draws 2 different labels, with probability proportional to the shards
    that are left of each; a label with as many shards left as there are devices is taken for sure,
    since the shards would not go round otherwise.

    100 <= L < 200: the same with 10 random batches of labels in place of the labels. A shard has an
    equal part of every label of its batch, so with 100 labels a device holds 20.

    L >= 200: single labels again, and each device draws floor(L / 10) different ones: with 200
    labels and 20 devices 400 shards, 2 of each label, 20 to a device.

    L = 4 is the authors' exception, the shards of McMahan et al.: 2 K shards, 2 random ones to each
    device, which may be of the same label.

    Where the shards cannot be equally many for all, the labels (or batches) with the most samples
    are cut into one shard more; ties are broken at random. The shards of a label differ by at most
    one sample. Every sample is used, unless there are fewer shards than labels (2 K < L for single
    labels below 100): then the labels with the fewest samples stay unused. The paper has 10 or 100
    labels and a rule that fits 10 devices only; other K, other L and the remainders are our
    reading, 4 and 200 labels that of the authors' code.

    Sessions alternate two random disjoint halves of the devices.

    >>> y = np.repeat(np.arange(10), 20)
    >>> shards, groups = two_shard(y, 10, 10, np.random.default_rng(0))
    >>> {len(np.unique(y[shard])) for shard in shards}, {len(shard) for shard in shards}
    ({2}, {20})
    """
    _check(y, classes, devices)
    groups = _halves(rng.permutation(devices).tolist())
    rows = rows_of(y, range(classes))
    if 100 <= classes < 200:
        batches = np.array_split(rng.permutation(classes), 10)
        parcels = [[rows[label] for label in batch.tolist()] for batch in batches]
    else:
        parcels = [[pool] for pool in rows]
    each = classes // 10 if classes >= 200 else 2
    cuts = _shard_numbers([sum(map(len, parcel)) for parcel in parcels], each, devices, rng)
    cut = [_dealt(parcel, int(n), rng) for parcel, n in zip(parcels, cuts, strict=True)]
    if classes == 4:
        pieces = [piece for shards in cut for piece in shards]
        order = rng.permutation(len(pieces)).reshape(devices, 2).tolist()
        held = [[pieces[place] for place in places] for places in order]
    else:
        held = [[cut[label].pop() for label in drawn] for drawn in _draws(cuts, each, devices, rng)]
    return Allocation([np.sort(np.concatenate(pieces)) for pieces in held], groups)


def half(y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator) -> Allocation:
    """Give the first half of the labels to the first half of the devices, and the rest to the rest.

    The devices 0 .. floor(K/2)-1 hold the labels 0 .. floor(L/2)-1, the others the other labels.
    Within a half the shuffled samples of one label after another are dealt to the devices in turn,
    beginning with those that hold the fewest so far (ties are broken at random). So of every label,
    and in all, two devices hold equally many up to one, and every sample is used. (The authors drop
    the remainders.) A device lacks a label of its half only where there are fewer samples of it
    than devices.

    Sessions alternate the two halves, A = {0 .. floor(K/2)-1} first.

    >>> y = np.repeat(np.arange(10), 7)
    >>> shards, groups = half(y, 10, 4, np.random.default_rng(0))
    >>> groups, np.unique(y[shards[0]]).tolist(), sorted(len(shard) for shard in shards)
    (((0, 1), (2, 3)), [0, 1, 2, 3, 4], [17, 17, 18, 18])
    """
    _check(y, classes, devices)
    first, second = groups = _halves(range(devices))
    rows = rows_of(y, range(classes))
    middle = classes // 2
    shards = [
        *_dealt(rows[:middle], len(first), rng),
        *_dealt(rows[middle:], len(second), rng),
    ]
    return Allocation(shards, groups)


def partial_overlap(
    y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator
) -> Allocation:
    """Give each half of the devices 60 % of the labels; 20 % are then in both.

    ``overlapping_labels`` says which. Both shares are of all L labels. A shared label's samples are
    shuffled and cut in two, one part for each half of the devices (of an odd number the second half
    gets the larger part), so that no sample is in both. Within a half, samples are dealt as in
    ``half``: of every label, and in all, two devices hold equally many up to one. Every sample is
    used, but for those of label 3 where there are 4 labels.

    Sessions alternate the two halves, A = {0 .. floor(K/2)-1} first.

    >>> y = np.repeat(np.arange(10), 8)
    >>> shards, groups = partial_overlap(y, 10, 4, np.random.default_rng(0))
    >>> [np.bincount(y[shard], minlength=10).tolist() for shard in shards[1:3]]
    [[4, 4, 4, 4, 2, 2, 0, 0, 0, 0], [0, 0, 0, 0, 2, 2, 4, 4, 4, 4]]
    """
    _check(y, classes, devices)
    first, second = groups = _halves(range(devices))
    a, b = overlapping_labels(classes)
    labels = sorted({*a, *b})
    pools: tuple[list[Indices], list[Indices]] = ([], [])
    for label, rows in zip(labels, rows_of(y, labels), strict=True):
        middle = len(rows) if label not in b else len(rows) // 2 if label in a else 0
        for pool, part in zip(pools, np.split(rng.permutation(rows), [middle]), strict=True):
            pool.append(part)
    shards = [*_dealt(pools[0], len(first), rng), *_dealt(pools[1], len(second), rng)]
    return Allocation(shards, groups)


def overlapping_labels(classes: int) -> Groups:
    """Return the labels of each half of the devices under Partial-Overlap.

    U = 2 L / 5, rounded, are the first half's own, as many the second's, and the L - 2 U between
    them are shared, so that all are used. That leaves nothing to share of 4 labels, for which the
    authors have an exception: label 0 is the first half's, 1 the second's, 2 is shared, 3 unused.

    >>> overlapping_labels(10)
    ((0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8, 9))
    >>> overlapping_labels(4)
    ((0, 2), (1, 2))
    """
    if classes < 3:
        raise EbbflowError(
            f"The data set has {classes} classes, too few for two groups that share some labels "
            "and not others; choose a data set with at least 3 or another `partition.kind`."
        )
    if classes == 4:
        return (0, 2), (1, 2)
    own = (4 * classes + 5) // 10
    return tuple(range(classes - own)), tuple(range(own, classes))


def distinct(y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator) -> Allocation:
    """Give every device a block of labels of its own.

    There are L blocks of one label below 100 labels, and floor(L / 10) from there on: 10 blocks of
    10 for 100 labels, 20 of 10 for 200. With K = B blocks, device i holds block i. With more
    devices, device i holds an equal part of block floor(i B / K), so that neighbours share one;
    with fewer, there are only K blocks, of L / K labels each. Blocks are consecutive labels (label
    l is in block floor(l B / L)), and blocks and their numbers of devices differ by at most one
    where they do not come out even. A block's samples are dealt to its devices as in ``half``, and
    every sample is used. The paper has K = B only; the rest is our reading.

    Sessions alternate two random disjoint halves of the devices. Where many devices share a block,
    both halves have most labels, and little changes from one session to the next.

    >>> y = np.repeat(np.arange(4), 6)
    >>> shards, groups = distinct(y, 4, 8, np.random.default_rng(0))
    >>> [np.unique(y[shard]).tolist() for shard in shards]
    [[0], [0], [1], [1], [2], [2], [3], [3]]
    """
    _check(y, classes, devices)
    groups = _halves(rng.permutation(devices).tolist())
    rows = rows_of(y, range(classes))
    blocks = min(classes // 10 if classes >= 100 else classes, devices)
    shards: list[Indices] = []
    for block in range(blocks):
        pools = [rows[label] for label in range(classes) if label * blocks // classes == block]
        here = sum(device * blocks // devices == block for device in range(devices))
        shards += _dealt(pools, here, rng)
    return Allocation(shards, groups)


DISTRIBUTIONS: dict[str, Distribution] = {
    "two_shard": two_shard,
    "half": half,
    "partial_overlap": partial_overlap,
    "distinct": distinct,
}
"""Every distribution by the name that a configuration gives it as its ``partition.kind``."""


def _check(y: ClassNumbers, classes: int, devices: int) -> None:
    if classes < 2:
        raise EbbflowError(
            f"The data set has {classes} classes, too few to tell devices apart by their labels; "
            "choose a data set with at least 2 classes."
        )
    if devices < 2:
        raise EbbflowError(
            f"`partition.devices` is {devices}, and two halves of the devices are to take turns; "
            "set it to at least 2."
        )
    if devices > len(y):
        raise EbbflowError(
            f"{devices} devices cannot have one sample each of only {len(y)} training samples; "
            "lower `partition.devices` or use more data."
        )


def _halves(devices: Sequence[int]) -> Groups:
    middle = len(devices) // 2
    return tuple(sorted(devices[:middle])), tuple(sorted(devices[middle:]))


def _dealt(pools: Sequence[Indices], hands: int, rng: np.random.Generator) -> list[Indices]:
    """Deal every pool's shuffled samples in turn, to the smallest of the hands first."""
    if hands == 0:
        return []
    total = sum(map(len, pools))
    if total < hands:
        raise EbbflowError(
            f"{hands} shares cannot be made of the {total} training samples with the same "
            "labels; lower `partition.devices` or use more data."
        )
    held: list[list[Indices]] = [[] for _ in range(hands)]
    sizes = np.zeros(hands, dtype=np.int64)
    for pool in pools:
        shuffled = rng.permutation(pool)
        # Random ties: in a fixed order, labels with fewer samples than hands could fall in step
        # with them, and a hand would get every second label only.
        for place, hand in enumerate(np.lexsort((rng.permutation(hands), sizes)).tolist()):
            held[hand].append(shuffled[place::hands])
            sizes[hand] += len(held[hand][-1])
    return [np.sort(np.concatenate(pieces)) for pieces in held]


def _shard_numbers(
    sizes: Sequence[int], each: int, devices: int, rng: np.random.Generator
) -> Indices:
    """Return into how many shards each label or batch is cut: equally many, the largest one more.

    None exceeds the number of devices, so that every device can have ``each`` different ones.
    """
    fewest, more = divmod(each * devices, len(sizes))
    cuts = np.full(len(sizes), fewest, dtype=np.int64)
    cuts[np.lexsort((rng.permutation(len(sizes)), -np.asarray(sizes)))[:more]] += 1
    return cuts


def _draws(cuts: Indices, each: int, devices: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw ``each`` different labels for every device, until no shard is left.

    With n devices to go there are each * n shards left, at most n of a label. A label with exactly
    n has to be taken now; at most ``each`` can have so many, and the others suffice for the rest.
    """
    left = cuts.copy()
    drawn = []
    for waiting in range(devices, 0, -1):
        due = np.flatnonzero(left == waiting)
        free = np.where(left == waiting, 0, left)
        wanted = each - len(due)
        if wanted:
            others = rng.choice(len(left), wanted, replace=False, p=free / free.sum())
            due = np.concatenate([due, others])
        left[due] -= 1
        drawn.append(due.tolist())
    return drawn
