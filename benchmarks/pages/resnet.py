"""Times a training step of ResNet-18 on 32x32 images, layer by layer, on one thread.

    python -m benchmarks.pages resnet

For each kind of 3x3 convolution: its operations (two per multiply-add), the share of them that meet
a pixel instead of padding, and the milliseconds of torch's convolution forward, backward to its
input and backward to its weights; then the milliseconds of our layer, forward and backward. A
second table has whole steps with either convolution and in both memory layouts, beside a plain
matrix product. Each pair must agree before it is timed. Contenders take turns, and the best CPU
time of all repeats counts, which other load on the machine hardly affects.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from ebbflow.core.errors import EbbflowError
from ebbflow.core.malloc import kept_memory, use_one_arena
from ebbflow.core.types import Model, Output
from ebbflow.models import flops, from_module, resnet
from ebbflow.models.resnet import _Conv3x3, resnet18

SIDE = 32


class ConvolutionKind(NamedTuple):
    """3x3 convolutions of one kind: their number, channels, stride, and the image's side."""

    name: str
    times: int
    inputs: int
    width: int
    stride: int
    side: int

    @property
    def out(self) -> int:
        return (self.side - 1) // self.stride + 1

    def operations(self, batch: int) -> int:
        return 2 * 9 * self.inputs * self.width * batch * self.out**2

    @property
    def touching(self) -> float:
        """The share of weights that meet a pixel instead of padding, over all windows."""
        meets = [
            sum(0 <= self.stride * i + tap - 1 < self.side for tap in range(3))
            for i in range(self.out)
        ]
        return (sum(meets) / (3 * self.out)) ** 2


LAYERS = (
    ConvolutionKind("layer1", 4, 64, 64, 1, 8),
    ConvolutionKind("layer2, first", 1, 64, 128, 2, 8),
    ConvolutionKind("layer2", 3, 128, 128, 1, 4),
    ConvolutionKind("layer3, first", 1, 128, 256, 2, 4),
    ConvolutionKind("layer3", 3, 256, 256, 1, 2),
    ConvolutionKind("layer4, first", 1, 256, 512, 2, 2),
    ConvolutionKind("layer4", 3, 512, 512, 1, 1),
)


def best(contenders: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the shortest time of each contender in milliseconds; they take turns."""
    times = dict.fromkeys(contenders, float("inf"))
    for contender in contenders.values():
        contender()
    for _ in range(repeats):
        for name, contender in contenders.items():
            start = time.thread_time()
            contender()
            times[name] = min(times[name], 1000 * (time.thread_time() - start))
    return times


def output_and_gradients(
    function: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, slope: Tensor
) -> Any:
    """Return a layer's output and the gradients of its input and weights."""
    output = function(x)
    return output, *torch.autograd.grad(output, (x, weight), slope)


def layer_row(layer: ConvolutionKind, batch: int, repeats: int) -> str:
    """Return one line of the table, after checking that both convolutions agree."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(batch, layer.inputs, layer.side, layer.side, generator=draw)
    x = x.contiguous(memory_format=torch.channels_last)
    ours = _Conv3x3(layer.inputs, layer.width, layer.stride)
    weight = ours.weight.detach()
    slope = torch.randn(batch, layer.width, layer.out, layer.out, generator=draw)
    slope = slope.contiguous(memory_format=torch.channels_last)
    leaf = x.clone().requires_grad_()
    theirs = partial(nn.Conv2d.forward, ours)
    for one, other in zip(
        output_and_gradients(ours, leaf, ours.weight, slope),
        output_and_gradients(theirs, leaf, ours.weight, slope),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)

    def backward(*wanted: bool) -> Callable[[], Any]:
        strides, ones = [layer.stride] * 2, [1, 1]
        return lambda: torch.ops.aten.convolution_backward(
            slope, x, weight, None, strides, ones, ones, False, [0, 0], 1, [*wanted, False]
        )

    times = best(
        {
            "forward": lambda: conv2d(x, weight, None, layer.stride, 1),
            "input": backward(True, False),
            "weights": backward(False, True),
            "ours": lambda: output_and_gradients(ours, leaf, ours.weight, slope),
        },
        repeats,
    )
    operations = layer.operations(batch)
    total = times["forward"] + times["input"] + times["weights"]
    return (
        f"| {layer.times} x {layer.name} | {layer.inputs} to {layer.width}, "
        f"{layer.side}x{layer.side} to {layer.out}x{layer.out} | {operations / 1e9:.2f} | "
        f"{100 * layer.touching:.0f} % | {times['forward']:.1f} | {times['input']:.1f} | "
        f"{times['weights']:.1f} | {operations / times['weights'] / 1e6:.0f} | {total:.1f} | "
        f"{times['ours']:.1f} |"
    )


def with_plain_convolutions() -> Model:
    """Return ResNet-18 with torch's own convolutions everywhere."""

    def build() -> nn.Module:
        module = resnet._ResNet(3, (2, 2, 2, 2), 10, nn.BatchNorm2d)
        for part in module.modules():
            if isinstance(part, _Conv3x3):
                part.__class__ = nn.Conv2d  # type: ignore[assignment]
        return module

    return from_module(build)


def step_of(model: Model, x: Tensor) -> Callable[[], Any]:
    """Return a function that computes one step's gradient, for a loss linear in the logits."""
    state = model.initial(torch.Generator().manual_seed(0))
    gradient = model.gradient

    def slope(output: Output) -> Output:
        return Output(output.logits.sign(), torch.zeros_like(output.features))

    if gradient is None:
        raise EbbflowError("the model has no gradient of its own")
    return lambda: gradient(*state, x, None, slope)


def print_tables(batch: int, repeats: int) -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print(f"{platform.machine()}, torch {torch.__version__}, batch {batch}, one thread\n")
    print(
        "| layers | channels, pixels | GFLOP | on pixels | forward | to input | to weights | "
        "GFLOP/s of that | together | ours |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    use_one_arena()
    with kept_memory():
        for layer in LAYERS:
            print(layer_row(layer, batch, repeats), flush=True)
        x = torch.randn(batch, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
        last = x.contiguous(memory_format=torch.channels_last)
        size = 1536
        a, b = torch.randn(2, size, size, generator=torch.Generator().manual_seed(2))
        ours, theirs = resnet18((3, SIDE, SIDE), 10), with_plain_convolutions()
        times = best(
            {
                "torch's convolutions": step_of(theirs, x),
                "torch's convolutions, channels last": step_of(theirs, last),
                "ours": step_of(ours, x),
            },
            repeats,
        )
        product = best({"product": lambda: a @ b}, repeats)["product"]
    work = 3 * flops(ours, x[:2]) * batch
    print("\n| a step's gradient | milliseconds | GFLOP/s as counted |\n|---|---|---|")
    for name, milliseconds in times.items():
        print(f"| {name} | {milliseconds:.0f} | {work / milliseconds / 1e6:.0f} |")
    print(f"| a product of {size} x {size} | {product:.0f} | {2 * size**3 / product / 1e6:.0f} |")
