"""From what a user wrote to what is run: defaults by data set, and contradicting keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.defaults import OWN_DATA, SETTINGS, DatasetDefaults
from ebbflow.config.resolved import Config
from ebbflow.config.schema import RateSettings, Settings, Wireless
from ebbflow.core.errors import EbbflowError
from ebbflow.data.names import ALIASES
from ebbflow.starts import AUTO, RECOMMENDED

POOLED = 600  # samples that a device draws from a pool: MNIST's 60,000 over 100 devices
LABEL_KINDS = frozenset({"two_shard", "half", "partial_overlap", "distinct"})
"""Partitions by label, for which ``partition.devices`` is the total number of devices."""


def resolve(settings: Settings) -> Config:
    """Fill in the data set's defaults, and check that keys do not contradict each other."""
    named = [RECOMMENDED if name == AUTO else name for name in settings.methods]
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
    overlap = choice.overlap
    if overlap is None and schedule == "groups":
        overlap = 0.0
    return {
        "overlap": None if choice.kind in LABEL_KINDS else overlap,
        "samples": choice.samples or (POOLED if choice.kind == "pool" else None),
        "devices": None if schedule == "trace" else choice.devices or usual.devices,
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


def _contradictions(settings: Settings, config: Config) -> Iterator[str]:
    yield from _misplaced(settings)
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
