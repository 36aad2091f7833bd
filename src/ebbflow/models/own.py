"""A module that a program hands over, as the model of a run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import nn

from ebbflow.core.errors import EbbflowError
from ebbflow.core.packing import InputLayout
from ebbflow.core.types import Model
from ebbflow.models import MODELS, from_module, register_model
from ebbflow.models.fitted import Fitted

OWN = "own_module"
"""What ``model.kind`` calls it."""

OwnModel = nn.Module | Callable[[], nn.Module] | Model
"""A module, which every run starts from as it is; what makes one, drawn anew for every seed; or a
`Model`."""


def own_factory(model: OwnModel, task: str) -> Callable[..., Model]:
    """Return the factory that gives this model whatever the shape of a sample is."""
    if isinstance(model, Model):
        return lambda shape, classes: model
    if isinstance(model, nn.Module):
        given = model

        def build() -> nn.Module:
            return copy.deepcopy(given)

        called = type(model).__name__
    elif callable(model):
        build, called = model, getattr(model, "__name__", "module")
    else:
        raise EbbflowError(
            f"model is a {type(model).__name__}: give an nn.Module, what makes one, or a Model"
        )

    def made() -> nn.Module:
        module = build()
        if not isinstance(module, nn.Module):
            raise EbbflowError(
                f"{called}() returned a {type(module).__name__}: give a function that returns an "
                "nn.Module"
            )
        return Fitted(module, task) if task in ("binary", "regression") else module

    def factory(shape: tuple[int, ...] | InputLayout, classes: int) -> Model:
        inputs = shape if isinstance(shape, InputLayout) else None
        return from_module(made, called, inputs=inputs)

    return factory


@contextmanager
def handed_over(model: OwnModel | None, task: str) -> Iterator[None]:
    """Let ``model.kind`` name a model for as long as a run lasts."""
    if model is None:
        yield
        return
    register_model(OWN, own_factory(model, task))
    try:
        yield
    finally:
        MODELS.unregister(OWN)
