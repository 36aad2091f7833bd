"""From what a user wrote to what is run: defaults by data set, and contradicting keys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.defaults import OWN_DATA, SETTINGS, DatasetDefaults
from ebbflow.config.resolved import AUTO, NATURAL, Config
from ebbflow.config.schedule_checks import schedule_contradictions
from ebbflow.config.schema import RateSettings, Settings, Wireless
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import LABELLED, judge_of
from ebbflow.data.names import ALIASES
from ebbflow.starts import AUTO as AUTO_START
from ebbflow.starts import RECOMMENDED

POOLED = 600  # samples that a device draws from a pool: MNIST's 60,000 over 100 devices
MOST_DEVICES = 1_000_000
"""Of a random schedule, present on average; as for ``partition.devices``."""
MOST_CHANGES = 10**9
"""Joins and leaves of a random schedule, roughly: more is most likely a slip in a unit of time."""
LABEL_KINDS = frozenset({"two_shard", "half", "partial_overlap", "distinct"})
"""Partitions by label, for which ``partition.devices`` is the total number of devices."""


def resolve(settings: Settings) -> Config:
    """Fill in the data set's defaults, and check that keys do not contradict each other."""
    judge_of(settings.task, settings.metrics)  # raises if a measure is unknown
    named = [RECOMMENDED if name == AUTO_START else name for name in settings.methods]
    settings = settings.model_copy(update={"methods": named})
    dataset = ALIASES.get(settings.dataset, settings.dataset)
    usual = SETTINGS.get(dataset, OWN_DATA)
    rounds = settings.rounds or usual.rounds
    batch = settings.local.batch or usual.batch
    values = settings.model_dump()
    values["dataset"] = dataset
    values["rounds"] = rounds
    values["parameters"] = parameters = _parameters(settings, usual)
    values["model"]["kind"] = settings.model.kind or usual.model
    values["partition"] |= _partition(settings, usual)
    if settings.schedule.kind == "trace" and "interval" not in settings.schedule.model_fields_set:
        values["schedule"]["interval"] = None  # whether 1.0 will do depends on the trace
    if usual is OWN_DATA and "evaluation" not in settings.model_fields_set:
        values["evaluation"] = AUTO
    values["local"]["batch"] = batch
    values["lr"]["algorithms"] = _rates(settings, usual, dataset)
    values["pilot"]["rounds"] = settings.pilot.rounds or rounds
    values["probe"]["steps"] = settings.probe.steps or settings.local.steps
    values["probe"]["batch"] = settings.probe.batch or batch
    measured_by = parameters.get("warm_start", {}).get("distance", "per_tensor")
    values["history"]["distance"] = settings.history.distance or measured_by
    config = Config.model_validate(values)
    for problem in _contradictions(settings, config):
        raise EbbflowError(problem)
    return config


def _parameters(settings: Settings, usual: DatasetDefaults) -> dict[str, dict[str, Any]]:
    """Return the data set's parameters of the methods that are run, with the user's on top."""
    by_dataset = {
        name: values for name, values in usual.parameters.items() if name in settings.methods
    }
    return {
        name: {**by_dataset.get(name, {}), **settings.parameters.get(name, {})}
        for name in {**settings.parameters, **by_dataset}
    }


def _partition(settings: Settings, usual: DatasetDefaults) -> dict[str, Any]:
    choice, schedule = settings.partition, settings.schedule.kind
    own = usual is OWN_DATA
    kind = choice.kind
    if own and "kind" not in choice.model_fields_set:
        kind = AUTO
    overlap = choice.overlap
    # The paper's two groups have different labels. A user's own data are not divided like that
    # unless the user says so: two classes would give every session just one of them.
    if overlap is None and schedule == "groups" and not own and settings.task in LABELLED:
        overlap = 0.0
    natural = kind in (AUTO, NATURAL) and choice.devices is None  # as many as there are owners
    return {
        "kind": kind,
        "overlap": None if kind in (*LABEL_KINDS, NATURAL) else overlap,
        "samples": choice.samples or (POOLED if kind == "pool" else None),
        "devices": None if schedule == "trace" or natural else choice.devices or usual.devices,
    }


def _rates(settings: Settings, usual: DatasetDefaults, dataset: str) -> dict[str, Any]:
    """Return the rates of every algorithm that is run or named."""
    lr = settings.lr
    rates = {}
    for name in dict.fromkeys([*lr.algorithms, *settings.algorithm]):
        known = ALGORITHMS[name].rates if name in ALGORITHMS else {}
        initial, floor = known.get(dataset, usual.rates)
        overrides = lr.algorithms.get(name, RateSettings())
        rates[name] = {
            "initial": _first(overrides.initial, lr.initial, initial),
            "floor": _first(overrides.floor, lr.floor, floor),
        }
    return rates


def _first(*values: float | None) -> float:
    """Return the first value that is not None; zero is a value."""
    return next(value for value in values if value is not None)


def _not_private(settings: Settings) -> Iterator[str]:
    """Yield settings for which nobody could say how much they reveal."""
    for key, value, usual in (
        ("aggregation.rule", settings.aggregation.rule, "mean"),
        ("guard.norm", settings.guard.norm, None),
        ("guard.not_finite", settings.guard.not_finite, "refuse"),
        ("participation.weighting", settings.participation.weighting, "uniform"),
    ):
        if value != usual:
            shown = f'"{value}"' if isinstance(value, str) else f"{value:g}"
            yield (
                f"{key} = {shown} cannot be combined with privacy.clip, for what it reveals of "
                f"single devices is not known: leave {key} out"
            )


