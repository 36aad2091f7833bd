"""Every algorithm once more, straight from its paper: modules, ``backward`` and `torch.optim.SGD`.

Nothing of ebbflow is used here. Devices are weighted by D_k throughout, as the library's texts say.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Device(NamedTuple):
    """A participant of a round: its number, D_k, and the mini-batches of its steps."""

    number: int
    samples: int
    batches: Sequence[tuple[Tensor, Tensor]]


class Done(NamedTuple):
    """What the devices of a round made of it: their modules, the parameters of these, the rate."""

    devices: Sequence[Device]
    modules: Sequence[nn.Module]
    thetas: Sequence[Tensor]
    lr: float


def float_buffers(module: nn.Module) -> list[Tensor]:
    return [buffer for buffer in module.buffers() if buffer.is_floating_point()]


def slope(loss: Tensor, module: nn.Module) -> Tensor:
    return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters()))).detach()


class FedAvg:
    """FedAvg, and what the others change of it. A module returns the pair (logits, features)."""

    def __init__(self, module: nn.Module, samples: int, momentum: float) -> None:
        self.module = module
        self.momentum = momentum
        self.samples = samples
        self.w = parameters_to_vector(module.parameters()).detach().clone()
        self.prepare()

    def prepare(self) -> None:
        """Set up the state of the server and of devices."""

    @property
    def start(self) -> Tensor:
        """Where devices start."""
        return self.w

    def at(self, theta: Tensor) -> nn.Module:
        """Return a module of its own with these parameters and the global buffers."""
        module = copy.deepcopy(self.module)
        vector_to_parameters(theta.clone(), module.parameters())
        return module

    def loss(self, device: Device, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits, _ = module.train()(x)
        return functional.cross_entropy(logits, y)

    def away(self, module: nn.Module) -> Tensor:
        """Return the squared distance from where devices start."""
        return (parameters_to_vector(module.parameters()) - self.start).square().sum()

    def linear(self, device: Device) -> Tensor:
        """Return what is added to every gradient."""
        return torch.zeros_like(self.w)

    def train(self, device: Device, lr: float) -> nn.Module:
        module = self.at(self.start)
        optimiser = torch.optim.SGD(module.parameters(), lr=lr, momentum=self.momentum)
        for x, y in device.batches:
            optimiser.zero_grad()
            theta = parameters_to_vector(module.parameters())
            loss = self.loss(device, module, x, y) + (self.linear(device) * theta).sum()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            optimiser.step()
        return module

    def round(self, devices: Sequence[Device], lr: float) -> None:
        trained = [self.train(device, lr) for device in devices]
        thetas = [parameters_to_vector(module.parameters()).detach() for module in trained]
        total = sum(device.samples for device in devices)
        shares = [device.samples / total for device in devices]
        done = Done(devices, trained, thetas, lr)
        self.remember(done)
        mean = torch.stack([p * theta for p, theta in zip(shares, thetas, strict=True)]).sum(0)
        self.w = self.serve(mean, done)
        for i, buffer in enumerate(float_buffers(self.module)):
            parts = [
                p * float_buffers(module)[i] for p, module in zip(shares, trained, strict=True)
            ]
            buffer.copy_(torch.stack(parts).sum(0))

    def remember(self, done: Done) -> None:
        """Update the devices' states."""

    def serve(self, mean: Tensor, done: Done) -> Tensor:
        """Return the next global model."""
        return mean


