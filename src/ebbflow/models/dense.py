"""Recognises dense networks: chains of linear layers, ReLU, tanh, dropout and batch normalisation.

Such a network has its gradient in closed form, which engines compute faster than autograd. A module
is followed by torch.fx, so that it need not be an ``nn.Sequential``; what was read from it is used
only if it computes what the module computes (`ebbflow.models.dense_check`).
"""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from ebbflow.core.types import DenseNetwork, DenseStage, Layout, Linear, Masked, Normalised
from ebbflow.models.dropout import NamedDropout, kept_units
from ebbflow.models.fitted import Fitted

_KNOWN = (
    *(nn.Linear, nn.ReLU, nn.Tanh, nn.Flatten, nn.Identity, nn.Sequential),
    *(nn.BatchNorm1d, NamedDropout),
)
_BY_MODE = (nn.BatchNorm1d, NamedDropout)  # what computes something else in training
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_RELU = {torch.relu, torch.relu_, functional.relu, "relu", "relu_"}
_TANH = {torch.tanh, torch.tanh_, functional.tanh, "tanh", "tanh_"}
_FLATTEN = {torch.flatten, "flatten"}
_FROM_SECOND = {(1,), (1, -1), (("start_dim", 1),)}
_RESHAPE = {torch.reshape, "reshape", "view"}
_SIZES = {"size", getattr, operator.getitem}  # by which the rows of a batch are counted


class _NotDenseError(Exception):
    """The module does something that no dense network does."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a part is looked at as a whole; a subclass may compute something else."""
        return type(m) in _KNOWN and type(m) is not nn.Sequential


@dataclass(frozen=True)
class _DropoutFactors:
    """What a dropout layer multiplies units by: a function of the samples' draws."""

    p: float
    place: int

    def __call__(self, noise: Tensor, units: int) -> Tensor:
        """Return zeros, and what makes up for them, as the layer itself computes them."""
        if self.p in (0, 1):
            return noise.new_full((len(noise), units), 1 - self.p)
        kept = kept_units(noise[:, self.place], units, self.p, self.place)
        return kept.to(noise.dtype) / (1 - self.p)


def dense_network(module: nn.Module, layout: Layout, buffers: Layout) -> DenseNetwork | None:
    """Return the stages of a module whose parameters and buffers have these layouts, or None.

    >>> found = dense_network(
    ...     nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False)),
    ...     Layout(("1.weight", "1.bias", "3.weight"), ((3, 4), (3,), (2, 3))),
    ...     Layout((), ()),
    ... )
    >>> found.stages
    (Linear(weight=slice(0, 12, None), bias=slice(12, 15, None), outputs=3, inputs=4), 'relu', \
Linear(weight=slice(15, 21, None), bias=None, outputs=2, inputs=3))
    """
    if not all(map(_ordinary, module.modules())):
        return None
    inner, prefix = (module.module, "module.") if isinstance(module, Fitted) else (module, "")
    try:
        # A copy, as forward may leave something behind; the parameters themselves are shared.
        followed = copy.deepcopy(inner, {id(p): p for p in inner.parameters()})
        trained, tested = (_read(followed, mode, prefix, layout, buffers) for mode in (True, False))
    except Exception:  # of whatever kind: a forward that cannot be followed is no chain
        return None
    if trained != tested:
        return None
    return _fitted(trained, module.task) if isinstance(module, Fitted) else trained


def _ordinary(part: nn.Module) -> bool:
    """Whether a part is a known layer, or has no parameters of its own; and was left as it is."""
    if any(getattr(part, name) for name in _HOOKS) or "forward" in vars(part):
        return False
    if type(part) in _KNOWN:
        return True
    own = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
    return not own and not type(part).__module__.startswith("torch.")


def _fitted(network: DenseNetwork, task: str) -> DenseNetwork:
    """Return the network of a module in a `Fitted`, which adds a first class to a single score."""
    last = next(stage for stage in reversed(network.stages) if isinstance(stage, Linear))
    return network._replace(zero_first=task == "binary" and last.outputs == 1)


def _read(
    module: nn.Module, train: bool, prefix: str, layout: Layout, buffers: Layout
) -> DenseNetwork:
    module.train(train)
    chain = _Chain(dict(module.named_modules()), train, prefix, layout, buffers)
    for node in _Tracer().trace(module).nodes:
        if node.op == "output":
            return chain.network(node.args[0])
        chain.follow(node)
    raise _NotDenseError("nothing is returned")