def _contradictions(settings: Settings, config: Config) -> Iterator[str]:
    yield from _misplaced(settings)
    yield from schedule_contradictions(settings.schedule)
    if config.pilot.sessions > config.sessions:
        yield (
            f"pilot.sessions = {config.pilot.sessions} is more than sessions = "
            f"{config.sessions}: raise sessions or lower pilot.sessions"
        )
    if settings.history.keep != "all" and settings.history.limit is None:
        yield f'history.keep = "{settings.history.keep}" needs history.limit, the number to keep'
    if settings.history.keep == "all" and settings.history.limit is not None:
        yield (
            f'history.limit = {settings.history.limit} has no use with history.keep = "all": set '
            'history.keep to "last" or "diverse", or leave the limit out'
        )
    if settings.privacy.clip is not None:
        yield from _not_private(settings)
    lists: tuple[tuple[str, Sequence[int | str]], ...] = (
        ("seeds", settings.seeds),
        ("methods", settings.methods),
        ("algorithm", settings.algorithm),
        ("window", settings.window),
    )
    for name, values in lists:
        twice = [value for value in values if list(values).count(value) > 1]
        if twice:
            yield f"{name} = {values} names {twice[0]} more than once: name each one once"
    if settings.partition.samples is not None and settings.partition.kind != "pool":
        yield (
            f"partition.samples = {settings.partition.samples} has no use with partition.kind = "
            f'"{settings.partition.kind}", which divides all samples: leave it out, or use "pool"'
        )
    for name, steps in (
        ("local.steps", settings.local.steps),
        ("probe.steps", settings.probe.steps),
    ):
        if isinstance(steps, list) and steps[0] > steps[1]:
            yield f"{name} = {steps} must be a range [fewest, most]"
    yield from _impossible(config.wireless)
    if config.partition.kind == NATURAL:
        yield from _not_natural(settings)
    elif config.schedule.kind == "random":
        yield from _endless(config)


def _not_natural(settings: Settings) -> Iterator[str]:
    """Yield settings that devices with their own samples have no use for."""
    schedule, partition = settings.schedule, settings.partition
    unused = [("partition.overlap", partition.overlap)]
    if schedule.kind == "random":
        back = "return_probability" in schedule.model_fields_set
        unused += [
            ("schedule.arrivals", schedule.arrivals),
            ("schedule.return_probability", schedule.return_probability if back else None),
            ("partition.devices", partition.devices),
        ]
    for key, value in unused:
        if value is not None:
            yield (
                f'{key} = {value:g} has no use with partition.kind = "natural", where the devices '
                "are those of the data, and all of them come and go: leave it out"
            )


def _endless(config: Config) -> Iterator[str]:
    """Yield what makes a random schedule longer than anybody could wait for."""
    # Few configurations have a random schedule, and these need numpy.
    from ebbflow.config.schedules import random_times  # noqa: PLC0415
    from ebbflow.data.traces.trace import expected_length  # noqa: PLC0415

    choice, devices = config.schedule, config.partition.device_count
    cut, _, stay, away = random_times(choice)
    back = choice.return_probability
    present = float(devices)
    if choice.arrivals is not None:
        # A device stays 1 / (1 - back) times on average, but no more often than there is time for.
        present = max(present, choice.arrivals * stay / max(1e-3, 1 - back))
    if present > MOST_DEVICES:
        yield (
            f"schedule.arrivals = {choice.arrivals:g} and schedule.stay = {stay:g} keep "
            f"{present:.3g} devices present, more than {MOST_DEVICES:,}: lower one of them"
        )
    if choice.min_devices > 10 * present + 100:  # less likely than e^-100 at any one time
        yield (
            f"schedule.min_devices = {choice.min_devices} devices are never present together where "
            f"{present:.3g} are on average: lower it, or raise partition.devices or "
            "schedule.arrivals"
        )
    length = expected_length(cut, stay, back, away)
    changes = 2 * present * (1 + config.sessions * length / stay)
    if choice.arrivals is None and math.isinf(devices / stay * back * away):
        changes = math.inf  # so many devices are away at first
    if changes > MOST_CHANGES:
        yield (
            f"the random schedule needs {changes:.3g} joins and leaves, more than "
            f"{MOST_CHANGES:,}: raise schedule.stay (now {stay:g}), or lower schedule.{cut.rule} "
            f"(now {getattr(cut, cut.rule):g}) or schedule.away (now {away:g})"
        )


def _impossible(wireless: Wireless) -> Iterator[str]:
    """Yield what is impossible about a cell."""
    if wireless.min_distance >= wireless.radius:
        yield (
            f"wireless.min_distance = {wireless.min_distance:g} leaves no room for devices in a "
            f"cell of wireless.radius = {wireless.radius:g}: lower it"
        )
    for name, height in (
        ("height_server", wireless.height_server),
        ("height_device", wireless.height_device),
    ):
        if height <= wireless.height_environment:
            yield (
                f"wireless.{name} = {height:g} is not above wireless.height_environment = "
                f"{wireless.height_environment:g}: raise the one or lower the other"
            )


def _misplaced(settings: Settings) -> Iterator[str]:
    """Yield settings that the kind of schedule does not use, or needs and lacks."""
    if settings.schedule.kind == "trace":
        if settings.schedule.file is None:
            yield 'schedule.kind = "trace" needs schedule.file: name a CSV or JSON Lines file'
        if settings.partition.devices is not None:
            yield (
                f"partition.devices = {settings.partition.devices} has no use with a trace, which "
                "says itself which devices are present: leave it out"
            )
    elif settings.schedule.file is not None:
        yield (
            f'schedule.file = "{settings.schedule.file}" is only read with schedule.kind = '
            '"trace"; set that or leave the file out'
        )
