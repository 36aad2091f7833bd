"""The natural partition: samples that say whose they are, and who of the owners is here when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.names import listed, printable
from ebbflow.core.types import Dataset, Examples, Indices
from ebbflow.data.churn import Churn
from ebbflow.data.schedule import Presence, Roster

SHOWN = 5
"""Names that a sentence lists."""


def owned_rows(examples: Examples) -> dict[int, Indices]:
    """Return the rows of each owner's samples, by the owner's number.

    >>> import torch
    >>> two = Examples(torch.zeros(3, 1), torch.zeros(3), device=torch.tensor([4, 1, 4]))
    >>> {owner: rows.tolist() for owner, rows in owned_rows(two).items()}
    {1: [1], 4: [0, 2]}
    """
    if examples.device is None:
        return {}
    numbers = examples.device.numpy()
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    owners, starts = np.unique(numbers[order], return_index=True)
    return dict(zip(owners.tolist(), np.split(order, starts[1:]), strict=True))


def natural_shards(dataset: Dataset) -> dict[int, Indices]:
    """Return every device's training samples."""
    if dataset.train.device is None:
        raise EbbflowError(
            f'partition.kind = "natural" needs samples that say whose they are, and those of '
            f"{dataset.name} do not: name the column in data.device, add the array device_train to "
            'an .npz file, or set partition.kind to "dirichlet"'
        )
    return owned_rows(dataset.train)


def taking_turns(owners: Sequence[int], sessions: int, present: int | None) -> list[Presence]:
    """Return sessions in which the first owners and those that follow them take turns.

    ``present`` of them are here at a time, by default half of all.

    >>> [presence.devices for presence in taking_turns([0, 3, 4, 7], 3, None)]
    [(0, 3), (4, 7), (0, 3)]
    """
    half = len(owners) // 2 if present is None else present
    if half < 1 or 2 * half > len(owners):
        raise EbbflowError(
            f"{len(owners)} devices have training samples, and two groups of "
            f"{max(half, 1)} are to take turns: lower partition.devices, or give a trace of who is "
            'here when (schedule.kind = "trace")'
        )
    groups = Presence(tuple(owners[:half])), Presence(tuple(owners[half : 2 * half]))
    return [groups[session % 2] for session in range(sessions)]


def returning_for_ever(owners: int, stay: float, away: float) -> Churn:
    """Return the process in which all owners come and go, and nobody else ever does.

    At any time the share stay / (stay + away) of them is here.

    >>> returning_for_ever(30, stay=2.0, away=4.0)[-2:]
    (10, 20)
    """
    present = max(1, round(owners * stay / (stay + away)))
    return Churn(0.0, stay, 1.0, away, initial=present, initially_away=owners - present)


def renumbered(roster: Roster, numbers: Mapping[int, int]) -> Sequence[Presence]:
    """Return a roster's sessions with other numbers for its devices, made when asked for."""

    def presence(place: int) -> Presence:
        devices, rounds = roster.sessions[place]
        return Presence(tuple(sorted(numbers[device] for device in devices)), rounds)

    return LazySequence(len(roster.sessions), presence)


def numbers_by_name(
    names: Sequence[str], dataset: Dataset, owners: Sequence[int]
) -> dict[int, int]:
    """Return the owner's number for each name of a trace, by its place in the list of names."""
    known = {dataset.devices[owner]: owner for owner in owners}
    strangers = [name for name in names if name not in known]
    if strangers:
        raise EbbflowError(
            f"the trace names {len(strangers)} devices without training samples in {dataset.name} "
            f"({_listed(strangers)}), whose devices are called like "
            f"{_listed([dataset.devices[owners[0]]])}: name them alike, or take them out of the "
            "trace"
        )
    return {place: known[name] for place, name in enumerate(names)}


def refuse_untested(dataset: Dataset, sessions: Sequence[Presence]) -> None:
    """Raise an error if the devices of a session have no test samples of their own."""
    if dataset.test.device is None:
        return
    tested = set(dataset.test.device.tolist())
    for number, presence in enumerate(sessions, start=1):
        if tested.isdisjoint(presence.devices):
            raise EbbflowError(
                f"the {len(presence.devices)} devices of session {number} have no test samples: "
                'give them some (data.test_split), or set evaluation to "labels" or "all"'
            )


def owner_warnings(
    dataset: Dataset, owners: Sequence[int], sessions: Sequence[Presence]
) -> Iterator[str]:
    """Yield a sentence on owners that no session has, and one on those without test samples."""
    seen = {device for presence in sessions for device in presence.devices}
    missing = [dataset.devices[owner] for owner in owners if owner not in seen]
    if missing:
        yield (
            f"{len(missing)} of the {len(owners)} devices of {dataset.name} "
            f"{'is' if len(missing) == 1 else 'are'} in no session ({_listed(missing)}): their "
            "samples are not used"
        )
    if dataset.test.device is None:
        return
    tested = set(dataset.test.device.tolist())
    untested = [dataset.devices[owner] for owner in owners if owner not in tested]
    if untested:
        yield (
            f"{len(untested)} of the {len(owners)} devices of {dataset.name} "
            f"{'has' if len(untested) == 1 else 'have'} no test samples ({_listed(untested)}): how "
            "well the model suits them is not known"
        )


def _listed(names: Sequence[str]) -> str:
    return listed([repr(printable(name)) for name in names], SHOWN)
