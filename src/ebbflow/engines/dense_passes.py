"""Forward and backward passes of a dense network, by torch's products or by the native kernel."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ebbflow.core.dense import OutputSlopes, Passed, add_gradient, forward, layer_views
from ebbflow.core.types import Buffers, DenseNetwork, Indices, Output, Theta
from ebbflow.engines.native.dense import DenseKernel, KernelLayers, LaidOut, Motion


class DenseBatch(NamedTuple):
    """A mini-batch: inputs in the form that the passes read; every sample counts alike."""

    x: Tensor | LaidOut
    y: Tensor
    one_hot: Tensor | None
    noise: Tensor | None


class Passes(Protocol):
    """A network's forward pass, and a backward pass that moves theta."""

    def inputs(self, x: Tensor, rows: Indices) -> Tensor | LaidOut:
        """Return rows of ``x [., inputs]`` in the form that the passes read."""
        ...

    def forward(
        self, theta: Theta, buffers: Buffers, batch: DenseBatch, *, train: bool
    ) -> tuple[Output, Any]:
        """Return the outputs, and what the way back needs; in training, change the buffers."""
        ...

    def move(self, batch: DenseBatch, kept: Any, slopes: OutputSlopes, motion: Motion) -> None:
        """Move theta along the gradient of a forward pass at ``motion.theta``."""
        ...


class TorchPasses:
    """Passes by torch's products, of any dense network in any precision."""

    def __init__(self, network: DenseNetwork) -> None:
        self.network = network

    def inputs(self, x: Tensor, rows: Indices) -> Tensor:
        """Return the rows, one after another."""
        return x.index_select(0, torch.from_numpy(rows))

    def forward(
        self, theta: Theta, buffers: Buffers, batch: DenseBatch, *, train: bool
    ) -> tuple[Output, Passed]:
        """Return the outputs, and the values of all stages."""
        assert isinstance(batch.x, Tensor)
        layers, noise = layer_views(self.network, theta), batch.noise if train else None
        passed = forward(self.network, layers, batch.x, noise, buffers, train=train)
        return passed.output, passed

    def move(self, batch: DenseBatch, kept: Passed, slopes: OutputSlopes, motion: Motion) -> None:
        """Let the products add to the velocity, and step along it."""
        theta, start, shift, velocity, out, keep, rate, pull, _ = motion
        layers, places = layer_views(self.network, theta), layer_views(self.network, velocity)
        add_gradient(self.network, layers, kept, slopes, places, keep)
        if shift is not None:
            velocity.add_(shift)
        if pull and theta is not start:  # at the start nothing pulls
            velocity.add_(theta - start, alpha=pull)
        if out is not None:
            torch.sub(theta, velocity, alpha=rate, out=out)


class KernelPasses:
    """Passes by the native kernel, in float32."""

    def __init__(self, network: DenseNetwork, layers: KernelLayers, draws: int = 0) -> None:
        self.kernel = DenseKernel(layers, draws)
        self.zero_first = network.zero_first

    def inputs(self, x: Tensor, rows: Indices) -> LaidOut:
        """Return the rows as the kernel lays them out."""
        return self.kernel.laid_out(x, rows)

    def forward(
        self, theta: Theta, buffers: Buffers, batch: DenseBatch, *, train: bool
    ) -> tuple[Output, Tensor]:
        """Return the outputs, and the values of all layers."""
        assert isinstance(batch.x, LaidOut)
        values, scores, features = self.kernel.forward(
            theta, buffers, batch.x, batch.noise, train=train
        )
        logits = self._with_zero(scores)
        return Output(logits, logits if features is scores else features), values

    def tested(self, theta: Theta, buffers: Buffers, x: Tensor) -> Tensor:
        """Return the outputs for samples ``x [., inputs]`` that are not trained on."""
        return self._with_zero(self.kernel.scores(theta, buffers, x))

    def _with_zero(self, scores: Tensor) -> Tensor:
        if not self.zero_first:
            return scores
        return torch.cat([torch.zeros_like(scores[:, :1]), scores], 1)

    def move(self, batch: DenseBatch, kept: Tensor, slopes: OutputSlopes, motion: Motion) -> None:
        """Go back through all layers and move each of them on the way."""
        assert isinstance(batch.x, LaidOut)
        of_scores, of_features = slopes
        if of_features is not None and not self.kernel.features:
            of_scores, of_features = of_scores + of_features, None
        if self.zero_first:
            of_scores = of_scores[:, 1:]
        self.kernel.backward(batch.x, batch.noise, kept, of_scores, of_features, motion)
