"""The compared methods, from their names and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ebbflow.algorithms import ALGORITHMS, distilled
from ebbflow.config.schema import Config, nearest
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rates import Rates, polynomial_rates, read_rates
from ebbflow.core.types import ModelState
from ebbflow.models import MODELS
from ebbflow.simulation.simulate import Method
from ebbflow.simulation.world import World
from ebbflow.starts import INITIALISERS, SKETCHED, UNIFORM

Built = TypeVar("Built")


def methods_of(world: World) -> list[Method]:
    """Return every combination of algorithm and way to start, at the algorithm's rates."""
    config = world.config
    # One record each, and one shared FedAvg: methods on the same record may share their rounds.
    algorithms = {
        name: parametrised(ALGORITHMS[name], name, config)
        for name in dict.fromkeys([*config.algorithm, "fedavg"])
    }
    builders = dict(INITIALISERS)
    if config.warm_start.signature == "sketch":
        builders |= SKETCHED
    if config.continuous.first == "uniform":
        builders |= UNIFORM
    found = []
    for group in config.algorithm:
        rates = _rates(world, group)
        for name in config.methods:
            fedavg = name == "continuous" and config.continuous.base == "fedavg"
            algorithm = algorithms["fedavg" if fedavg else group]
            initialiser = builders[name](
                world.model.layout, config.warm_start.distance, config.warm_start.scale or 0.0
            )
            distil = _distil(config, algorithm) if name == "continuous" else None
            found.append(Method(name, group, initialiser, algorithm, rates, distil))
    return found


def parametrised(
    factory: Callable[..., Built], name: str, config: Config, *arguments: Any
) -> Built:
    """Call a factory with ``[parameters.NAME]``, after checking names and types."""
    return factory(*arguments, **_checked(factory, name, config.parameters.get(name, {})))


def _checked(factory: Callable[..., Any], name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(factory, include_extras=True)
    known = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.default is not inspect.Parameter.empty
    ]
    values = {}
    for key, value in given.items():
        place = f"parameters.{name}"
        if key not in known:
            if not known:
                raise EbbflowError(f"{place}.{key} = {value!r}: {name} has no parameters")
            raise nearest(key, known, "parameter", place)
        try:
            values[key] = TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"])
            raise EbbflowError(
                f"{place}.{key} = {value!r} is refused: {reason[0].lower()}{reason[1:]}"
            ) from None
    return values


def check_parameters(config: Config) -> None:
    """Refuse unknown or impossible parameters, also of what is not run this time."""
    known: dict[str, Callable[..., Any]] = {**ALGORITHMS, **MODELS}
    for name, given in config.parameters.items():
        if name not in known:
            raise nearest(name, known, "algorithm or model", "parameters")
        _checked(known[name], name, given)


def _distil(config: Config, base: Algorithm) -> Callable[[ModelState, tuple[int, ...]], Algorithm]:
    choice = config.continuous

    def distil(teacher: ModelState, known: tuple[int, ...]) -> Algorithm:
        return distilled(base, teacher, known, choice.kl or 0.0, choice.temperature, choice.target)

    return distil


def _rates(world: World, algorithm: str) -> Rates:
    """Return the rates of a session, by its length."""
    lr = world.config.lr
    if lr.file is not None:
        longest = max(session.rounds for session in world.sessions)
        given = read_rates(Path(lr.file), longest)
        return lambda rounds: given[:rounds]
    rate = lr.algorithms[algorithm]
    return _decaying(rate.initial or 0.0, rate.floor or 0.0, lr.power)


@cache
def _decaying(initial: float, floor: float, power: float) -> Rates:
    # One function for equal rates: methods that share it may share their rounds.
    return cache(partial(polynomial_rates, initial, floor, power))