class _Chain:
    """The stages that have been read so far, and which value of the graph they lead to."""

    def __init__(
        self,
        layers: dict[str, nn.Module],
        train: bool,
        prefix: str,
        layout: Layout,
        buffers: Layout,
    ) -> None:
        self.layers = layers
        self.train = train
        self.prefix = prefix
        self.slices = layout.slices()
        self.buffers = buffers.slices()
        self.unused = set(layout.names)
        self.stages: list[DenseStage] = []
        self.after: dict[fx.Node, int] = {}  # values by node, as the number of stages before them
        self.flattens = False

    def follow(self, node: fx.Node) -> None:
        """Take up what a node of the graph computes."""
        if node.op == "placeholder":
            if self.after:
                raise _NotDenseError("several inputs")
            self.after[node] = 0
            return
        if node.op == "call_module":
            self._take(node, self.layers[str(node.target)], str(node.target))
            return
        if node.target in _SIZES:
            return  # a number of rows, which may be asked for in a reshape only
        self._comes_last(node)
        if node.target in _RELU:
            self._add(node, "relu")
        elif node.target in _TANH:
            self._add(node, "tanh")
        elif node.target in _FLATTEN and (*node.args[1:], *node.kwargs.items()) in _FROM_SECOND:
            self._flatten(node)
        elif node.target in _RESHAPE and not node.kwargs:
            self._reshape(node)
        else:
            raise _NotDenseError(str(node.target))

    def _comes_last(self, node: fx.Node) -> None:
        before = node.args[0]
        if not isinstance(before, fx.Node) or self.after.get(before) != len(self.stages):
            raise _NotDenseError("a branch")

    def _take(self, node: fx.Node, layer: nn.Module, name: str) -> None:
        self._comes_last(node)
        if isinstance(layer, _BY_MODE) and layer.training is not self.train:
            raise _NotDenseError("a layer is kept in another mode")
        if isinstance(layer, nn.Linear):
            self._add(node, self._linear(layer, f"{self.prefix}{name}"))
        elif isinstance(layer, nn.ReLU):
            self._add(node, "relu")
        elif isinstance(layer, nn.Tanh):
            self._add(node, "tanh")
        elif isinstance(layer, NamedDropout) and not layer.channels:
            factors = _DropoutFactors(layer.p, layer.place)
            self._add(node, Masked(layer.p, layer.place, factors))
        elif isinstance(layer, nn.BatchNorm1d):
            self._add(node, self._normalised(layer, f"{self.prefix}{name}"))
        elif isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
            self._flatten(node)
        elif isinstance(layer, nn.Identity):
            self.after[node] = len(self.stages)
        else:
            raise _NotDenseError(name)

    def _linear(self, layer: nn.Linear, name: str) -> Linear:
        weight = self._slice(layer, name, "weight")
        assert weight is not None
        bias = self._slice(layer, name, "bias")
        return Linear(weight, bias, layer.out_features, layer.in_features)

    def _normalised(self, layer: nn.BatchNorm1d, name: str) -> Normalised:
        if layer.momentum is None or not layer.track_running_stats:
            raise _NotDenseError("statistics of another kind")
        return Normalised(
            self._slice(layer, name, "weight"),
            self._slice(layer, name, "bias"),
            self.buffers[f"{name}.running_mean"],
            self.buffers[f"{name}.running_var"],
            layer.num_features,
            layer.eps,
            layer.momentum,
        )

    def _slice(self, layer: nn.Module, name: str, parameter: str) -> slice | None:
        """Return where a layer's parameter lies in theta, or None if it has none."""
        if parameter not in dict(layer.named_parameters()):
            return None
        self.unused.remove(f"{name}.{parameter}")  # raises for one that is frozen, or used before
        return self.slices[f"{name}.{parameter}"]

    def _add(self, node: fx.Node, stage: DenseStage) -> None:
        self.stages.append(stage)
        self.after[node] = len(self.stages)

    def _flatten(self, node: fx.Node) -> None:
        self.flattens = self.flattens or not self.stages
        self.after[node] = len(self.stages)

    def _reshape(self, node: fx.Node) -> None:
        shape = node.args[1] if isinstance(node.args[1], tuple) else node.args[1:]
        rows, columns = shape
        # [batch, -1], or [-1, inputs] of the samples themselves: engines look at whether these have
        # so many numbers. Later on it might make other rows.
        begins = not self.stages
        if (isinstance(rows, fx.Node) and columns == -1) or (begins and rows == -1 != columns):
            self._flatten(node)
        else:
            raise _NotDenseError("another shape")

    def network(self, returned: Any) -> DenseNetwork:
        """Return the whole network, of what the module returns."""
        logits, features = returned if isinstance(returned, tuple) else (returned, returned)
        if self.unused or self.after.get(logits) != len(self.stages):
            raise _NotDenseError("something is left over")
        return DenseNetwork(tuple(self.stages), self.after[features], self.flattens)
