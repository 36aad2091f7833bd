"""The cells that the paper's tables need, on either scale.

``full`` is the paper's own set-up. ``small`` is what two cores can do with part of the data: hours
for AG News and SVHN, minutes for the others, where it only shows that the code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal

from chang2025.cells import WITHOUT_CONTINUOUS, Cell, DataSplit, make_cell
from ebbflow.config.paper_rows import DATASETS, SEEDS

Scale = Literal["full", "small"]
SCALES: tuple[Scale, ...] = ("full", "small")
MAIN_ALGORITHMS = ("moon", "fedprox", "scaffold-authors", "fedacg")
"""The algorithms of the main tables as they were run; the paper calls the third SCAFFOLD."""
EXTRA_ALGORITHMS = ("scaffold", "fedavg")
"""Shown beside them and never counted: the true SCAFFOLD, and FedAvg."""
APPENDIX_ALGORITHMS = ("fedavg", "fedprox", "moon", "scaffold-authors")
"""The algorithms of the appendix as they were run."""
SMALL_MODEL_DATASETS = ("mnist", "fmnist")
"""Data sets whose models are small enough to train all algorithms in lockstep."""
OVERLAPS = {dataset: (0.0, 0.8) if dataset == "agnews" else (0.0, 0.2) for dataset in DATASETS}
ALPHAS = (0.3, 0.7)
FIRST_SEED = SEEDS[:1]


def small_variant(rounds: int, sessions: int, devices: int, **more: Any) -> dict[str, Any]:
    """Return the settings that cut a row short."""
    return {
        "rounds": rounds,
        "pilot.rounds": rounds,
        "sessions": sessions,
        "partition.devices": devices,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


AGNEWS_DEVICES = 36
"""So many have 600 of the subset's 43,600 texts each, and make the paper's five steps a round."""

# What `small` means for rows whose data are there in part, or whose models are large.
_SHORT = {
    "mnist": small_variant(10, 7, 20, data__limit_train=6_000),
    "fmnist": small_variant(10, 7, 20, data__limit_train=6_000),
    "svhn": small_variant(25, 5, 20, data__limit_train=10_000, precision="bf16"),
    "cifar10": small_variant(3, 4, 4, data__limit_train=2_000, data__limit_test=500),
    "cifar100": small_variant(3, 4, 4, data__limit_train=2_000, data__limit_test=500),
    "tinyimagenet": small_variant(2, 4, 4, data__limit_train=2_000, data__limit_test=400),
    "agnews": {"data.limit_train": 43_600},
}


# --- the accuracy tables -------------------------------------------------------------------------


def accuracy_cells(dataset: str, scale: Scale, seeds: Sequence[int]) -> list[Cell]:
    """Return the cells of one data set's accuracy table."""
    return list(_accuracy_cells(dataset, scale, seeds))


