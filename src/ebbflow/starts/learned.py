"""Learn the start from the devices that are here: the best mixture of models we already have.

The carried-over model, past sessions' final and starting models, the pilot and the initial model
span an affine space that holds every other start. The devices present say which of its points is
best, by sums of losses and derivatives in the mixing weights (`ebbflow.core.survey`).
docs/learned-start.md explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice

import torch

from ebbflow.core import vector
from ebbflow.core.ranges import AtLeastTwo, NotNegative, Share, Whole
from ebbflow.core.start import Situation, Start, StartingPoint
from ebbflow.core.survey import Compression, SurveyPlan
from ebbflow.core.types import ModelState, PastSession
from ebbflow.core.vector import mix
from ebbflow.starts.attendance import PastAttendance
from ebbflow.starts.checking import from_trusted_groups
from ebbflow.starts.mixing import Search, best_mixture
from ebbflow.starts.strangers import PartOfBasis, without_strangers

NOISY_MARGIN = 2.0
"""Standard errors by which another start must be better than going on where answers have noise."""

Read = Callable[[], ModelState]
"""Reads a model, perhaps from disk."""

LEFT_OUT = (
    "answers of {} of the asked groups of devices contradict each other, as honest ones do not: "
    "the start was learnt without these groups"
)
STRANGERS = (
    "{} cannot have been trained here, for it has next to nothing in common with the initial, the "
    "pilot and the carried-over model: the start was learnt without it"
)


def learned(
    models: AtLeastTwo = 6,
    devices: Whole = 20,
    samples: Whole = 32,
    groups: Whole = 5,
    balance: Share = 0.5,
    compression: Compression = "bf16",
    margin: NotNegative = 0.0,
    negative: bool = True,
) -> Start:
    """Return the start w^(s,1) = sum_k alpha_k b_k, with weights that the devices have chosen.

    Args:
        models: The most models b_k that are sent.
        devices: The most devices that are asked.
        samples: Samples of each device in each of two halves, to learn from and to judge by.
        groups: Groups of devices whose sums are kept apart, to see how well what some devices have
            chosen suits the others.
        balance: How far labels are made to count alike, from 0 (as they come) to 1; above 0 it
            needs the sums of all devices' label counts.
        compression: How the models are sent for the search; the server mixes in full precision.
        margin: Standard errors within which the simplest start is preferred to the best one.
        negative: Whether weights may be negative: "go on, and add what that session learnt".
    """
    plan = SurveyPlan(devices, samples, groups, balance, compression)
    attendance = PastAttendance()

    def choose(situation: Situation) -> StartingPoint:
        basis = basis_models(situation, models, attendance)
        names = list(basis)
        if len(basis) == 1:
            return StartingPoint(situation.carried, kept=situation.carried)
        panel = situation.survey(list(basis.values()), plan)
        fresh = next((name for name in names if _equal(basis[name], situation.initial)), "")
        own = situation.carried, situation.initial, situation.pilot
        place = names.index(fresh) if fresh else None
        places = without_strangers(panel, list(basis.values()), own, place)
        part = PartOfBasis(panel, places, len(basis))
        known = [names[k] for k in places]
        finals = [k for k, name in enumerate(known) if name.startswith(("carried", "final"))]
        search = partial(
            best_mixture,
            size=len(known),
            finals=finals,
            search=Search(max(margin, NOISY_MARGIN) if panel.noisy else margin, negative),
            fresh=known.index(fresh) if fresh else None,
        )
        if panel.noisy:  # all answers contradict each other a little
            found, left_out = search(part), 0
        else:
            found, left_out = from_trusted_groups(part, search)
        weights = part.whole(found).tolist()
        model = mix(basis.values(), weights)
        warnings = [STRANGERS.format(name) for name in names if name not in known]
        if left_out:
            warnings.append(LEFT_OUT.format(left_out))
        return StartingPoint(
            model,
            mixture=dict(zip(names, weights, strict=True)),
            kept=model,
            warnings=tuple(warnings),
        )

    return Start(choose, surveys=True)


def basis_models(
    situation: Situation, most: int, attendance: PastAttendance | None = None
) -> dict[str, ModelState]:
    """Return the models to mix by name, the most promising first; none occurs twice.

    Carried plus (final - start) of a past session is "go on, and add what that session learnt". So
    past sessions come in pairs, those first whose devices have most in common with this session's.
    The last session's start shows in which direction it has just moved. ``attendance`` remembers
    from session to session who was there.
    """
    nearest = (attendance or PastAttendance()).nearest(situation.past, situation.devices)
    pairs = (model for past in nearest for model in _pair_of(past))
    ordered: Iterator[tuple[str, Read]] = chain(
        [("carried", lambda: situation.carried)],
        islice(pairs, 2),
        (start for past in situation.past[-1:] for start in _start_of(past)),
        [("initial", lambda: situation.initial)],
        islice(pairs, 1),
        [("pilot", lambda: situation.pilot)],
        pairs,
    )
    basis: dict[str, ModelState] = {}
    for name, read in ordered:
        if len(basis) == most:
            break
        if name not in basis:
            model = read()
            finite = vector.all_finite(model.theta)  # or no mixture would be a number
            if finite and not any(_equal(model, other) for other in basis.values()):
                basis[name] = model
    return basis


def _pair_of(past: PastSession) -> list[tuple[str, Read]]:
    """Return how to read a session's final model, and the one that it began with."""
    return [(f"final {past.number}", partial(getattr, past, "model")), *_start_of(past)]


def _start_of(past: PastSession) -> list[tuple[str, Read]]:
    """Return how to read the model that a session began with, if it was kept."""
    return [(f"start {past.number}", partial(getattr, past, "start"))] if past.started else []


def _equal(one: ModelState, other: ModelState) -> bool:
    return torch.equal(one.theta, other.theta) and torch.equal(one.buffers, other.buffers)
