"""Latency, energy and bytes of one round on the air.

In a round every device of a `Fleet` carries out a `Errand`: it receives bits, computes and sends
bits. `device_costs` gives the seconds and joules of every device, `round_cost` those of the round.
The settings are the section ``[wireless]`` of a configuration. Draws are functions of names
(`ebbflow.core.rng`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ebbflow.analysis.accounting import payload
from ebbflow.analysis.channel import (
    Array,
    Fading,
    Link,
    correlation,
    ergodic_times,
    large_scale,
    noise_density,
    path_loss,
    ring_distance,
    scaled_exp1,
    slot_times,
    slot_warning,
)
from ebbflow.config.schema import Wireless
from ebbflow.core.counters import FLOAT, Payload
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.core.rng import Name, generator


class ModelSize(NamedTuple):
    """N_p, the number of parameters, and phi, operations per parameter and sample."""

    parameters: int
    complexity: float


MODELS = {
    "mnist": ModelSize(7_850, 2.00),
    "fmnist": ModelSize(7_850, 2.00),
    "svhn": ModelSize(667_178, 91.04),
    "cifar10": ModelSize(11_573_066, 6.50),
    "cifar100": ModelSize(11_596_196, 6.50),
    "tinyimagenet": ModelSize(21_730_056, 27.69),
    "agnews": ModelSize(9_157_804, 2.63e-4),
}
"""The paper's table by data set. Its phi counts the forward pass only (see ``wireless.passes``)."""

BITS = {"none": 32, "fp16": 16, "int8": 8}
"""Bits of a value on the air by compression; the scales of 8-bit values are not counted."""

SHORT = 1000.0
"""The longest transfer, in slots, that ``fading = "auto"`` follows slot by slot."""


# --- the task and the devices --------------------------------------------------------------------


class Errand(NamedTuple):
    """The work of a round: the bits that each device receives and sends, and its operations.

    ``down`` and ``operations`` are one number if it is the same for all devices, otherwise an array
    [K].
    """

    down: float | Array
    up: float
    operations: float | Array


def round_task(
    wireless: Wireless,
    model: ModelSize,
    *,
    algorithm: str = "fedavg",
    steps: float = 5,
    batch: int = 128,
) -> Errand:
    """Return the task of a round in which every device makes e steps on B samples each.

    docs/costs.md has a table of what each algorithm sends.
    """
    return sized_task(wireless, model, payload(algorithm, model.parameters), steps * batch)


def sized_task(
    wireless: Wireless, model: ModelSize, sent: Payload, samples: float | Sequence[int]
) -> Errand:
    """Return the task of a round in which known bytes are sent and known samples trained on.

    Args:
        wireless: Compression, and how many passes a training step counts.
        model: Its N_p phi operations per sample.
        sent: The bytes of one upload and of one broadcast, four to a value.
        samples: The samples that every device trains on, or those of each device.
    """
    bits = BITS[wireless.compression] / FLOAT
    each = model.parameters * model.complexity * wireless.passes
    work = each * (samples if isinstance(samples, int | float) else np.asarray(samples, float))
    return Errand(sent.down * bits, sent.up * bits, work)


class Fleet(NamedTuple):
    """The devices of a round, one array [K] each: psi_k, v_k, P_k^tx, P_k^rx, f_k, chi, xi_k.

    ``fading`` holds the names by which each device draws its fading.
    """

    psi: Array
    speed: Array
    power: Array
    receive: Array
    cpu: Array
    efficiency: Array
    capacitance: Array
    fading: tuple[tuple[Name, ...], ...]


def draw_fleet(
    wireless: Wireless, devices: Sequence[int], seed: int, session: int = 1, t: Name = 1
) -> Fleet:
    """Draw the positions, shadowing and fading of the devices of round t of a session.

    The draws of a device depend on its number, not on who else takes part. A slot that is too long
    for the speed of the devices gives a warning.
    """
    numbers = np.asarray(devices, dtype=np.int64)
    lasting: tuple[Name, ...] = {
        "run": (seed,),
        "session": (seed, session),
        "round": (seed, session, t),
    }[wireless.redraw]

    def in_turn(values: float | list[float]) -> Array:
        cycle = np.atleast_1d(np.asarray(values, dtype=np.float64))
        return np.asarray(cycle[numbers % len(cycle)])

    count = int(numbers.max(initial=-1)) + 1
    if wireless.distance is None:
        uniform = generator("wireless-position", *lasting).random(count)[numbers]
        distance = ring_distance(uniform, wireless.min_distance, wireless.radius)
    else:
        distance = in_turn(wireless.distance)
    loss = path_loss(
        distance,
        carrier=wireless.carrier,
        server=wireless.height_server,
        device=wireless.height_device,
        environment=wireless.height_environment,
    )
    standard = generator("wireless-shadowing", *lasting).standard_normal(count)[numbers]
    too_long = slot_warning(wireless.speed, wireless.carrier, wireless.slot)
    if too_long is not None:
        warnings.warn(too_long, EbbflowWarning, stacklevel=2)
    return Fleet(
        large_scale(loss, wireless.shadowing * standard),
        in_turn(wireless.speed),
        in_turn(wireless.power_device),
        in_turn(wireless.power_receive),
        in_turn(wireless.cpu),
        in_turn(wireless.flops_per_cycle),
        in_turn(wireless.capacitance),
        tuple(("wireless-fading", seed, session, t, device) for device in devices),
    )