def _accuracy_cells(dataset: str, scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    grid = product(OVERLAPS[dataset], ALPHAS, seeds)
    if scale == "full":
        for overlap, alpha, seed in grid:
            split = DataSplit(dataset, overlap=overlap, alpha=alpha)
            if dataset in SMALL_MODEL_DATASETS:
                yield make_cell(split, (*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS), seed)
            else:
                for algorithm in (*MAIN_ALGORITHMS, "scaffold"):
                    yield make_cell(split, [algorithm], seed)
        return
    for overlap, seed in product(OVERLAPS[dataset], seeds):
        yield from _small_accuracy(dataset, overlap, seed)


def _small_accuracy(dataset: str, overlap: float, seed: int) -> Iterator[Cell]:
    def cell(algorithms: Sequence[str], marks: Sequence[str] = ("small",), **more: Any) -> Cell:
        split = DataSplit(dataset, overlap=overlap, alpha=0.3)
        variant = {**_SHORT[dataset], **more}
        methods = (
            WITHOUT_CONTINUOUS if "fp32" in marks else None
        )  # enough to hold two precisions together
        return make_cell(
            split, algorithms, seed, methods=methods, variant=variant, marks=marks, subset=True
        )

    first = overlap == OVERLAPS[dataset][0]
    if dataset in SMALL_MODEL_DATASETS:
        yield cell((*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS))
    elif dataset == "agnews":
        # Beside it as many devices as the paper has, each of which makes two steps a round.
        for devices, algorithms in (
            (AGNEWS_DEVICES, (*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS)),
            (100, ("fedprox",)),
        ):
            split = DataSplit(dataset, overlap=overlap, alpha=0.7, devices=devices)
            for algorithm in algorithms:
                variant = _SHORT[dataset]
                yield make_cell(split, [algorithm], seed, variant=variant, subset=True)
    elif dataset == "svhn":
        yield cell(["fedprox"])
        yield cell(["moon"])
        if first:
            yield cell(["fedprox"], ["small", "fp32"], precision="fp32")
    elif first:
        yield cell(["fedprox"])


# --- the ablations -------------------------------------------------------------------------------

ABLATION_ROWS = {
    "agnews": (0.0, 0.7, "scaffold-authors"),
    "svhn": (0.2, 0.3, "moon"),
    "cifar100": (0.2, 0.7, "fedacg"),
    "tinyimagenet": (0.0, 0.3, "fedprox"),
}
"""Overlap, alpha and algorithm of the paper's rows; ours on MNIST and Fashion-MNIST have SVHN's."""
SMALL_MODEL_ABLATION = (0.2, 0.3)
PROBE_ROUNDS = (1, 2, 3)
SIMILARITY_SCALES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(ABLATION_ROWS, (10.0, 50.0, 100.0)),
    **dict.fromkeys(SMALL_MODEL_DATASETS, (10.0, 1.0, 50.0, 100.0)),
    "agnews": (800.0, 1000.0, 1200.0),
}
"""The values of R that are tried; the first is the usual one."""
PILOTS = ("average", "ema")
LONG_PILOT = {"pilot.sessions": 3, "sessions": 9}


def ablation_cells(
    scale: Scale,
    seeds: Sequence[int],
    variants: Callable[[str], Sequence[tuple[str, dict[str, Any]]]],
) -> list[Cell]:
    """Return the cells of an ablation: for every variant one, unless it is the table's own row."""
    cells = []
    for dataset in (*SMALL_MODEL_DATASETS, *ABLATION_ROWS):
        for seed in seeds:
            for mark, changed in variants(dataset):
                cell = _ablation_cell(dataset, scale, seed, mark, changed)
                if cell is not None:
                    cells.append(cell)
    return cells


def _ablation_cell(
    dataset: str, scale: Scale, seed: int, mark: str, changed: dict[str, Any]
) -> Cell | None:
    """Return one cell of an ablation; None where a scale leaves it out."""
    grey = dataset in SMALL_MODEL_DATASETS
    small = scale == "small"
    if small and dataset not in ("mnist", "agnews"):
        return None
    overlap, alpha = SMALL_MODEL_ABLATION if grey else ABLATION_ROWS[dataset][:2]
    devices = AGNEWS_DEVICES if small and dataset == "agnews" else None
    split = DataSplit(dataset, overlap=overlap, alpha=alpha, devices=devices)
    algorithms = MAIN_ALGORITHMS if grey else (ABLATION_ROWS[dataset][2],)
    marks = ["small"] if small and grey else []
    variant = _SHORT[dataset] if small else {}
    if not mark:  # the row of the accuracy table
        everyone = (*MAIN_ALGORITHMS, *EXTRA_ALGORITHMS) if grey else algorithms
        return make_cell(split, everyone, seed, variant=variant, marks=marks, subset=small)
    return make_cell(
        split,
        algorithms,
        seed,
        methods=["warm_start"],
        variant={**variant, **changed},
        marks=[*marks, mark],
        subset=small,
    )


