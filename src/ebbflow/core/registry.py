"""Registries: factories by name, and the facts about them that are needed before building.

The factories of ebbflow's own algorithms, starts and models are named by module and function and
imported on first use, so that reading a configuration does not import torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar, get_type_hints

from ebbflow.core.errors import EbbflowError, unknown
from ebbflow.core.names import NAME_RULE, is_name

Built = TypeVar("Built")

RatePair = tuple[float, float]
"""A session's first rate, and its floor as a fraction of the first rate."""


@dataclass(frozen=True)
class Registered(Generic[Built]):
    """A name with its factory: the function itself, or ``"package.module:function"``."""

    name: str
    source: Callable[..., Built] | str = field(repr=False)

    @cached_property
    def factory(self) -> Callable[..., Built]:
        """The function itself, imported if necessary."""
        if not isinstance(self.source, str):
            return self.source
        module, _, function = self.source.partition(":")
        factory: Callable[..., Built] = getattr(import_module(module), function)
        return factory

    def __call__(self, *arguments: Any, **parameters: Any) -> Built:
        """Call the factory as it is."""
        return self.factory(*arguments, **parameters)

    def build(self, parameters: Mapping[str, Any], *arguments: Any) -> Built:
        """Call the factory with ``[parameters.NAME]``, after checking names and types."""
        return self.factory(*arguments, **self.checked(parameters))

    @property
    def defaults(self) -> dict[str, Any]:
        """The factory's parameters and their default values."""
        return {
            parameter.name: parameter.default
            for parameter in inspect.signature(self.factory).parameters.values()
            if parameter.default is not inspect.Parameter.empty
        }

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, validated against the factory's annotations."""
        from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - listing names does not need it

        hints = get_type_hints(self.factory, include_extras=True)
        known = self.defaults
        place = f"parameters.{self.name}"
        values = {}
        for key, value in parameters.items():
            if not known:
                raise EbbflowError(f"{place}.{key} = {value!r}: {self.name} has no parameters")
            if key not in known:
                raise unknown(key, known, "parameter", place)
            try:
                values[key] = TypeAdapter(hints[key]).validate_python(value, strict=True)
            except ValidationError as error:
                reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
                raise EbbflowError(
                    f"{place}.{key} = {value!r} is refused: {reason[0].lower()}{reason[1:]}"
                ) from None
        return values


@dataclass(frozen=True)
class RegisteredAlgorithm(Registered[Built]):
    """An FL algorithm by name.

    ``vectors`` is the number of parameter vectors in an upload and in a broadcast: the model, and
    SCAFFOLD's control variate. ``rates`` holds its rates on data sets where they differ from the
    usual ones.
    """

    vectors: int = 1
    rates: Mapping[str, RatePair] = field(default_factory=dict)


@dataclass(frozen=True)
class RegisteredStart(Registered[Built]):
    """A way to start a session by name.

    ``probes`` says whether it runs the auxiliary rounds. ``keeps`` names what it needs from earlier
    sessions: the ``pilot`` model, past sessions' final ``models``, the ``starts`` that they began
    with, their ``signatures``, a ``teacher``.
    """

    probes: bool = False
    keeps: frozenset[str] = frozenset({"pilot", "models", "signatures"})


Record = TypeVar("Record", bound=Registered[Any])


class Registry(Mapping[str, Record]):
    """Records by name, in the order in which they were registered.

    >>> registry: Registry[Registered[int]] = Registry("number")
    >>> registry.register(Registered("one", lambda: 1))
    >>> registry["one"].factory(), list(registry)
    (1, ['one'])
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._records: dict[str, Record] = {}

    def register(self, record: Record) -> None:
        """Add a record under its name, which must be new."""
        if not is_name(record.name):
            raise EbbflowError(
                f"{_article(self.what)} {self.what} cannot be called {record.name!r}: {NAME_RULE}"
            )
        if record.name in self._records:
            raise EbbflowError(
                f"there is already {_article(self.what)} {self.what} called {record.name!r}: "
                "choose another name"
            )
        self._records[record.name] = record

    def unregister(self, name: str) -> None:
        """Remove a record."""
        del self._records[name]

    def find(self, name: str, where: str) -> Record:
        """Return a record, or raise an error that says where the unknown name was written."""
        if name not in self._records:
            raise unknown(name, self._records, self.what, where)
        return self._records[name]

    def __getitem__(self, name: str) -> Record:
        return self._records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"
