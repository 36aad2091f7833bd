"""The four label distributions of the paper's appendix: Two-Shard, Half, Partial-Overlap, Distinct.

Each divides the training set among K devices in total (here ``partition.devices`` is the total), no
sample to two of them, and splits the devices into two halves that take turns: the first half is
present in odd sessions, the second in even ones. If the number of devices is odd, the second half
is the larger. ``alpha`` and ``overlap`` do not apply.

The paper describes them for 10 and 100 labels and 10 or 20 devices, and does not say which devices
form a session. Every docstring states the rule for L labels and K devices, and our choices.
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
    """Who holds what, and who takes turns: ``shards[k]`` are the ascending rows of device k."""

    shards: list[Indices]
    groups: Groups


class Distribution(Protocol):
    """A rule that divides the training set among devices, and the devices into two groups."""

    def __call__(
        self, y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator
    ) -> Allocation:
        """Return the rows of ``y`` that each device holds; labels are 0 .. ``classes``-1."""
        ...


def two_shard(y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator) -> Allocation:
    """Cut every label into equal shards and give each device two, of different labels.

    L < 100: 2 K shards in total, so 2 K / L of each label: the paper's two for 10 labels and 10
    devices. Device after device draws 2 different labels, with probability proportional to the
    number of shards left of each; a label with as many shards left as there are devices left is
    always taken, since its shards could not all be given out otherwise.

    100 <= L < 200: the same with 10 random batches of labels instead of single labels. A shard has
    an equal part of every label in its batch, so with 100 labels a device holds 20.

    L >= 200: single labels again, and each device draws floor(L / 10) different ones: 200 labels
    and 20 devices give 400 shards, 2 per label and 20 per device.

    L = 4 is the authors' exception, the shards of McMahan et al.: 2 K shards, 2 random ones for
    each device, possibly of the same label.

    If not all labels (or batches) can have equally many shards, those with the most samples are cut
    into one more; ties are broken at random. The shards of a label differ by at most one sample.
    Every sample is used, unless there are fewer shards than labels (2 K < L for single labels below
    100): then the labels with the fewest samples stay unused. The paper has 10 or 100 labels and a
    rule for 10 devices only; other K, other L and the remainders are our interpretation, and the
    rules for 4 and 200 labels are those of the authors' code.

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
    Within a half, one label after another is shuffled and dealt to the devices in turn, starting
    with those that hold the fewest samples so far (ties are broken at random). So the devices'
    counts differ by at most one, per label and in total, and every sample is used. (The authors
    drop the remainders.) A device lacks a label of its half only if the label has fewer samples
    than there are devices.

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
    """Give each half of the devices 60 % of the labels, so that 20 % are in both.

    ``overlapping_labels`` says which. Both percentages are of all L labels. A shared label's
    samples are shuffled and cut in two, one part for each half of the devices (the second part gets
    an odd sample), so that no sample is in both. Within a half, samples are dealt as in ``half``:
    the devices' counts differ by at most one, per label and in total. Every sample is used, except
    those of label 3 if there are 4 labels.

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

    U = 2 L / 5 labels, rounded, belong to the first half alone, as many to the second, and the
    L - 2 U between them are shared, so that all are used. This leaves none of 4 labels to share,
    for which the authors make an exception: label 0 belongs to the first half, 1 to the second, 2
    is shared, and 3 is unused.

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
    unshared = (4 * classes + 5) // 10
    return tuple(range(classes - unshared)), tuple(range(unshared, classes))


def distinct(y: ClassNumbers, classes: int, devices: int, rng: np.random.Generator) -> Allocation:
    """Give every device its own block of labels.

    Below 100 labels there are L blocks of one label, otherwise floor(L / 10) blocks: 10 blocks of
    10 for 100 labels, 20 of 10 for 200. With K = B blocks, device i holds block i. With more
    devices, device i holds an equal part of block floor(i B / K), so that neighbours share a block;
    with fewer, there are only K blocks, of L / K labels each. Blocks are consecutive labels (label
    l is in block floor(l B / L)), and their sizes and numbers of devices differ by at most one. A
    block's samples are dealt to its devices as in ``half``, and every sample is used. The paper has
    K = B only; the rest is our interpretation.

    Sessions alternate two random disjoint halves of the devices. If many devices share a block,
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
        holders = sum(device * blocks // devices == block for device in range(devices))
        shards += _dealt(pools, holders, rng)
    return Allocation(shards, groups)


DISTRIBUTIONS: dict[str, Distribution] = {
    "two_shard": two_shard,
    "half": half,
    "partial_overlap": partial_overlap,
    "distinct": distinct,
}
"""Every distribution by its name in ``partition.kind``."""


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
    """Shuffle every pool and deal it to the hands in turn, smallest hand first."""
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
        # Ties are broken at random: in a fixed order, if labels have fewer samples than there are
        # hands, a hand might get every second label only.
        for place, hand in enumerate(np.lexsort((rng.permutation(hands), sizes)).tolist()):
            held[hand].append(shuffled[place::hands])
            sizes[hand] += len(held[hand][-1])
    return [np.sort(np.concatenate(pieces)) for pieces in held]


def _shard_numbers(
    sizes: Sequence[int], each: int, devices: int, rng: np.random.Generator
) -> Indices:
    """Return into how many shards each label or batch is cut; any left over go to the largest.

    None exceeds the number of devices, so that every device can have ``each`` different ones.
    """
    fewest, more = divmod(each * devices, len(sizes))
    cuts = np.full(len(sizes), fewest, dtype=np.int64)
    cuts[np.lexsort((rng.permutation(len(sizes)), -np.asarray(sizes)))[:more]] += 1
    return cuts


def _draws(cuts: Indices, each: int, devices: int, rng: np.random.Generator) -> list[list[int]]:
    """Draw ``each`` different labels for every device, until no shard is left.

    With n devices to go, each * n shards are left, at most n of any label. A label with exactly n
    must be drawn now; at most ``each`` labels have that many, and the others suffice for the rest.
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
