"""Names the place where a hook or a model failed, and tells a lack of memory from a bug."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ebbflow.core.errors import EbbflowError, HookError
from ebbflow.core.local import Cohort


def place_of(cohort: Cohort, device: int | None = None) -> str:
    """Return a round, or one device in it, as messages call it."""
    place = f"session {cohort.session}, round {cohort.round}"
    return place if device is None else f"{place}, device {device}"


@contextmanager
def failures_named(place: Callable[[], str]) -> Iterator[None]:
    """Turn whatever a hook or a model raises into a `HookError` that names the place.

    Sentences of ours pass as they are, and a lack of memory becomes one.
    """
    try:
        yield
    except (EbbflowError, HookError):
        raise
    except Exception as error:  # of any kind: hooks and models are the user's
        refuse_lack_of_memory(error, place())
        last_line = traceback.format_exception_only(error)[-1].strip()
        raise HookError(f"{place()}: {last_line}") from error


@contextmanager
def memory_lack_named(place: str) -> Iterator[None]:
    """Turn a lack of memory into a sentence; every other error passes as it is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        refuse_lack_of_memory(error, place)
        raise


def refuse_lack_of_memory(error: Exception, place: str) -> None:
    """Raise a sentence if the error says that there was not enough memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        # torch has no class of its own for a CPU that is out of memory.
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    ):
        raise EbbflowError(
            f"{place}: out of memory; lower engine.block (devices that train together), "
            "engine.workers or engine.state_memory, or choose a smaller model"
        ) from error
