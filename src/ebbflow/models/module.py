"""Turns any ``nn.Module`` into a `Model`."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.packing import InputLayout, unpacked
from ebbflow.core.types import (
    Buffers,
    Cotangent,
    EngineHints,
    Gradient,
    Layout,
    Model,
    ModelState,
    Output,
    Precision,
    Theta,
)
from ebbflow.models.dense import dense_network
from ebbflow.models.dense_check import ModulePasses, computes
from ebbflow.models.dropout import SampleDraws, draws_itself, with_named_dropout
from ebbflow.models.precision import in_bfloat16

_Places = list[tuple[dict[str, Any], str]]
"""Where a module and its parts hold one tensor: the dictionaries, and its names there."""


class _OwnCopy(threading.local):
    """A copy of the template for each thread, as a call puts other parameters in its place.

    The copies share the parameters themselves, which are never changed. ``draws`` are those of the
    copy's dropout layers.
    """

    def __init__(self, template: nn.Module, draws: SampleDraws | None) -> None:
        self._made_of = template, draws
        shared: dict[int, Any] = {id(p): p for p in template.parameters()}
        self._module = copy.deepcopy(template, shared)
        self.draws = None if draws is None else copy.deepcopy(draws, shared)
        self._device = torch.device("cpu")
        self._mode: bool | None = None  # neither, as long as it is what the constructor left
        self._places: dict[str, _Places] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process makes its own copies.
        return _OwnCopy, self._made_of

    def on(self, device: torch.device, *, train: bool) -> nn.Module:
        """Return the copy, moved to the device with its constants and integer buffers.

        Its own ``train`` is called whenever the mode changes, and before the first pass: one that
        keeps some layers in evaluation does so from the beginning.
        """
        if device != self._device:
            self._module.to(device)
            self._device = device
            self._places = None
        if self._mode is not train:
            self._module.train(train)
            self._mode = train
        return self._module

    def places(self) -> dict[str, _Places]:
        """Return where each parameter and buffer is held, also those that have several places."""
        if self._places is None:
            held: dict[int, _Places] = {}
            for part in self._module.modules():
                for table in (part._parameters, part._buffers):
                    for key, tensor in table.items():
                        held.setdefault(id(tensor), []).append((table, key))
            named = [*self._module.named_parameters(), *self._module.named_buffers()]
            self._places = {name: held[id(tensor)] for name, tensor in named}
        return self._places


_LARGE = 2**20  # parameters: from here on gradients are copied layer by layer, while in the cache
_TEMPLATE_SEED = 0  # for the module that supplies the frozen parameters


def _built(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # leaves torch's own generator as it was
        torch.manual_seed(seed)
        return build()


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


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


@dataclass(frozen=True)
class _Functions:
    """A module's forward pass and its gradient as functions of the flat vectors.

    ``lower`` is whether training passes are computed in bfloat16.
    """

    name: str
    own: _OwnCopy
    layout: Layout
    buffer_layout: Layout
    channels_last: bool
    lower: bool
    inputs: InputLayout | None = None

    def forward(
        self, theta: Theta, buffers: Buffers, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Buffers]:
        """Return the outputs and the updated buffers, also under ``vmap`` and ``vjp``."""
        if not train:
            x = self._laid_out(x)
        # Every buffer is copied: BatchNorm updates buffers in place, and under vmap an update of a
        # view of a longer vector would be lost.
        running = {n: b.clone() for n, b in vector.unflatten(buffers, self.buffer_layout).items()}
        output = self._run(vector.unflatten(theta, self.layout), running, x, noise, train)
        return output, vector.flatten(running, self.buffer_layout) if running else buffers

    def gradient(
        self, theta: Theta, buffers: Buffers, x: Tensor, noise: Tensor | None, cotangent: Cotangent
    ) -> tuple[Gradient, Buffers]:
        """Return the gradient of one device, by plain autograd, and the updated buffers."""
        after = buffers.clone()
        if self.layout.total > _LARGE:
            return self._large_gradient(theta, after, x, noise, cotangent), after
        # One leaf, of which the parameters are views: its gradient is the flat vector.
        leaf = theta.detach().requires_grad_()
        with torch.enable_grad():
            parameters = vector.unflatten(leaf, self.layout)
            output = self._run_light(parameters, after, self._laid_out(x), noise)
        slopes = cotangent(Output(output.logits.detach(), output.features.detach()))
        pairs = _trainable(output, slopes)
        if not pairs:
            return torch.zeros_like(theta), after
        (flat,) = torch.autograd.grad(
            [out for out, _ in pairs], leaf, [slope for _, slope in pairs]
        )
        return flat, after

    def _large_gradient(
        self, theta: Theta, after: Buffers, x: Tensor, noise: Tensor | None, cotangent: Cotangent
    ) -> Gradient:
        """Return the gradient of a model too large to hold the gradients of all layers at once."""
        flat = torch.empty_like(theta)
        unused = vector.unflatten(flat, self.layout)
        leaves = vector.unflatten(theta.detach(), self.layout)
        for name, leaf in leaves.items():
            _hand_over(leaf.requires_grad_(), name, unused)
        with torch.enable_grad():
            output = self._run_light(leaves, after, self._laid_out(x), noise)
        slopes = cotangent(Output(output.logits.detach(), output.features.detach()))
        pairs = _trainable(output, slopes)
        torch.autograd.backward([out for out, _ in pairs], [slope for _, slope in pairs])
        for place in unused.values():
            place.zero_()
        return flat

    def _run_light(
        self, parameters: dict[str, Tensor], after: Buffers, x: Tensor, noise: Tensor | None
    ) -> Output:
        """Call the module on tensors that are put straight into its tables.

        That is what ``functional_call`` does with more care, and takes half of a small step for.
        """
        module = self.own.on(x.device, train=True)
        places = self.own.places()
        tensors = {**parameters, **vector.unflatten(after, self.buffer_layout)}
        before = {name: table[key] for name, ((table, key), *_) in places.items()}
        try:
            for name, held in places.items():
                tensor = tensors.get(name)
                if tensor is None:  # frozen, or a counter that the call may raise
                    tensor = before[name]
                    tensor = tensor if tensor.is_floating_point() else tensor.clone()
                for table, key in held:
                    table[key] = tensor
            return self._called(module, parameters, x, noise, train=True)
        finally:
            for name, held in places.items():
                for table, key in held:
                    table[key] = before[name]

    def _laid_out(self, x: Tensor) -> Tensor:
        # By permutations, since vmap does not support memory formats.
        return x.movedim(1, -1).contiguous().movedim(-1, 1) if self.channels_last else x

    def _run(
        self,
        parameters: dict[str, Tensor],
        running: dict[str, Tensor],
        x: Tensor,
        noise: Tensor | None,
        train: bool,
    ) -> Output:
        """Call the module, which updates the running statistics in place."""
        module = self.own.on(x.device, train=train)
        counters = {n: b.clone() for n, b in module.named_buffers() if n not in running}
        tensors = {**parameters, **running, **counters}
        functional = partial(functional_call, module, tensors)
        return self._called(
            lambda *args, **named: functional(args, named), parameters, x, noise, train=train
        )

    def _called(
        self,
        module: Callable[..., Any],
        parameters: dict[str, Tensor],
        x: Tensor,
        noise: Tensor | None,
        *,
        train: bool,
    ) -> Output:
        """Return what a module makes of its inputs, in the type of its parameters."""
        args, named = self._given(x, noise)
        if self.own.draws is not None:
            self.own.draws.noise = noise
        with in_bfloat16(x.device) if self.lower and train else nullcontext():
            result = module(*args, **named)
        output = _as_output(result, self.name)
        dtype = next(iter(parameters.values())).dtype
        return Output(output.logits.to(dtype), output.features.to(dtype))

    def _given(
        self, x: Tensor, noise: Tensor | None
    ) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the arguments of the module's forward: several inputs are told apart again."""
        args: tuple[Tensor, ...] = (x,)
        named: dict[str, Tensor] = {}
        if self.inputs is not None:
            named = unpacked(x, self.inputs)
            args = () if self.inputs.named else tuple(named.values())
            named = named if self.inputs.named else {}
        if noise is not None and self.own.draws is None:
            args = (*args, noise)
        return args, named


