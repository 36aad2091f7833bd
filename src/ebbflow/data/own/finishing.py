"""The last steps that several kinds of a user's data share: test samples, tokens, pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.types import Dataset, Pixels
from ebbflow.data.own.assembly import Manner, Split, assemble, divided
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.naming import Array
from ebbflow.data.own.words import tokenise

_AT_ONCE = 1_024  # pictures whose pixels are summed up together


def texts_array(texts: list[str]) -> Array:
    """Return texts as an array of Python's own, whatever their lengths."""
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def complete(
    name: str,
    place: str,
    splits: tuple[Split, Split | None],
    choices: Choices,
    manner: Manner | None = None,
) -> Dataset:
    """Return the data set of a training set and, where there is one, a test set.

    Without a test set, a share of the samples is set aside. Inputs that are texts (an array of
    objects) become token numbers, and pictures (``manner.pictures``) stay uint8 and get the
    training set's mean and deviation.
    """
    manner = manner or Manner()
    train, test = splits
    notes = manner.notes
    if test is None:
        train, test, told = divided(place, train, choices.test_share(place), choices.task)
        notes += told
    inputs = choices.inputs
    if train.x.dtype == object:
        tokens = tokenise(train.x.tolist(), test.x.tolist(), inputs, choices.vocabulary)
        train, test = train._replace(x=tokens.train), test._replace(x=tokens.test)
        notes, inputs = (*notes, *tokens.notes), "tokens"
    pixels = None
    if manner.pictures:
        pixels = measured_pixels(train.x)
        notes += (f"the pixels of {place} are normalised by {_described(pixels)}",)
    manner = manner._replace(inputs=inputs, pixels=pixels, notes=notes, task=choices.task)
    return assemble(name, place, train, test, manner)


def measured_pixels(x: NDArray[np.uint8]) -> Pixels:
    """Return the mean and the standard deviation of every channel of pictures ``[N, C, H, W]``."""
    channels = x.shape[1]
    sums, squares = np.zeros(channels), np.zeros(channels)
    for start in range(0, len(x), _AT_ONCE):
        part = x[start : start + _AT_ONCE].astype(np.float64) / 255
        sums += part.sum(axis=(0, 2, 3))
        squares += (part**2).sum(axis=(0, 2, 3))
    count = x.size / channels
    mean = sums / count
    # Rounding may leave a variance below zero; a channel without contrast is only shifted.
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    deviation[deviation < 1e-6] = 1.0
    return Pixels(tuple(mean.tolist()), tuple(deviation.tolist()))


def _described(pixels: Pixels) -> str:
    mean, deviation = (", ".join(f"{value:.3g}" for value in part) for part in pixels[:2])
    return f"the training set's mean ({mean}) and standard deviation ({deviation}) per channel"
