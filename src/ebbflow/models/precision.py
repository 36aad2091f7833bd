"""Training steps in bfloat16: half the bits, two to three decimal digits, float32's range.

Products and convolutions round their operands to bfloat16, add up in float32 and round the result;
the backward pass does the same. Weights, momentum, batch statistics, losses, uploads and evaluation
stay in float32. Where torch multiplies bfloat16 itself and devices are mapped together, a linear
layer rounds its product and then adds the bias in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model, Precision

_PRODUCTS = frozenset(
    {
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        torch.conv_transpose1d,
        torch.conv_transpose2d,
        torch.conv_transpose3d,
        functional.linear,
        *(getattr(torch, name) for name in ("matmul", "mm", "bmm", "addmm", "baddbmm")),
        *(getattr(Tensor, name) for name in ("matmul", "mm", "bmm", "addmm", "baddbmm")),
        Tensor.__matmul__,
        Tensor.__rmatmul__,
    }
)


def _rounded(value: Any) -> Any:
    # In the backward pass, the same two casts round the derivative.
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.bfloat16().to(value.dtype)
    return value


class _Rounding(TorchFunctionMode):
    """Rounds the operands and results of products to bfloat16 but computes in float32.

    For processors without bfloat16 instructions, on which torch's own bfloat16 products are more
    than ten times slower than float32. Numbers are rounded in the same places.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _PRODUCTS:
            return func(*args, **kwargs)
        named = {name: _rounded(value) for name, value in kwargs.items()}
        return _rounded(func(*(_rounded(value) for value in args), **named))


def _multiplies_bfloat16() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def in_bfloat16(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a module's forward pass is computed in bfloat16."""
    if device.type == "cpu" and not _multiplies_bfloat16():
        return _Rounding()
    # A weight is used once in a pass: caching its cast would only cost a lock and memory.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def at_precision(model: Model, precision: Precision) -> Model:
    """Return the model with training steps of this precision, or raise if it has none."""
    if precision == "fp32":
        return model
    if model.hints.at_precision is None:
        raise EbbflowError(
            f'precision = "{precision}": the model {model.name} has its gradient in closed form '
            'and trains in float32 only: set precision = "fp32", or a model.kind that is a module, '
            "such as mlp or cnn"
        )
    return model.hints.at_precision(precision)
