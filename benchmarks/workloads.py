"""The workloads that are timed, drawn by name, so that every contender trains the same one.

A workload is a model, a data set, and the mini-batches of a few rounds, which are used in turn.
`export` writes it as plain arrays for contenders in other processes; `imported` takes it from them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers.protocol import ExportedWorkload
from benchmarks.peers.user_modules import MODULES as USER_MODULES
from benchmarks.peers.user_modules import NUMBERS, PIXELS, SIDE, TwoInputs
from ebbflow.core.local import Cohort, Recipe
from ebbflow.core.packing import InputLayout, InputPart
from ebbflow.core.rng import generator, torch_generator
from ebbflow.core.types import Examples, Indices, Model, ModelState
from ebbflow.data.batches import local_batches
from ebbflow.models import MODELS, from_module

ROUNDS = 3  # drawn in advance and used in turn
SEED = 0
ZIPF_SHIFT = 2.7  # word frequencies are 1 / (rank + shift), as in English texts


@dataclass(frozen=True)
class Workload:
    """A few rounds: which device trains on which rows, from which model, at which rate.

    ``arguments`` are those that the model was made with, besides the shape and the classes.
    """

    name: str
    title: str
    model: Model
    initial: ModelState
    examples: Examples
    cohorts: tuple[Cohort, ...]
    batch: int
    lr: float
    recipe: Recipe
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def device_steps(self) -> int:
        """Local steps of all devices in one round."""
        return sum(len(steps) for steps in self.cohorts[0].batches)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the products of one round of dense layers: see `alone.ProductsOnly`."""
        first, *others = (
            rows * columns for rows, columns in (s for s in self.model.layout.shapes if len(s) == 2)
        )
        return sum(self.cohorts[0].samples) * (2 * first + 3 * sum(others))

    def cohort(self, turn: int) -> Cohort:
        """Return the cohort of a round."""
        return self.cohorts[turn % len(self.cohorts)]


def _cohort(turn: int, batches: Sequence[Sequence[Indices]], shards: Sequence[Indices]) -> Cohort:
    """Return the cohort of a round in which every device takes part."""
    return Cohort(
        1,
        turn + 1,
        tuple(range(len(shards))),
        batches,
        tuple(len(shard) for shard in shards),
        (SEED, "bench"),
        shards,
    )


