"""Runs hooks on stand-ins for vectors, to learn what they compute without computing it.

A stand-in (`Combination`, `Entrywise`) supports some operations of tensors and refuses all others.
A hook that a stand-in refuses is not at fault: its algorithm is trained in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Never


class StandInError(TypeError, AttributeError):
    """A hook asked a stand-in for an operation that it does not support.

    An AttributeError as well, so that `hasattr` works on a stand-in. ``verdict`` is what it says
    about the hook.
    """

    verdict = "cannot be run on stand-ins"


def refusal(error: type[StandInError], reason: str) -> Callable[..., Any]:
    """Return a method that refuses, to be used for several operators of a stand-in."""

    def refuse(self: object, *arguments: object) -> Never:
        raise error(reason)

    return refuse


@contextmanager
def hook_on_stand_ins(hook: str, algorithm: str, error: type[StandInError]) -> Iterator[None]:
    """Run one hook, and raise ``error`` with the hook's name if it cannot be run on stand-ins.

    By design those are a stand-in's own refusal, and the TypeError or AttributeError of code that
    insists on a real tensor. If it is a bug of the hook instead, it is raised again by the training
    on tensors. Any other exception is a bug and passes.
    """
    try:
        yield
    except (TypeError, AttributeError) as refused:
        raise error(f"{hook} of {algorithm} {error.verdict}: {refused}") from refused
