"""Sequences and mappings that compute their values on access and do not keep them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar, overload

Value = TypeVar("Value")


class LazySequence(Sequence[Value]):
    """``count`` values, each computed from its place: memory does not grow with their number.

    >>> squares = LazySequence(4, lambda place: place**2)
    >>> squares[3], list(squares), squares[1:3]
    (9, [0, 1, 4, 9], [1, 4])
    """

    def __init__(self, count: int, make: Callable[[int], Value]) -> None:
        self._places = range(count)
        self._make = make

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Value: ...
    @overload
    def __getitem__(self, place: slice) -> list[Value]: ...
    def __getitem__(self, place: int | slice) -> Value | list[Value]:
        if isinstance(place, slice):
            return [self._make(i) for i in self._places[place]]
        return self._make(self._places[place])


class LazyMapping(Mapping[int, Value]):
    """A value for each key, computed on access."""

    def __init__(self, keys: Collection[int], make: Callable[[int], Value]) -> None:
        self._keys = keys
        self._make = make

    def __getitem__(self, key: int) -> Value:
        if key not in self._keys:
            raise KeyError(key)
        return self._make(key)

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
