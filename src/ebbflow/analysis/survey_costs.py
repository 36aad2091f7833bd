"""What a survey costs on the air.

At a session's start the server sends a few models to the devices that it asks. Then questions and
answers go to and fro, a few numbers at a time (`ebbflow.core.survey`). Every question waits for the
slowest answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ebbflow.analysis.channel import Array
from ebbflow.analysis.cost import (
    Errand,
    ModelSize,
    RoundCost,
    draw_fleet,
    round_cost,
    spent,
    together,
    total,
    transfer_times,
)
from ebbflow.config.schema import Wireless
from ebbflow.core.counters import Cost
from ebbflow.core.rng import Name

ROUND = "survey"
"""The name by which a survey draws its devices' channel, in the place of a round's number."""


class Survey(NamedTuple):
    """What the devices of a survey receive, send and compute, in bytes and samples.

    ``models`` are the bytes of the models that each device is sent, ``asking`` those of all
    questions together, ``answering`` those of one device's answers. ``passes`` are the samples that
    one device passes forward, once for every pass.
    """

    devices: tuple[int, ...]
    models: tuple[float, ...]
    questions: int = 0
    asking: float = 0.0
    answering: float = 0.0
    passes: float = 0.0


# --- costs ---------------------------------------------------------------------------------------


def survey_cost(
    wireless: Wireless,
    model: ModelSize,
    survey: Survey,
    seed: int,
    session: int = 1,
    t: Name = ROUND,
) -> RoundCost:
    """Return what a survey costs: its models go down, then its questions are answered in turn.

    Bytes are already those of compressed models, so ``wireless.compression`` does not apply; nor
    does ``wireless.passes``, for passes are counted one by one.
    """
    lacking = [place for place, size in enumerate(survey.models) if size > 0]
    costs = [RoundCost()]
    if lacking:
        fleet = draw_fleet(wireless, [survey.devices[place] for place in lacking], seed, session, t)
        bits = 8 * np.array([survey.models[place] for place in lacking], dtype=np.float64)
        costs.append(round_cost(wireless, fleet, Errand(bits, 0.0, 0.0)))
    if survey.questions:
        costs.append(_questions_cost(wireless, model, survey, (seed, session, t)))
    return total(costs)


def _questions_cost(
    wireless: Wireless, model: ModelSize, survey: Survey, names: tuple[int, int, Name]
) -> RoundCost:
    """Return the cost of all questions, each of mean size; every message takes whole slots.

    They are too short for shares that finish together to be worth while: shares are equal.
    """
    if wireless.allocation == "finish_together":
        wireless = wireless.model_copy(update={"allocation": "equal"})
    fleet = draw_fleet(wireless, survey.devices, *names)
    count = survey.questions
    task = Errand(
        8 * survey.asking / count,
        8 * survey.answering / count,
        model.parameters * model.complexity * survey.passes / count,
    )
    # An empty message takes a slot as well.
    sent = task._replace(down=max(1.0, 8 * survey.asking / count), up=max(1.0, task.up))
    down, up = (
        whole_slots(seconds, wireless.slot) for seconds in transfer_times(wireless, fleet, sent)
    )
    return together(wireless, task, spent(fleet, task, down, up)).times(count)


def whole_slots(seconds: Array, slot: float) -> Array:
    """Return times rounded up to whole slots.

    >>> whole_slots(np.array([0.1, 1.0, 2.5]), 0.5).tolist()
    [0.5, 1.0, 2.5]
    """
    return np.asarray(np.ceil(seconds / slot - 1e-9) * slot)


def survey_share(
    wireless: Wireless,
    model: ModelSize,
    survey: Survey,
    task: Errand,
    devices: int,
    *,
    seed: int = 100,
    draws: int = 20,
) -> float:
    """Return the air time of a survey over that of a round of training, both without computing.

    Both are means over draws; ``task`` is that of a round with so many ``devices``, the survey asks
    some of them.
    """
    quiet = survey._replace(passes=0.0)
    asking, training = [], []
    for t in range(1, draws + 1):
        fleet = draw_fleet(wireless, range(devices), seed, 1, t)
        training.append(round_cost(wireless, fleet, task._replace(operations=0.0)).latency)
        asking.append(survey_cost(wireless, model, quiet, seed, 1, t).latency)
    return math.fsum(asking) / math.fsum(training)


# --- records -------------------------------------------------------------------------------------


def recorded_survey(
    wireless: Wireless,
    start: Mapping[str, Any],
    cost: Cost,
    *,
    sizes: Sequence[int] = (),
    scale: float = 1.0,
    holders: Callable[[int], Collection[int]] = lambda session: (),
) -> Survey:
    """Return the survey of a session from its records.

    Args:
        wireless: Whether returning devices hold models, and how models are sent.
        start: The session's event "start".
        cost: What was counted.
        sizes: The bytes of each model, in the order of the event's mixture. If they are not known,
            all bytes down count as the models', in equal parts.
        scale: By how much models are larger than those of the run.
        holders: Returns the devices that hold a past session's final model.
    """
    devices = tuple(start["asked"])
    names = list(start.get("mixture", {})) or [""]
    if len(sizes) != len(names) or sum(sizes) > cost.bytes_down:
        each = [cost.bytes_down / len(names)] * len(names)
    else:
        each = [float(size) for size in sizes]
    held = [_held_by(name, start["session"], holders) for name in names]
    return Survey(
        devices,
        _lacking(wireless, devices, [scale * size for size in each], held),
        cost.questions,
        cost.bytes_down - math.fsum(each),
        cost.bytes_up / len(devices),
        cost.passes / len(devices),
    )


def _held_by(name: str, session: int, holders: Callable[[int], Collection[int]]) -> Collection[int]:
    """Return the devices that hold a model already: a final model, or the last one carried over."""
    if name == "carried":
        return holders(session - 1)
    final = re.fullmatch(r"final (\d+)", name)
    return holders(int(final[1])) if final else ()


def _lacking(
    wireless: Wireless,
    devices: Sequence[int],
    sizes: Sequence[float],
    held: Sequence[Collection[int]],
) -> tuple[float, ...]:
    """Return the bytes of the models that each device is sent."""
    missing = [
        [wireless.returning == "send" or device not in those for those in held]
        for device in devices
    ]
    if wireless.downlink == "multicast":  # what one device lacks is sent to all
        missing = [[any(column) for column in zip(*missing, strict=True)]] * len(devices)
    return tuple(
        math.fsum(size for size, lacks in zip(sizes, row, strict=True) if lacks) for row in missing
    )