def _workload(
    name: str,
    title: str,
    model: Model,
    examples: Examples,
    devices: int,
    batch: int,
    lr: float,
    arguments: Mapping[str, Any] | None = None,
) -> Workload:
    """Give every device the same number of rows, in one shuffled pass per round."""
    samples = len(examples) // devices
    shards = tuple(np.arange(devices * samples).reshape(devices, samples))
    cohorts = tuple(
        _cohort(
            t,
            tuple(
                local_batches(
                    generator(SEED, "bench", name, t, device),
                    shard,
                    -(-samples // batch),
                    batch,
                    "one_pass",
                )
                for device, shard in enumerate(shards)
            ),
            shards,
        )
        for t in range(ROUNDS)
    )
    initial = model.initial(torch_generator(SEED, "bench", name, "initial"))
    return Workload(
        name, title, model, initial, examples, cohorts, batch, lr, Recipe(), arguments or {}
    )


def softmax_workload(
    devices: int = 100, samples: int = 600, batch: int = 128, inputs: int = 784
) -> Workload:
    """Return W1: softmax regression on inputs of MNIST's size."""
    draw = torch_generator(SEED, "bench", "W1", "data")
    x = torch.rand(devices * samples, inputs, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    title = (
        f"softmax regression {inputs} → 10, {devices} devices, {samples} samples each in one pass"
    )
    model = MODELS["softmax"]((inputs,), 10)
    return _workload("W1", title, model, Examples(x, y), devices, batch, 0.01)


def cnn_workload(
    devices: int = 20, samples: int = 160, batch: int = 32, side: int = 32
) -> Workload:
    """Return W2: the convolutional network for SVHN, without its dropout."""
    draw = torch_generator(SEED, "bench", "W2", "data")
    x = torch.randn(devices * samples, 3, side, side, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    title = f"the SVHN network without dropout, {devices} devices, {samples} samples each"
    arguments = {"dropout": 0.0}
    model = MODELS["cnn"]((3, side, side), 10, **arguments)
    return _workload("W2", title, model, Examples(x, y), devices, batch, 0.01, arguments)


def resnet_workload(samples: int = 128, side: int = 32) -> Workload:
    """Return W3: one step of ResNet-18."""
    draw = torch_generator(SEED, "bench", "W3", "data")
    x = torch.randn(samples, 3, side, side, generator=draw)
    y = torch.randint(0, 10, (samples,), generator=draw)
    title = f"ResNet-18 at {side} × {side}, one step of {samples} images on one thread"
    model = MODELS["resnet18"]((3, side, side), 10)
    return _workload("W3", title, model, Examples(x, y), 1, samples, 0.01)


def text_workload(
    devices: int = 100,
    samples: int = 640,
    batch: int = 128,
    vocabulary: int = 30_522,
    width: int = 300,
    length: int = 60,
) -> Workload:
    """Return W4: averaged embeddings, with word frequencies like those of natural text."""
    draw = generator(SEED, "bench", "W4", "data")
    frequency = 1 / (np.arange(vocabulary - 1) + ZIPF_SHIFT)
    # Frequent words are not neighbours in the table; number 0 is padding.
    words = 1 + draw.permutation(vocabulary - 1)
    ranks = draw.choice(vocabulary - 1, (devices * samples, length), p=frequency / frequency.sum())
    y = torch.from_numpy(draw.integers(0, 4, devices * samples))
    title = f"averaged embeddings {vocabulary:,} × {width}, {devices} devices, {samples} texts each"
    arguments = {"vocabulary": vocabulary, "width": width}
    model = MODELS["embedding"]((length,), 4, **arguments)
    examples = Examples(torch.from_numpy(words[ranks]), y)
    return _workload("W4", title, model, examples, devices, batch, 0.1, arguments)


def mlp_workload(
    devices: int = 100, samples: int = 640, batch: int = 128, hidden: int = 200
) -> Workload:
    """Return W5: a perceptron with one hidden layer on inputs of MNIST's size."""
    draw = torch_generator(SEED, "bench", "W5", "data")
    x = torch.rand(devices * samples, 784, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    title = f"perceptron 784 → {hidden} → 10, {devices} devices, {samples} samples each"
    arguments = {"hidden": hidden}
    model = MODELS["mlp"]((784,), 10, **arguments)
    return _workload("W5", title, model, Examples(x, y), devices, batch, 0.01, arguments)


_SEQUENCES = ("transformer encoder", "GRU")
_TWO = "two inputs"


def module_workload(name: str, devices: int = 20, samples: int = 160, batch: int = 32) -> Workload:
    """Return a round of one of the modules that stand for those of users."""
    draw = torch_generator(SEED, "bench", "modules", "data")
    shape = {_TWO: (PIXELS + NUMBERS,)}.get(name, (SIDE, SIDE) if name in _SEQUENCES else (PIXELS,))
    x = torch.randn(devices * samples, *shape, generator=draw)
    y = torch.randint(0, 10, (len(x),), generator=draw)
    if name == _TWO:
        parts = (InputPart("picture", (PIXELS,)), InputPart("numbers", (NUMBERS,)))
        model = from_module(TwoInputs, name, inputs=InputLayout(parts))
    else:
        model = from_module(USER_MODULES[name], name)
    return _workload(name, name, model, Examples(x, y), devices, batch, 0.01)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "W1": softmax_workload,
    "W2": cnn_workload,
    "W3": resnet_workload,
    "W4": text_workload,
    "W5": mlp_workload,
}
"""The workloads in the sizes that are reported."""


def in_double(workload: Workload) -> Workload:
    """Return the workload in double precision, where equal functions give nearly equal results."""
    x, y = workload.examples.x, workload.examples.y
    return replace(
        workload,
        initial=ModelState(*(tensor.double() for tensor in workload.initial)),
        examples=Examples(x.double() if x.is_floating_point() else x, y),
    )


INPUTS, ARRAYS, FACTS = "x.npy", "workload.npz", "workload.json"


def export(workload: Workload, folder: Path) -> None:
    """Write a workload for contenders in other processes.

    ``x.npy`` holds only the inputs, so that several processes can map one copy. ``workload.npz``
    holds the labels ``y``, the initial ``theta`` and ``buffers``, and ``order [rounds, devices,
    samples]``: the rows of each device in the order of its steps, ``batch`` rows per step.
    ``workload.json`` holds the rest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    order = np.array(
        [[np.concatenate(steps) for steps in cohort.batches] for cohort in workload.cohorts]
    )
    np.save(folder / INPUTS, workload.examples.x.numpy())
    np.savez(
        folder / ARRAYS,
        y=workload.examples.y.numpy(),
        theta=workload.initial.theta.numpy(),
        buffers=workload.initial.buffers.numpy(),
        order=order,
    )
    facts: dict[str, Any] = {
        "name": workload.name,
        "title": workload.title,
        "model": workload.model.name,
        "arguments": dict(workload.arguments),
        "names": workload.model.layout.names,
        "shapes": workload.model.layout.shapes,
        "buffer_names": workload.model.buffer_layout.names,
        "buffer_shapes": workload.model.buffer_layout.shapes,
        "devices": len(workload.cohorts[0].devices),
        "samples": workload.cohorts[0].samples[0],
        "batch": workload.batch,
        "lr": workload.lr,
        "momentum": workload.recipe.momentum,
        "inputs": list(workload.examples.x.shape[1:]),
        "classes": workload.model.layout.shapes[-1][0],
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def imported(read: ExportedWorkload) -> Workload:
    """Return a workload as it was exported; its model is one of `ebbflow.models.MODELS`."""
    facts = read.facts
    devices = range(facts["devices"])
    shards = tuple(np.sort(read.rows(0, device)) for device in devices)
    return Workload(
        facts["name"],
        facts["title"],
        MODELS[facts["model"]](tuple(facts["inputs"]), facts["classes"], **facts["arguments"]),
        ModelState(torch.from_numpy(read.theta), torch.from_numpy(read.buffers)),
        Examples(torch.from_numpy(np.array(read.x)), torch.from_numpy(read.y)),
        tuple(
            _cohort(turn, tuple(tuple(read.batches(turn, device)) for device in devices), shards)
            for turn in range(len(read.order))
        ),
        facts["batch"],
        facts["lr"],
        Recipe(momentum=facts["momentum"]),
        facts["arguments"],
    )
