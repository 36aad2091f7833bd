"""The compared methods, from their names and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ebbflow.aggregation import AGGREGATIONS
from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import Config
from ebbflow.core import sketch
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.objectives import for_task
from ebbflow.core.rates import Rates, polynomial_rates, read_rates
from ebbflow.core.registry import Registered
from ebbflow.core.start import Start
from ebbflow.models import MODELS
from ebbflow.simulation.world import World
from ebbflow.starts import STARTS


@dataclass(frozen=True)
class Method:
    """A compared method: a way to start sessions, on an FL algorithm, at its rates.

    ``group`` is the algorithm that it is compared under, ``algorithm`` the one that it trains with:
    usually the same, but a start may choose its own. ``rates(T)`` are eta^(s,t) for t = 1..T of a
    session of T rounds.
    """

    name: str
    group: str
    start: Start
    algorithm: Algorithm
    rates: Rates


def methods_of(world: World) -> list[Method]:
    """Return every combination of algorithm and way to start, at the algorithm's rates."""
    config = world.config
    # One record for each name: methods on the same record may share their rounds.
    algorithm = cache(partial(_algorithm, world))
    methods = []
    for group in config.algorithm:
        rates = _rates(world, group)
        for name in config.methods:
            start = STARTS[name].build(config.parameters.get(name, {}))
            if start.sketch_distance is not None:
                sketch.plan(world.model.layout, start.sketch_distance)  # raise now if impossible
            trained = algorithm(start.algorithm or group)
            _check_weighting(config, trained)
            methods.append(Method(name, group, start, trained, rates))
    return methods


def _check_weighting(config: Config, algorithm: Algorithm) -> None:
    """Raise an error if devices are drawn by size and the server's state is a mean of theirs.

    That mean weights every device by D_k, and participants drawn by size are weighted otherwise.
    """
    if config.participation.weighting == "weighted" and algorithm.rejoin is not None:
        raise EbbflowError(
            f'participation.weighting = "weighted" does not fit the algorithm {algorithm.name}, '
            "whose server keeps the mean of what all devices remember: set participation.weighting "
            'to "uniform", or choose another algorithm'
        )


def algorithm_name(config: Config, method: str, group: str) -> str:
    """Return the algorithm that a method trains with when it is compared under ``group``."""
    return STARTS[method].build(config.parameters.get(method, {})).algorithm or group


def _algorithm(world: World, name: str) -> Algorithm:
    built = ALGORITHMS[name].build(world.config.parameters.get(name, {}))
    return for_task(built, world.model.task)


def check_parameters(config: Config) -> None:
    """Raise an error for unknown or impossible parameters, even of methods that are not run."""
    known = _with_parameters()
    for name, values in config.parameters.items():
        if name not in known:
            raise unknown(name, known, "algorithm, method, model or aggregation", "parameters")
        known[name].checked(values)


def set_parameters(config: Config) -> dict[str, dict[str, Any]]:
    """Return the parameters that differ from their defaults, in their JSON form."""
    known = _with_parameters()
    written = config.model_dump(mode="json", include={"parameters"})["parameters"]
    changed = {}
    for name, values in written.items():
        usual = known[name].defaults if name in known else {}
        changed[name] = {key: value for key, value in values.items() if value != usual.get(key)}
    return {name: values for name, values in changed.items() if values}


def _with_parameters() -> dict[str, Registered[Any]]:
    return {**ALGORITHMS, **STARTS, **MODELS, **AGGREGATIONS}


def _rates(world: World, algorithm: str) -> Rates:
    """Return an algorithm's rates as a function of a session's length."""
    lr = world.config.lr
    if lr.file is not None:
        longest = max(world.lengths)
        listed = read_rates(Path(lr.file), longest)
        return lambda rounds: listed[:rounds]
    rate = lr.algorithms[algorithm]
    return _decaying(rate.initial, rate.floor, lr.power)


@cache
def _decaying(initial: float, floor: float, power: float) -> Rates:
    # One function for equal rates: methods that share it may share their rounds.
    return cache(partial(polynomial_rates, initial, floor, power))
