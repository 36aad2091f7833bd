"""What is measured: fork studies by family, each cell with one setting, algorithm and seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from chang2025.cells import Cell
from ebbflow.config.defaults import SETTINGS
from ebbflow.core.errors import unknown
from learned_start.forking import ForkCell
from learned_start.rules import MAIN_RULES, MALICE_RULES, SENSITIVITY_RULES, Rule

DESIGN_SEEDS = (100, 200, 300)
"""The seeds that the start was designed with."""
TEST_SEEDS = (400, 500, 600)
"""The seeds that were run once, when the design was fixed."""
PARTITIONS: dict[str, dict[str, Any]] = {
    **{
        kind: {"partition.kind": kind, "partition.devices": 20}
        for kind in ("two_shard", "half", "partial_overlap", "distinct")
    },
    **{
        f"o{overlap}": {"partition.overlap": overlap, "partition.devices": 20}
        for overlap in (0.0, 0.8)
    },
}
"""Ten devices a session, or twenty where the labels of two groups overlap."""


def cell(
    name: str,
    dataset: str,
    algorithm: str,
    seed: int,
    values: dict[str, Any],
    rules: Sequence[Rule] = MAIN_RULES,
    rounds: int = 10,
    repeats: int = 1,
) -> ForkCell:
    """Return a fork cell; ``name`` is completed by algorithm and seed."""
    common = {"dataset": dataset, "algorithm": [algorithm], "seeds": [seed]}
    # The paper's start is what the setting's only method is, so that its R is the data set's.
    settings = {**common, "methods": ["warm_start"], **values}
    setting = Cell(f"{name}-{algorithm}-s{seed}", settings)
    return ForkCell(setting, tuple(rules), rounds, repeats)


def _softmax(seeds: Sequence[int]) -> Iterator[ForkCell]:
    algorithms = ("fedavg", "scaffold", "fedprox")
    for seed, algorithm, dataset in product(seeds, algorithms, ("mnist", "fmnist")):
        first, floor = SETTINGS[dataset].rates
        # The rates that were published for SCAFFOLD are those of the authors' variant of it.
        rates = {
            f"lr.algorithms.{algorithm}.{key}": value
            for key, value in (("initial", first), ("floor", floor))
        }
        for name, values in PARTITIONS.items():
            yield cell(f"{dataset}-{name}", dataset, algorithm, seed, {**values, **rates})


def _fast(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, dataset, name in product(seeds, ("mnist", "fmnist"), PARTITIONS):
        values = PARTITIONS[name]
        yield cell(f"fast-{dataset}-{name}", dataset, "scaffold", seed, values)


def _perceptron(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, name in product(seeds[:2], ("two_shard", "partial_overlap", "distinct")):
        values = {**PARTITIONS[name], "model.kind": "mlp"}
        yield cell(f"mnist-mlp-{name}", "mnist", "fedavg", seed, values)


def _texts(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, overlap in product(seeds[:1], (0.0, 0.8)):
        values = {
            "data.limit_train": 8_000,
            "partition.overlap": overlap,
            "partition.alpha": 0.7,
            "partition.devices": 10,
        }
        yield cell(f"agnews-o{overlap}", "agnews", "fedavg", seed, values, repeats=2)


def _images(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed in seeds[:1]:
        svhn = {
            "data.limit_train": 3_000,
            "data.limit_test": 2_000,
            "partition.overlap": 0.2,
            "partition.devices": 8,
            "rounds": 15,
            "sessions": 6,
            "local.batch": 32,
        }
        yield cell("svhn-o0.2", "svhn", "fedavg", seed, svhn, rounds=8, repeats=2)
        cifar = {
            "data.limit_train": 1_200,
            "data.limit_test": 500,
            "partition.overlap": 0.2,
            "partition.devices": 4,
            "rounds": 6,
            "sessions": 5,
            "local.batch": 16,
        }
        yield cell("cifar10-o0.2", "cifar10", "fedavg", seed, cifar, rounds=3, repeats=2)


def _sensitivity(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, name in product(seeds, ("two_shard", "distinct", "o0.0", "o0.8")):
        values = PARTITIONS[name]
        rules = SENSITIVITY_RULES
        yield cell(f"sensitivity-mnist-{name}", "mnist", "fedavg", seed, values, rules)


def _malice(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, name in product(seeds, ("two_shard", "distinct", "o0.0", "o0.8")):
        yield cell(f"malice-mnist-{name}", "mnist", "fedavg", seed, PARTITIONS[name], MALICE_RULES)


STRANGERS = (1, 3, 5, 7, 9, 2)
"""One group of devices for five sessions, then the other, which nobody has seen before."""


def _strangers(seeds: Sequence[int]) -> Iterator[ForkCell]:
    for seed, dataset, name in product(seeds, ("mnist", "fmnist"), ("o0.0", "two_shard")):
        values = {**PARTITIONS[name], "sessions": 9}
        usual = cell(f"strangers-{dataset}-{name}", dataset, "fedavg", seed, values)
        yield replace(usual, order=STRANGERS, since=len(STRANGERS))


class ForkFamily(NamedTuple):
    """A table of forks: its title, and its cells for some seeds."""

    title: str
    cells: Callable[[Sequence[int]], Iterator[ForkCell]]


FAMILIES = {
    "softmax": ForkFamily("Softmax regression on MNIST and Fashion-MNIST", _softmax),
    "fast": ForkFamily("The same under SCAFFOLD at the rate published for a variant of it", _fast),
    "mlp": ForkFamily("A perceptron with one hidden layer on MNIST", _perceptron),
    "texts": ForkFamily("Averaged embeddings on AG News", _texts),
    "images": ForkFamily("Convolutional networks on SVHN and CIFAR-10", _images),
    "sensitivity": ForkFamily("What each part of the learned start is worth", _sensitivity),
    "malice": ForkFamily("A tenth of the asked devices answers wrongly", _malice),
    "strangers": ForkFamily("Devices and labels that were never there before", _strangers),
}


def cells_of(family: str, seeds: Sequence[int]) -> list[ForkCell]:
    """Return the cells of a family."""
    if family not in FAMILIES:
        raise unknown(family, FAMILIES, "family", "the command")
    return list(FAMILIES[family].cells(seeds))
