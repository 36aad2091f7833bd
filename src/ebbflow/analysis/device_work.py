"""Who took part in a round, and how many samples each device trained on, drawn again by name.

A run records which devices are present in a session and how many samples each of them holds. Its
other draws are functions of names, so the work of every device in every round follows from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ebbflow.analysis.accounting import local_work
from ebbflow.config.resolved import Config
from ebbflow.config.schema import StepCount
from ebbflow.core.rng import generator


class SessionDevices(NamedTuple):
    """The devices of a session under one seed.

    ``samples`` are the D_k, or None if the run did not record them; ``smallest_batch`` is the size
    below which a mini-batch is left out.
    """

    seed: int
    session: int
    devices: tuple[int, ...]
    samples: tuple[int, ...] | None = None
    smallest_batch: int = 1


class RoundWork(NamedTuple):
    """The participants of a round, and the samples that each trained on, if they are known."""

    devices: tuple[int, ...]
    samples: tuple[int, ...] | None


def recorded_devices(start: Mapping[str, Any]) -> SessionDevices:
    """Read the devices of a session from its event "start".

    >>> event = {"seed": 1, "session": 2, "devices": [4, 7], "samples": [30, 50]}
    >>> recorded_devices(event).samples
    (30, 50)
    """
    samples = start.get("samples")
    return SessionDevices(
        start["seed"],
        start["session"],
        tuple(start["devices"]),
        None if samples is None else tuple(samples),
        start.get("smallest_batch", 1),
    )


def training_work(config: Config, present: SessionDevices, t: int, count: int) -> RoundWork:
    """Return the work of round t of a session, in which ``count`` devices took part."""
    share = None if count == len(present.devices) else count
    local = config.local
    drawn = _participants(config, present, "participants", t, share)
    return _work(config, present, "local", t, drawn, local.steps, local.batch)


def probe_work(config: Config, present: SessionDevices, v: int) -> RoundWork:
    """Return the work of the auxiliary round v of a session."""
    probe = config.probe
    drawn = _participants(config, present, "probe-participants", 0, probe.share)
    return _work(config, present, "probe", v, drawn, probe.steps, probe.batch)


def _participants(
    config: Config, present: SessionDevices, purpose: str, t: int, share: float | int | None
) -> tuple[int, ...]:
    """Draw the participants again.

    Without the D_k they are drawn uniformly, also where larger devices were drawn more often.
    """
    if share is None:
        return present.devices
    from ebbflow.data.schedule import participants  # noqa: PLC0415 - needs torch

    draw = generator(present.seed, purpose, present.session, t)
    if present.samples is None:
        return participants(draw, present.devices, [1] * len(present.devices), share, "uniform")
    weighting = config.participation.weighting
    return participants(draw, present.devices, present.samples, share, weighting)


def _work(
    config: Config,
    present: SessionDevices,
    purpose: str,
    t: int,
    devices: tuple[int, ...],
    steps: StepCount,
    batch: int,
) -> RoundWork:
    if present.samples is None:
        return RoundWork(devices, None)
    held = dict(zip(present.devices, present.samples, strict=True))
    return RoundWork(
        devices,
        tuple(
            local_work(
                held[device],
                _step_count(steps, present.seed, purpose, present.session, t, device),
                batch,
                config.local.rule,
                present.smallest_batch,
            ).samples
            for device in devices
        ),
    )


def _step_count(steps: StepCount, *names: int | str) -> int:
    if isinstance(steps, int):
        return steps
    from ebbflow.data.batches import draw_steps  # noqa: PLC0415 - needs torch

    return draw_steps(generator(*names), steps)