def probe_variants(dataset: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the values of V with the marks of their cells."""
    return [("" if v == 1 else f"v{v}", {"probe.rounds": v}) for v in PROBE_ROUNDS]


def scale_variants(dataset: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the values of R with the marks of their cells; the first is the usual one."""
    others = SIMILARITY_SCALES[dataset][1:]
    return [("", {}), *((f"r{r:g}", {"parameters.warm_start.scale": r}) for r in others)]


def pilot_variants(dataset: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the two pilots of three sessions with the marks of their cells."""
    return [
        ("p3" if combine == "average" else "p3-ema", {**LONG_PILOT, "pilot.combine": combine})
        for combine in PILOTS
    ]


# --- the first ten rounds ------------------------------------------------------------------------


def first_ten_cells(kinds: Sequence[str], scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the cells of an appendix table with these distributions of labels."""
    for dataset, kind, seed in product(SMALL_MODEL_DATASETS, kinds, seeds):
        for model in ("softmax", "mlp"):
            yield _first_ten_cell(
                DataSplit(dataset, kind), (*APPENDIX_ALGORITHMS, "scaffold"), seed, model, scale
            )
    if scale == "small":
        return
    for dataset, kind, seed in product(("svhn", "cifar10", "cifar100"), kinds, seeds):
        if kind == "distinct":
            algorithms: tuple[str, ...] = ("fedavg", "fedprox") if dataset == "svhn" else ()
        else:
            algorithms = APPENDIX_ALGORITHMS
        for algorithm in algorithms:
            yield make_cell(DataSplit(dataset, kind), [algorithm], seed)


def _first_ten_cell(
    split: DataSplit, algorithms: Sequence[str], seed: int, model: str, scale: Scale
) -> Cell:
    variant: dict[str, Any] = {"model.kind": model}
    if scale == "small":
        variant |= {"rounds": 10, "pilot.rounds": 10, "data.limit_train": 6_000}
    marks = ["small"] if scale == "small" else []
    return make_cell(split, algorithms, seed, variant=variant, marks=marks, subset=scale == "small")


def hundred_device_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the cells of the appendix with 100 devices in all; SCAFFOLD has 50."""
    for seed, model in product(seeds, ("softmax", "mlp")):
        for dataset in SMALL_MODEL_DATASETS:
            split = DataSplit(dataset, "partial_overlap", devices=100)
            yield _first_ten_cell(split, ("fedavg", "fedprox", "moon"), seed, model, scale)
        split = DataSplit("mnist", "partial_overlap", devices=50)
        yield _first_ten_cell(split, ("scaffold-authors", "scaffold"), seed, model, scale)


def tinyimagenet_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the cells of the appendix's table for TinyImageNet."""
    for kind, seed in product(("half", "partial_overlap"), seeds):
        split = DataSplit("tinyimagenet", kind)
        if scale == "full":
            yield make_cell(split, ["fedavg"], seed)
        elif kind == "half":
            variant = {**_SHORT["tinyimagenet"], "partition.devices": 4}
            yield make_cell(split, ["fedavg"], seed, variant=variant, marks=["small"], subset=True)


# --- resources and the bound ---------------------------------------------------------------------


def twenty_device_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Return the rows with 20 devices a session, whose resources the paper lists."""
    algorithms = ("fedavg", "fedprox", "scaffold-authors", "fedacg")
    for dataset in SMALL_MODEL_DATASETS if scale == "full" else SMALL_MODEL_DATASETS[:1]:
        for seed in seeds[:1]:  # resources do not depend on it
            split = DataSplit(dataset, overlap=0.2, alpha=0.3, devices=20)
            short = small_variant(10, 7, 20, data__limit_train=6_000)
            yield make_cell(
                split,
                algorithms,
                seed,
                variant=short if scale == "small" else {},
                marks=["small"] if scale == "small" else [],
                subset=scale == "small",
            )


THEOREM_SETTING = {
    "local.momentum": 0.0,
    "local.rule": "each_step",
    "local.steps": 3,
    "lr.algorithms.fedavg.initial": 0.0005,
    "lr.algorithms.fedavg.floor": 1.0,
}
"""Plain SGD on fresh draws at a rate that the theorem's condition allows."""


def bound_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the runs that are made again beside the theorem: FedAvg, which it is about.

    As the authors ran it, and in the theorem's own setting; one seed, for constants are estimated.
    """
    small = scale == "small"
    short: dict[str, Any] = _SHORT["mnist"] if small else {}
    for mark, changed in (("bound", {}), ("bound-plain", THEOREM_SETTING)):
        cell = make_cell(
            DataSplit("mnist", overlap=0.0, alpha=0.3),
            ["fedavg"],
            seeds[0],
            methods=WITHOUT_CONTINUOUS,
            variant={**short, **changed},
            marks=[mark, "small"] if small else [mark],
            subset=small,
        )
        yield replace(cell, theorem=True)
