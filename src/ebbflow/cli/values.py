"""Reads numbers and lists from the command line; a wrong one gets a sentence with an example."""

from __future__ import annotations

from collections.abc import Callable

from ebbflow.core.errors import EbbflowError
from ebbflow.core.seed_lists import no_seeds, seeds

INTEGER, FLOAT = "INTEGER", "FLOAT"
INTEGERS, FLOATS, NAMES = "INTEGER,...", "FLOAT,...", "NAME,..."
"""What the help calls the values of options."""


def whole(
    place: str, example: int, least: int | None = None, hint: str = ""
) -> Callable[[str], int]:
    """Return a function that reads a whole number.

    Args:
        place: The option or argument, as the user writes it.
        example: A number that would do.
        least: The smallest number that would do, unless a configuration checks that.
        hint: What else a user may have meant, as the end of the sentence.

    >>> whole("--rounds", 50)("7")
    7
    """

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            shown = f"{place} {example}" if place.startswith("-") else f"{example}"
            raise EbbflowError(
                f"{place} {text!r} is no whole number: write one, as in {shown}{hint}"
            ) from None
        if least is not None and number < least:
            raise EbbflowError(f"{place} {number} is too small: write at least {least}")
        return number

    return read


def number(place: str, example: float) -> Callable[[str], float]:
    """Return a function that reads a number.

    >>> number("--alpha", 0.3)("1e-2")
    0.01
    """

    def read(text: str) -> float:
        try:
            return _whole_or_not(text)
        except ValueError:
            raise EbbflowError(
                f"{place} {text!r} is no number: write one, as in {place} {example:g}"
            ) from None

    return read


def _whole_or_not(text: str) -> float:
    """Return a number as it was written: errors show it to the user."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def names(text: str) -> list[str]:
    """Return what is written between commas.

    >>> names("learned, previous")
    ['learned', 'previous']
    """
    return [part.strip() for part in text.split(",")]


def wholes(text: str, place: str, example: str) -> list[int]:
    """Return whole numbers that are written with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise EbbflowError(
            f"{place} {text!r} is no list of whole numbers: write them as in {place} {example}"
        ) from None


def seeds_of(text: str) -> tuple[int, ...]:
    """Return the seeds of a command that reads them itself, without a configuration."""
    found = tuple(seeds(text))
    if min(found) < 0:
        raise no_seeds(text, "--seeds")
    if len(set(found)) < len(found):
        raise EbbflowError(f"--seeds {text!r} name one more than once: name each one once")
    return found
