"""Models, one file each; `MODELS` names them."""

from __future__ import annotations

from collections.abc import Callable

from ebbflow.core.registry import Registered, Registry
from ebbflow.core.types import Model
from ebbflow.models.cnn import cnn
from ebbflow.models.embedding import embedding
from ebbflow.models.flops import flops
from ebbflow.models.mlp import mlp
from ebbflow.models.module import from_module
from ebbflow.models.precision import at_precision
from ebbflow.models.resnet import resnet18, resnet34
from ebbflow.models.softmax import softmax
from ebbflow.models.weights import lacking_warnings, load_weights

MODELS: Registry[Registered[Model]] = Registry("model")
"""Models by name; a factory takes the shape of one sample, the number of classes, and parameters
of its own, all of which have defaults (``[parameters.NAME]`` in a configuration)."""


def register_model(name: str, factory: Callable[..., Model]) -> None:
    """Give a model a name.

    Args:
        name: What ``model.kind`` calls it.
        factory: Returns the model from the shape of one sample, the number of classes, and
            parameters that all have defaults: the keys of ``[parameters.NAME]``.
    """
    MODELS.register(Registered(name, factory))


for _name, _factory in (
    ("softmax", softmax),
    ("mlp", mlp),
    ("cnn", cnn),
    ("resnet18", resnet18),
    ("resnet34", resnet34),
    ("embedding", embedding),
):
    register_model(_name, _factory)

OF_ONE_INPUT = frozenset(MODELS)
"""Models that see several inputs of a sample as one vector."""

__all__ = [
    "MODELS",
    "OF_ONE_INPUT",
    "at_precision",
    "cnn",
    "embedding",
    "flops",
    "from_module",
    "lacking_warnings",
    "load_weights",
    "mlp",
    "register_model",
    "resnet18",
    "resnet34",
    "softmax",
]