def _trainable(output: Output, slopes: Output) -> list[tuple[Tensor, Tensor]]:
    """Return the outputs that depend on a parameter, each with the loss's derivative in it."""
    return [pair for pair in zip(output, slopes, strict=True) if pair[0].requires_grad]


def _hand_over(leaf: Tensor, name: str, places: dict[str, Tensor]) -> None:
    """Copy a parameter's gradient to its place in the flat vector as soon as it is computed.

    It is still in the cache then, and its memory is free for the next layer's gradient. Places that
    have been filled are removed from ``places``.
    """

    def take(leaf: Tensor) -> None:
        if leaf.grad is not None:
            places.pop(name).copy_(leaf.grad)
        leaf.grad = None

    leaf.register_post_accumulate_grad_hook(take)  # type: ignore[no-untyped-call]  # torch's


def _attends(part: nn.Module) -> bool:
    """Whether a layer is torch's attention, or calls torch's function for it by its name.

    ``vmap`` has no rule for that function, and goes through the devices one after another.
    """
    forward = inspect.unwrap(getattr(type(part), "forward", None))  # type: ignore[arg-type]
    calls = forward.__code__.co_names if inspect.isfunction(forward) else ()
    return isinstance(part, nn.MultiheadAttention) or "scaled_dot_product_attention" in calls


