"""Engines: maps over the devices of a cohort that return sums."""

from typing import Literal

from ebbflow.core.local import Engine, Recipe
from ebbflow.core.types import Examples, Model
from ebbflow.engines.sequential import Sequential
from ebbflow.engines.texts.row_sparse import Touched
from ebbflow.engines.texts.sample_space import SampleSpace
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
    """Return what trains: the reference, or the fastest there is for the model.

    Args:
        model: The model to train.
        examples: The training set, on the device that computes.
        recipe: Momentum and projection.
        kind: "sequential" is the reference.
        block: Devices per block; by default what proves to be fastest.
        workers: Threads, each of which computes on one core; by default one per core.
        fused: Whether to use the native kernel for what it can do, where it was built.
    """
    if kind == "sequential":
        return Sequential(model, examples, recipe)
    if model.bags is not None:
        texts = Touched if examples.x.is_cuda else SampleSpace  # the latter's kernels are the CPU's
        return texts(model, examples, recipe, workers)
    return Vectorised(model, examples, recipe, block, workers, fused=fused)


__all__ = ["SampleSpace", "Sequential", "Touched", "Vectorised", "engine_for"]