@contextmanager
def within_numbers(wireless: Wireless) -> Iterator[None]:
    """Turn numbers that overflow, or vanish and are divided by, into a sentence about the cell."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            yield
    except ArithmeticError as error:
        changed = wireless.model_dump(exclude_defaults=True).items()
        named = ", ".join(f"{key} = {value}" for key, value in changed) or "all as usual"
        raise EbbflowError(
            f"[wireless] ({named}) leads to costs that are no numbers ({error}): check that the "
            "values are in SI units, and bring them nearer to the usual ones"
        ) from error


# --- bandwidth -----------------------------------------------------------------------------------


def shares(wireless: Wireless, fleet: Fleet, task: Errand) -> Array:
    """Return the bandwidth of every device in Hz, by ``wireless.allocation``.

    Under ``downlink = "multicast"`` that is the bandwidth for sending alone.
    """
    count = len(fleet.psi)
    if wireless.allocation == "per_device":
        return np.full(count, wireless.bandwidth)
    equal = np.full(count, wireless.bandwidth / count)
    if wireless.allocation == "equal":
        return equal
    if wireless.downlink == "multicast":  # takes all devices equally long, whatever their shares
        task = task._replace(down=0.0)
    return finish_together(wireless, fleet, task)


def finish_together(wireless: Wireless, fleet: Fleet, task: Errand, rounds: int = 60) -> Array:
    """Return the shares of W with which all devices finish at the same time, at mean rates.

    Bisection on the common time T. Device k needs the bandwidth w_k that solves
    T_comp + Z/R_DL(w_k) + Z/R_UL(w_k) = T; it falls as T grows, and T is right when the w_k add up
    to W. The left side is convex and falling in w_k, so Newton's method reaches w_k from below.
    """
    noise = noise_density(wireless.noise)
    strength = np.stack([wireless.power_server * fleet.psi, fleet.power * fleet.psi]) / noise
    bits = np.stack([np.broadcast_to(moved, len(fleet.psi)) for moved in (task.down, task.up)])
    busy = computation_time(fleet, task)
    width = np.full(len(fleet.psi), wireless.bandwidth / len(fleet.psi))

    def moving(w: Array) -> tuple[Array, Array]:
        """Return the time to move all bits, and its derivative: R = w g(y) / ln 2, y = w / s."""
        y = w / strength
        g = scaled_exp1(y)
        speed = w * g / math.log(2)
        slope = (g * (1 + y) - 1) / math.log(2)
        return (bits / speed).sum(axis=0), -(bits * slope / speed**2).sum(axis=0)

    def needed(finish: float, w: Array) -> Array:
        for _ in range(100):
            time, slope = moving(w)
            step = (finish - busy - time) / slope
            after = np.maximum(w + step, w / 8)
            if np.all(np.abs(after - w) <= 1e-12 * w) or after.sum() > 1e3 * wireless.bandwidth:
                return after
            w = after
        return w

    # As the bandwidth grows without limit, R tends to s / ln 2: nobody finishes before that.
    least = float((busy + (bits * math.log(2) / strength).sum(axis=0)).max())
    most = float((busy + moving(width)[0]).max())
    for _ in range(rounds):
        middle = (least + most) / 2
        trial = needed(middle, width)
        if trial.sum() > wireless.bandwidth:
            least = middle
        else:
            most, width = middle, trial
    return np.asarray(width * (wireless.bandwidth / width.sum()))


# --- costs ---------------------------------------------------------------------------------------


def computation_time(fleet: Fleet, task: Errand) -> Array:
    """Return T_k^comp = N_p phi e_k B / (f_k chi) in s."""
    return np.asarray(task.operations / (fleet.cpu * fleet.efficiency))


def computation_energy(fleet: Fleet, task: Errand) -> Array:
    """Return E_k^comp = xi_k (N_p phi e_k B / chi) f_k^2 in J."""
    return np.asarray(fleet.capacitance * (task.operations / fleet.efficiency) * fleet.cpu**2)


class DeviceCosts(NamedTuple):
    """Seconds that every device receives, computes and sends, and the joules of each; [K]."""

    down: Array
    computation: Array
    up: Array
    energy_down: Array
    energy_computation: Array
    energy_up: Array

    @property
    def time(self) -> Array:
        """T_k = T_k^DL + T_k^comp + T_k^UL."""
        return self.down + self.computation + self.up

    @property
    def energy(self) -> Array:
        """E_k = P_k^rx T_k^DL + E_k^comp + P_k^tx T_k^UL."""
        return self.energy_down + self.energy_computation + self.energy_up


def device_costs(wireless: Wireless, fleet: Fleet, task: Errand) -> DeviceCosts:
    """Return what a round costs every device."""
    return spent(fleet, task, *transfer_times(wireless, fleet, task))


def spent(fleet: Fleet, task: Errand, down: Array, up: Array) -> DeviceCosts:
    """Return the costs of devices that receive and send for so many seconds."""
    return DeviceCosts(
        down,
        computation_time(fleet, task),
        up,
        fleet.receive * down,
        computation_energy(fleet, task),
        fleet.power * up,
    )


def transfer_times(wireless: Wireless, fleet: Fleet, task: Errand) -> tuple[Array, Array]:
    """Return T_k^DL and T_k^UL in s.

    Under ``downlink = "multicast"`` one copy is sent over the whole of W until the worst device has
    received it, so T_k^DL is the same for all.
    """
    multicast = wireless.downlink == "multicast"
    sending = shares(wireless, fleet, task)
    receiving = np.full(len(sending), wireless.bandwidth) if multicast else sending
    widths = np.stack([receiving, sending])
    noise = noise_density(wireless.noise) * widths
    links = [
        Link(np.full(len(sending), task.down), wireless.power_server * fleet.psi / noise[0]),
        Link(np.full(len(sending), task.up), fleet.power * fleet.psi / noise[1]),
    ]
    down, up = (ergodic_times(width, link) for width, link in zip(widths, links, strict=True))
    longest = max(float(np.max(down, initial=0)), float(np.max(up, initial=0)))
    short = longest <= SHORT * wireless.slot
    if wireless.fading == "slots" or (wireless.fading == "auto" and short):
        rho = correlation(fleet.speed, wireless.carrier, wireless.slot)
        fading = Fading([generator(*names) for names in fleet.fading], rho)
        down, up = slot_times(widths, links, fading, wireless.slot)
    if multicast:
        down = np.full(len(down), np.max(down, initial=0))
    return down, up


class RoundCost(NamedTuple):
    """What a round costs: seconds, joules, and the bytes on the air, down and up.

    A model counts as often as it is sent: once for every device, or once to all. Rounds follow each
    other, so their costs add up (`total`).
    """

    latency: float = 0.0
    energy: float = 0.0
    down: float = 0.0
    up: float = 0.0

    def times(self, rounds: float) -> RoundCost:
        """Return the cost of so many rounds like this one."""
        return RoundCost(*(rounds * value for value in self))


def total(costs: Sequence[RoundCost]) -> RoundCost:
    """Return the sum of costs.

    >>> total([RoundCost(1.0, 2.0, 3.0, 4.0), RoundCost(latency=1.0)])
    RoundCost(latency=2.0, energy=2.0, down=3.0, up=4.0)
    """
    return RoundCost(*(math.fsum(column) for column in zip(*costs, strict=True)))


def round_cost(wireless: Wireless, fleet: Fleet, task: Errand) -> RoundCost:
    """Return what a round costs."""
    return together(wireless, task, device_costs(wireless, fleet, task))


def together(wireless: Wireless, task: Errand, costs: DeviceCosts) -> RoundCost:
    """Return the latency of the slowest device (or the mean latency) and the energy of all."""
    count = len(costs.time)
    latency = costs.time.max() if wireless.latency == "slowest" else costs.time.mean()
    return RoundCost(
        float(latency),
        math.fsum(costs.energy),
        _sent_down(wireless, task, count) / 8,
        count * task.up / 8,
    )


def _sent_down(wireless: Wireless, task: Errand, count: int) -> float:
    """Return the bits that the server sends."""
    if wireless.downlink == "multicast":
        return float(np.max(task.down))
    return float(np.sum(task.down)) if isinstance(task.down, np.ndarray) else count * task.down