def from_module(
    build: Callable[[], nn.Module],
    name: str = "module",
    vectorise: bool | None = None,
    noise: tuple[int, ...] | None = None,
    channels_last: bool = False,
    inputs: InputLayout | None = None,
) -> Model:
    """Return the module that ``build()`` makes as a model.

    Parameters with ``requires_grad=False`` are not part of theta. They keep the values that they
    have in a module built once under a fixed seed, the same for every device, seed and process.

    Args:
        build: Makes the module with freshly drawn weights, and loads those of a frozen part. The
            module's forward returns the logits, or the pair (logits, features).
        name: What messages call it.
        vectorise: Whether to map it over devices. By default every module is mapped on a GPU; on a
            CPU all except those with convolutions or attention, which are faster one device at a
            time, and those with batch statistics, whose bits would depend on the block.
        noise: The shape of the uniform draws that one sample needs in training. The module's
            forward then takes them as its second argument (None outside training). A module
            without has its ``nn.Dropout`` layers replaced by ones that draw by name
            (`ebbflow.models.dropout`). One whose layers draw in other ways, such as
            ``nn.AlphaDropout``, runs on the sequential engine only.
        channels_last: Whether images are laid out with the channels last, which makes convolutions
            faster on a CPU. The module must not use ``view`` then.
        inputs: Where several inputs lie in a sample's vector; the module's forward takes them by
            keyword, or in order.

    >>> model = from_module(lambda: nn.Linear(3, 2))
    >>> model.layout.total
    8
    """
    template = _built(build, _TEMPLATE_SEED)
    draws: SampleDraws | None = None
    if noise is None:
        template, draws, layers = with_named_dropout(template)
        noise = (layers,) if draws is not None else None
    layout = vector.layout_of(_trained(template))
    if not layout.names:
        raise EbbflowError(
            f"the model {name} has nothing to train: it needs a parameter with requires_grad=True"
        )
    buffer_layout = vector.layout_of(_float_buffers(template))
    parts = list(template.modules())
    faster_alone = any(isinstance(part, _ConvNd) or _attends(part) for part in parts)
    batch_statistics = any(isinstance(part, _BatchNorm) for part in parts)
    by_default = not (faster_alone or batch_statistics)
    own = _OwnCopy(template, draws)

    def state_of(module: nn.Module) -> ModelState:
        theta = vector.flatten({n: p.detach() for n, p in _trained(module)}, layout)
        return ModelState(theta, vector.flatten(dict(_float_buffers(module)), buffer_layout))

    network = dense_network(template, layout, buffer_layout) if inputs is None else None
    if network is not None:
        functions = _Functions(name, own, layout, buffer_layout, channels_last, False)
        drawn = 0 if noise is None else noise[0]
        passes = ModulePasses(layout, functions.forward, functions.gradient)
        if not computes(network, passes, state_of(template), drawn):
            network = None

    def initial(draw: torch.Generator) -> ModelState:
        return state_of(_built(build, int(torch.randint(2**62, (), generator=draw))))

    def at_precision(precision: Precision) -> Model:
        lower = precision == "bf16"
        functions = _Functions(name, own, layout, buffer_layout, channels_last, lower, inputs)
        return Model(
            name=name,
            layout=layout,
            buffer_layout=buffer_layout,
            initial=initial,
            forward=functions.forward,
            gradient=functions.gradient,
            batch_statistics=batch_statistics,
            noise=noise,
            hints=EngineHints(
                vectorise=by_default if vectorise is None else vectorise,
                vectorise_on_gpu=vectorise is not False,
                own_draws=draws_itself(template),
                dense=None if lower else network,
                at_precision=at_precision,
            ),
        )

    return at_precision("fp32")