class FedProx(FedAvg):
    mu = 1.0

    def loss(self, device: Device, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(device, module, x, y) + self.mu / 2 * self.away(module)


class Scaffold(FedAvg):
    option = 2

    def prepare(self) -> None:
        self.c = torch.zeros_like(self.w)
        self.own: dict[int, Tensor] = {}

    def linear(self, device: Device) -> Tensor:
        return self.c - self.own.get(device.number, torch.zeros_like(self.c))

    def effective(self, steps: int) -> float:
        """Return the sum of all steps' shares of one gradient, (1 - b^(K-j)) / (1 - b)."""
        b = self.momentum
        return sum((1 - b ** (steps - j)) / (1 - b) for j in range(steps))

    def remember(self, done: Done) -> None:
        change = torch.zeros_like(self.c)
        new: dict[int, Tensor] = {}
        for device, theta in zip(done.devices, done.thetas, strict=True):
            old = self.own.get(device.number, torch.zeros_like(self.c))
            if self.option == 1:
                count = sum(len(y) for _, y in device.batches)
                at_start = torch.zeros_like(self.c)
                for x, y in device.batches:
                    module = self.at(self.w)
                    at_start += len(y) / count * slope(self.loss(device, module, x, y), module)
                new[device.number] = at_start
            else:
                moved = (self.w - theta) / (done.lr * self.effective(len(device.batches)))
                new[device.number] = old - self.c + moved
            change += device.samples * (new[device.number] - old)
        self.own |= new
        self.c = self.c + change / self.samples


class Scaffold1(Scaffold):
    option = 1


class ScaffoldAuthors(FedAvg):
    def serve(self, mean: Tensor, done: Done) -> Tensor:
        return self.w + done.lr * (mean - self.w)


class Moon(FedAvg):
    mu = 1.0
    tau = 1.0

    def prepare(self) -> None:
        self.last: dict[int, nn.Module] = {}

    def loss(self, device: Device, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits, z = module.train()(x)
        loss = functional.cross_entropy(logits, y)
        if device.number not in self.last:
            return loss
        with torch.no_grad():
            _, z_glob = self.at(self.w).eval()(x)
            _, z_prev = self.last[device.number].eval()(x)
        pairs = torch.stack(
            [functional.cosine_similarity(z, z_glob), functional.cosine_similarity(z, z_prev)], 1
        )
        first = torch.zeros(len(y), dtype=torch.int64)
        return loss + self.mu * functional.cross_entropy(pairs / self.tau, first)

    def remember(self, done: Done) -> None:
        for device, module in zip(done.devices, done.modules, strict=True):
            self.last[device.number] = copy.deepcopy(module)


class FedAcg(FedAvg):
    momentum_of_server = 0.5
    beta = 0.1

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w)

    @property
    def start(self) -> Tensor:
        return self.w + self.momentum_of_server * self.m

    def loss(self, device: Device, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return super().loss(device, module, x, y) + self.beta / 2 * self.away(module)

    def serve(self, mean: Tensor, done: Done) -> Tensor:
        self.m = self.momentum_of_server * self.m + (mean - self.start)
        return self.w + self.m


class FedAvgM(FedAvg):
    decay = 0.9
    rate = 1.0

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w)

    def serve(self, mean: Tensor, done: Done) -> Tensor:
        self.m = self.decay * self.m + (mean - self.w)
        return self.w + self.rate * self.m


class FedAdam(FedAvg):
    rate, beta1, beta2, tau = 0.01, 0.9, 0.99, 1e-3

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w)
        self.v = torch.full_like(self.w, self.tau**2)

    def second(self, squared: Tensor) -> Tensor:
        return self.beta2 * self.v + (1 - self.beta2) * squared

    def serve(self, mean: Tensor, done: Done) -> Tensor:
        d = mean - self.w
        self.m = self.beta1 * self.m + (1 - self.beta1) * d
        self.v = self.second(d * d)
        return self.w + self.rate * self.m / (self.v.sqrt() + self.tau)


class FedYogi(FedAdam):
    def second(self, squared: Tensor) -> Tensor:
        return self.v - (1 - self.beta2) * squared * torch.sign(self.v - squared)


class FedDyn(FedAvg):
    alpha = 0.01

    def prepare(self) -> None:
        self.h = torch.zeros_like(self.w)
        self.own: dict[int, Tensor] = {}

    def loss(self, device: Device, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        theta = parameters_to_vector(module.parameters())
        own = self.own.get(device.number, torch.zeros_like(self.w))
        near = self.alpha / 2 * self.away(module)
        return super().loss(device, module, x, y) - (own * theta).sum() + near

    def remember(self, done: Done) -> None:
        for device, theta in zip(done.devices, done.thetas, strict=True):
            own = self.own.get(device.number, torch.zeros_like(self.w))
            self.own[device.number] = own - self.alpha * (theta - self.w)

    def serve(self, mean: Tensor, done: Done) -> Tensor:
        moved = torch.zeros_like(self.w)
        for device, theta in zip(done.devices, done.thetas, strict=True):
            moved += device.samples * (theta - self.w)
        self.h = self.h - self.alpha * moved / self.samples
        return mean - self.h / self.alpha


PLAIN: dict[str, Callable[[nn.Module, int, float], FedAvg]] = {
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "scaffold-1": Scaffold1,
    "scaffold-authors": ScaffoldAuthors,
    "moon": Moon,
    "fedacg": FedAcg,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "feddyn": FedDyn,
}
"""With the defaults of the library's factories, which are those of the papers or of this one's."""
