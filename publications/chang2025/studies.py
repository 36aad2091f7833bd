"""The paper's tables and figures by id, and the cells that each of them needs.

Tables share cells: a name stands for the same run wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from chang2025.cells import Cell
from chang2025.study_cells import (
    ABLATION_ROWS,
    FIRST_SEED,
    SCALES,
    SMALL_MODEL_DATASETS,
    Scale,
    ablation_cells,
    accuracy_cells,
    bound_cells,
    first_ten_cells,
    hundred_device_cells,
    pilot_variants,
    probe_variants,
    scale_variants,
    tinyimagenet_cells,
    twenty_device_cells,
)
from ebbflow.config.paper_rows import DATASETS, SEEDS
from ebbflow.core.errors import unknown


@dataclass(frozen=True)
class Study:
    """One table or figure: what it is, what it needs, and which cells.

    ``reference`` is the file of the paper's numbers; ``cells`` are those of a scale and seeds.
    """

    id: str
    title: str
    datasets: tuple[str, ...]
    cells: Callable[[Scale, Sequence[int]], list[Cell]]
    reference: str | None = None
    needs: Mapping[Scale, str] | None = None


def _together(*ids: str) -> Callable[[Scale, Sequence[int]], list[Cell]]:
    """Return the cells of several studies."""

    def cells(scale: Scale, seeds: Sequence[int]) -> list[Cell]:
        return [cell for name in ids for cell in STUDIES[name].cells(scale, seeds)]

    return cells


def _none(scale: Scale, seeds: Sequence[int]) -> list[Cell]:
    return []


_GPU = "GPU, --weights"
_ACCURACY_FILES = {
    "agnews": "accuracy_agnews_100.csv",
    "tinyimagenet": "accuracy_tinyimagenet_100.csv",
}


def accuracy_file(dataset: str) -> str:
    """Return the file of the paper's accuracies."""
    return _ACCURACY_FILES.get(dataset, "accuracy_images_100.csv")


def _accuracy(dataset: str) -> Study:
    heavy = {"svhn": "GPU", "cifar10": _GPU, "cifar100": _GPU, "tinyimagenet": _GPU}
    return Study(
        f"{dataset}-accuracy",
        f"Accuracy in the initial rounds, {DATASETS[dataset]}, 100 devices",
        (dataset,),
        lambda scale, seeds: accuracy_cells(dataset, scale, seeds),
        accuracy_file(dataset),
        {"full": heavy[dataset]} if dataset in heavy else None,
    )


def _first_ten(name: str, title: str, file: str, kinds: Sequence[str]) -> Study:
    return Study(
        name,
        title,
        ("mnist", "fmnist", "svhn", "cifar10", "cifar100"),
        lambda scale, seeds: list(first_ten_cells(kinds, scale, seeds)),
        file,
        {"full": f"images: {_GPU}"},
    )


def _ablation(
    name: str,
    title: str,
    file: str,
    variants: Callable[[str], Sequence[tuple[str, dict[str, Any]]]],
) -> Study:
    return Study(
        name,
        title,
        (*SMALL_MODEL_DATASETS, *ABLATION_ROWS),
        lambda scale, seeds: ablation_cells(scale, seeds, variants),
        file,
        {"full": f"images: {_GPU}"},
    )


