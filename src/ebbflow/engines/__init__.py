"""Engines: train the devices of a cohort and return sums of what they send."""

from typing import Literal

from ebbflow.core.local import Engine, Recipe
from ebbflow.core.types import Examples, Model
from ebbflow.engines.sequential import Sequential
from ebbflow.engines.texts.row_sparse import RowSparse
from ebbflow.engines.texts.sample_space import SampleSpace
from ebbflow.engines.texts.whole_vectors import WholeVectors
from ebbflow.engines.vectorised import Vectorised


def engine_for(
    model: Model,
    examples: Examples,
    recipe: Recipe,
    *,
    kind: Literal["vectorised", "sequential"] = "vectorised",
    block: int | None = None,
    workers: int | None = None,
    fused: bool = True,
) -> Engine:
    """Return the reference engine, or the fastest one for the model.

    Args:
        model: The model to train.
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        kind: "sequential" is the reference.
        block: Devices per block; by default the size that proves fastest.
        workers: Threads, each of which computes on one core; by default one per core.
        fused: Whether to use native kernels for what they can do, where they were built.
    """
    if kind == "sequential":
        bag_of_words = model.hints.bag_of_words
        reference = Sequential(model, examples, recipe)
        return WholeVectors(reference, bag_of_words, examples) if bag_of_words else reference
    return fast_engine(model, examples, recipe, block=block, workers=workers, fused=fused)


def fast_engine(
    model: Model,
    examples: Examples,
    recipe: Recipe,
    *,
    block: int | None = None,
    workers: int | None = None,
    fused: bool = True,
) -> Vectorised:
    """Return the fastest engine for the model, which adds up in leaves; see `engine_for`."""
    if model.hints.bag_of_words is not None:
        # The sample space's kernels are the CPU's.
        texts = RowSparse if examples.x.is_cuda else SampleSpace
        return texts(model, examples, recipe, workers)
    return Vectorised(model, examples, recipe, block, workers, fused=fused)


__all__ = [
    "RowSparse",
    "SampleSpace",
    "Sequential",
    "Vectorised",
    "WholeVectors",
    "engine_for",
    "fast_engine",
]
