"""Checks of the shapes and parameters that a model is built with."""

from __future__ import annotations

from typing import Any

from ebbflow.core.errors import EbbflowError

MOST_PARAMETERS = 10**9
"""The most parameters that a model may have, far above what fits many devices into a simulation."""


def image_shape(kind: str, sample_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (channels, height, width), or raise if the samples are not images.

    >>> image_shape("cnn", (3, 32, 32))
    (3, 32, 32)
    """
    if len(sample_shape) != 3:
        raise EbbflowError(
            f'model.kind = "{kind}" needs images [channels, height, width], but a sample of this '
            f"data set has the shape {list(sample_shape)}: choose another model or data set"
        )
    channels, height, width = sample_shape
    return channels, height, width


def whole(kind: str, key: str, value: Any) -> int:
    """Return the value if it is a whole number from 1 up.

    >>> whole("mlp", "hidden", 200)
    200
    """
    if type(value) is not int or value < 1:
        raise EbbflowError(
            f"parameters.{kind}.{key} = {value!r} is no size: give a whole number from 1 up"
        )
    return value


def bounded(kind: str, sample_shape: tuple[int, ...], classes: int, count: int) -> None:
    """Raise an error if a model would have more parameters than anybody simulates.

    Before it is built: later there would be no memory left to say anything.
    """
    if count > MOST_PARAMETERS:
        raise EbbflowError(
            f'model.kind = "{kind}" would have {count:.3g} parameters for samples of the shape '
            f"{list(sample_shape)} and {classes} classes, more than {MOST_PARAMETERS:,}: choose a "
            "smaller model, or check the shape and the labels of the data"
        )