_ALL = (
    *(_accuracy(dataset) for dataset in DATASETS),
    _ablation(
        "pilot-ema",
        "Pilot model as average or as EMA, P = 3, S = 9",
        "ablation_pilot_ema.csv",
        pilot_variants,
    ),
    _ablation(
        "probe-rounds", "Probe rounds V = 1, 2, 3", "ablation_probe_rounds.csv", probe_variants
    ),
    _ablation(
        "similarity-scale", "Similarity scale R", "ablation_similarity_scale.csv", scale_variants
    ),
    Study(
        "time-to-accuracy",
        "Rounds, latency and energy to a share of the peak, and accumulated gain",
        ("mnist", "fmnist", "svhn", "agnews", "tinyimagenet"),
        _together(
            "mnist-accuracy",
            "fmnist-accuracy",
            "svhn-accuracy",
            "agnews-accuracy",
            "tinyimagenet-accuracy",
        ),
        "time_to_accuracy.csv",
        {"full": f"images: {_GPU}"},
    ),
    _first_ten(
        "first10-two-shard-partial-overlap",
        "First ten rounds, Two-Shard and Partial-Overlap, 20 devices in all",
        "first10_two_shard_partial_overlap.csv",
        ("two_shard", "partial_overlap"),
    ),
    _first_ten(
        "first10-half-distinct",
        "First ten rounds, Half and Distinct, 20 devices in all",
        "first10_half_distinct.csv",
        ("half", "distinct"),
    ),
    Study(
        "first10-100-clients",
        "First ten rounds, Partial-Overlap, 100 devices in all (SCAFFOLD: 50)",
        SMALL_MODEL_DATASETS,
        lambda scale, seeds: list(hundred_device_cells(scale, seeds)),
        "first10_100_clients_partial_overlap.csv",
    ),
    Study(
        "first10-tinyimagenet",
        "First ten rounds, TinyImageNet, FedAvg",
        ("tinyimagenet",),
        lambda scale, seeds: list(tinyimagenet_cells(scale, seeds)),
        "first10_tinyimagenet_fedavg.csv",
        {"full": _GPU},
    ),
    Study("simulation-parameters", "Parameters and operations of the models", (), _none),
    Study("cost-analysis", "Uploads, steps and storage of Algorithm 1's stages", (), _none),
    Study(
        "resources-100",
        "Processor time and memory, 100 devices",
        tuple(DATASETS),
        _together(*(f"{dataset}-accuracy" for dataset in DATASETS)),
        "resources_100.csv",
        {"full": f"images: {_GPU}"},
    ),
    Study(
        "resources-20",
        "Processor time and memory, 20 devices",
        tuple(DATASETS),
        lambda scale, seeds: list(twenty_device_cells(scale, seeds)),
        "resources_20.csv",
        {"full": f"images: {_GPU}"},
    ),
    *(
        Study(
            f"{dataset}-curves",
            f"Accuracy over the rounds, {DATASETS[dataset]}",
            (dataset,),
            _together(f"{dataset}-accuracy"),
        )
        for dataset in DATASETS
    ),
    Study("bandwidth", "Latency and energy over the bandwidth", (), _none),
    Study("system-model", "Illustration: sessions, and devices that come and go", (), _none),
    Study("algorithm-illustration", "Illustration: Algorithm 1 with S = 4 and P = 1", (), _none),
    Study(
        "bound",
        "Theorem 1 beside a run",
        ("mnist",),
        lambda scale, seeds: list(bound_cells(scale, seeds)),
    ),
)
STUDIES = {study.id: study for study in _ALL}
"""Every table and figure by its id."""
APPENDIX_STUDIES = tuple(name for name in STUDIES if name.startswith("first10"))
"""The appendix's tables of the first ten rounds."""


def study(name: str) -> Study:
    """Return a table or figure by its id."""
    if name not in STUDIES:
        raise unknown(name, STUDIES, "table or figure", "ID")
    return STUDIES[name]


@cache
def cells_of(name: str, scale: Scale, seeds: tuple[int, ...]) -> tuple[Cell, ...]:
    """Return a study's cells; the same ones every time, for their configurations are resolved."""
    return tuple(study(name).cells(scale, seeds))


def default_seeds(scale: Scale) -> tuple[int, ...]:
    """Return the seeds of a scale: the paper's three, or its first."""
    return SEEDS if scale == "full" else FIRST_SEED


def all_cells(scales: Sequence[Scale] = SCALES, seeds: Sequence[int] = SEEDS) -> dict[str, Cell]:
    """Return every cell by its name."""
    return {
        cell.name: cell
        for scale in scales
        for each in STUDIES.values()
        for cell in each.cells(scale, seeds)
    }
