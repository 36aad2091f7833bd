"""Models, one file each; `MODELS` names them."""

from collections.abc import Callable

from ebbflow.core.types import Model
from ebbflow.models.mlp import mlp
from ebbflow.models.module import from_module
from ebbflow.models.softmax import softmax

MODELS: dict[str, Callable[[tuple[int, ...], int], Model]] = {"softmax": softmax, "mlp": mlp}
"""Builders by name; each takes the shape of one sample and the number of classes."""

__all__ = ["MODELS", "from_module", "mlp", "softmax"]
