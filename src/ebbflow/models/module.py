"""Any ``nn.Module`` as a `Model`, without a subclass of ours."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Buffers, Model, ModelState, Output, Theta


class _OwnCopy(threading.local):
    """The template, once per thread: ``functional_call`` swaps its parameters in place."""

    def __init__(self, template: nn.Module) -> None:
        self._module = copy.deepcopy(template)
        self._device = torch.device("cpu")

    def on(self, device: torch.device) -> nn.Module:
        """Return the copy, with what is neither parameter nor float buffer on the device too."""
        if device != self._device:
            self._module.to(device)
            self._device = device
        return self._module


def _float_buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    # BatchNorm's integer counter is neither trained nor averaged: it stays in the template.
    return [(name, b) for name, b in module.named_buffers() if b.is_floating_point()]


def _as_output(result: Any, name: str) -> Output:
    if isinstance(result, Tensor):
        return Output(result, result)
    if isinstance(result, tuple) and len(result) == 2:
        return Output(*result)
    raise EbbflowError(
        f"the model {name} returned {type(result).__name__} from forward: return the logits, or "
        "the pair (logits, features)"
    )


def from_module(
    build: Callable[[], nn.Module], name: str = "module", vectorise: bool | None = None
) -> Model:
    """Return the model that ``build()`` makes, as pure functions of its vectors.

    Args:
        build: Makes the module with freshly drawn weights. Its forward returns the logits, or the
            pair (logits, features).
        name: What messages call it.
        vectorise: Whether to map it over devices. By default all but modules with convolutions,
            which a per-device loop trains faster on a CPU, and those with batch statistics,
            whose bits would depend on the block.

    >>> model = from_module(lambda: nn.Linear(3, 2))
    >>> model.layout.total
    8
    """
    with torch.random.fork_rng(devices=[]):  # the template's own draw must disturb nobody
        template = build()
    layout = vector.layout_of(template.named_parameters())
    buffer_layout = vector.layout_of(_float_buffers(template))
    parts = list(template.modules())
    convolves = any(isinstance(part, nn.modules.conv._ConvNd) for part in parts)
    batch_statistics = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in parts)
    own = _OwnCopy(template)

    def initial(draw: torch.Generator) -> ModelState:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=draw)))
            fresh = build()
        theta = vector.flatten({n: p.detach() for n, p in fresh.named_parameters()}, layout)
        return ModelState(theta, vector.flatten(dict(_float_buffers(fresh)), buffer_layout))

    def forward(theta: Theta, buffers: Buffers, x: Tensor, train: bool) -> tuple[Output, Buffers]:
        module = own.on(x.device).train(train)
        # Copies of every buffer, each of its own: BatchNorm updates them in place, its integer
        # counter included, and forward must change nothing that anybody else can see.
        running = {n: b.clone() for n, b in vector.unflatten(buffers, buffer_layout).items()}
        counters = {n: b.clone() for n, b in module.named_buffers() if n not in running}
        tensors = {**vector.unflatten(theta, layout), **running, **counters}
        output = _as_output(functional_call(module, tensors, (x,)), name)
        return output, vector.flatten(running, buffer_layout) if running else buffers

    return Model(
        name=name,
        layout=layout,
        buffer_layout=buffer_layout,
        initial=initial,
        forward=forward,
        vectorise=not (convolves or batch_statistics) if vectorise is None else vectorise,
        batch_statistics=batch_statistics,
    )
