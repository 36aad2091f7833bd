"""The paper's tables and figures, and the cells that each of them needs.

Two scales. ``full`` is the paper's own set-up. ``small`` is what two cores and the subsets of the
data can do: hours for AG News and SVHN, minutes for the others, where it only shows that the path
runs. Tables share cells: a name stands for the same run wherever it occurs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Literal

from chang2025.cells import LABELLED, Cell, Spread, make_cell
from ebbflow.config.paper_rows import DATASETS, SEEDS
from ebbflow.core.errors import unknown

Scale = Literal["full", "small"]
SCALES: tuple[Scale, ...] = ("full", "small")
RAN = ("moon", "fedprox", "scaffold-authors", "fedacg")
"""The algorithms of the main tables as they were run; the paper calls the third SCAFFOLD."""
BESIDE = ("scaffold", "fedavg")
"""Shown beside them and never counted: the true SCAFFOLD, and FedAvg."""
APPENDIX = ("fedavg", "fedprox", "moon", "scaffold-authors")
"""The algorithms of the appendix as they were run."""
GREY = ("mnist", "fmnist")
"""Data sets whose models are small enough to train all algorithms in lockstep."""
OVERLAPS = {dataset: (0.0, 0.8) if dataset == "agnews" else (0.0, 0.2) for dataset in DATASETS}
ALPHAS = (0.3, 0.7)
FIRST_SEED = SEEDS[:1]


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
            spread = Spread(dataset, overlap=overlap, alpha=alpha)
            if dataset in GREY:
                yield make_cell(spread, (*RAN, *BESIDE), seed)
            else:
                for algorithm in (*RAN, "scaffold"):
                    yield make_cell(spread, [algorithm], seed)
        return
    for overlap, seed in product(OVERLAPS[dataset], seeds):
        yield from _small_accuracy(dataset, overlap, seed)


def _small_accuracy(dataset: str, overlap: float, seed: int) -> Iterator[Cell]:
    def cell(algorithms: Sequence[str], marks: Sequence[str] = ("small",), **more: Any) -> Cell:
        spread = Spread(dataset, overlap=overlap, alpha=0.3)
        variant = {**_SHORT[dataset], **more}
        methods = LABELLED if "fp32" in marks else None  # enough to hold two precisions together
        return make_cell(
            spread, algorithms, seed, methods=methods, variant=variant, marks=marks, subset=True
        )

    first = overlap == OVERLAPS[dataset][0]
    if dataset in GREY:
        yield cell((*RAN, *BESIDE))
    elif dataset == "agnews":
        # Beside it as many devices as the paper has, each of which makes two steps a round.
        for devices, algorithms in ((AGNEWS_DEVICES, (*RAN, *BESIDE)), (100, ("fedprox",))):
            spread = Spread(dataset, overlap=overlap, alpha=0.7, devices=devices)
            for algorithm in algorithms:
                variant = _SHORT[dataset]
                yield make_cell(spread, [algorithm], seed, variant=variant, subset=True)
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
GREY_ABLATION = (0.2, 0.3)
PROBE_ROUNDS = (1, 2, 3)
SIMILARITY_SCALES: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(ABLATION_ROWS, (10.0, 50.0, 100.0)),
    **dict.fromkeys(GREY, (10.0, 1.0, 50.0, 100.0)),
    "agnews": (800.0, 1000.0, 1200.0),
}
"""The values of R that are tried; the first is the usual one."""
PILOTS = ("average", "ema")
LONG_PILOT = {"pilot.sessions": 3, "sessions": 9}


def _ablation_cells(
    scale: Scale,
    seeds: Sequence[int],
    variants: Callable[[str], Sequence[tuple[str, dict[str, Any]]]],
) -> list[Cell]:
    """Return the cells of an ablation: for every variant one, unless it is the table's own row."""
    found = []
    for dataset in (*GREY, *ABLATION_ROWS):
        for seed in seeds:
            for mark, changed in variants(dataset):
                cell = _ablation_cell(dataset, scale, seed, mark, changed)
                if cell is not None:
                    found.append(cell)
    return found


def _ablation_cell(
    dataset: str, scale: Scale, seed: int, mark: str, changed: dict[str, Any]
) -> Cell | None:
    """Return one cell of an ablation; None where a scale leaves it out."""
    grey = dataset in GREY
    small = scale == "small"
    if small and dataset not in ("mnist", "agnews"):
        return None
    overlap, alpha = GREY_ABLATION if grey else ABLATION_ROWS[dataset][:2]
    devices = AGNEWS_DEVICES if small and dataset == "agnews" else None
    spread = Spread(dataset, overlap=overlap, alpha=alpha, devices=devices)
    algorithms = RAN if grey else (ABLATION_ROWS[dataset][2],)
    marks = ["small"] if small and grey else []
    variant = _SHORT[dataset] if small else {}
    if not mark:  # the row of the accuracy table
        everyone = (*RAN, *BESIDE) if grey else algorithms
        return make_cell(spread, everyone, seed, variant=variant, marks=marks, subset=small)
    return make_cell(
        spread,
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


def _first_ten_cells(kinds: Sequence[str], scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    for dataset, kind, seed in product(GREY, kinds, seeds):
        for model in ("softmax", "mlp"):
            yield _first_ten_cell(
                Spread(dataset, kind), (*APPENDIX, "scaffold"), seed, model, scale
            )
    if scale == "small":
        return
    for dataset, kind, seed in product(("svhn", "cifar10", "cifar100"), kinds, seeds):
        if kind == "distinct":
            algorithms: tuple[str, ...] = ("fedavg", "fedprox") if dataset == "svhn" else ()
        else:
            algorithms = APPENDIX
        for algorithm in algorithms:
            yield make_cell(Spread(dataset, kind), [algorithm], seed)


def _first_ten_cell(
    spread: Spread, algorithms: Sequence[str], seed: int, model: str, scale: Scale
) -> Cell:
    variant: dict[str, Any] = {"model.kind": model}
    if scale == "small":
        variant |= {"rounds": 10, "pilot.rounds": 10, "data.limit_train": 6_000}
    marks = ["small"] if scale == "small" else []
    return make_cell(
        spread, algorithms, seed, variant=variant, marks=marks, subset=scale == "small"
    )


def _hundred_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    for seed, model in product(seeds, ("softmax", "mlp")):
        for dataset in GREY:
            spread = Spread(dataset, "partial_overlap", devices=100)
            yield _first_ten_cell(spread, ("fedavg", "fedprox", "moon"), seed, model, scale)
        spread = Spread("mnist", "partial_overlap", devices=50)
        yield _first_ten_cell(spread, ("scaffold-authors", "scaffold"), seed, model, scale)


def _tinyimagenet_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    for kind, seed in product(("half", "partial_overlap"), seeds):
        spread = Spread("tinyimagenet", kind)
        if scale == "full":
            yield make_cell(spread, ["fedavg"], seed)
        elif kind == "half":
            variant = {**_SHORT["tinyimagenet"], "partition.devices": 4}
            yield make_cell(spread, ["fedavg"], seed, variant=variant, marks=["small"], subset=True)


# --- what reads the cells of others --------------------------------------------------------------


def _together(*ids: str) -> Callable[[Scale, Sequence[int]], list[Cell]]:
    """Return the cells of several studies."""

    def cells(scale: Scale, seeds: Sequence[int]) -> list[Cell]:
        return [cell for name in ids for cell in STUDIES[name].cells(scale, seeds)]

    return cells


def _none(scale: Scale, seeds: Sequence[int]) -> list[Cell]:
    return []


THEOREM_SETTING = {
    "local.momentum": 0.0,
    "local.rule": "each_step",
    "local.steps": 3,
    "lr.algorithms.fedavg.initial": 0.0005,
    "lr.algorithms.fedavg.floor": 1.0,
}
"""Plain SGD on fresh draws at a rate that the theorem's condition allows."""


def _bound_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the runs that are made again beside the theorem: FedAvg, which it is about.

    As the authors ran it, and in the theorem's own setting; one seed, for constants are estimated.
    """
    small = scale == "small"
    short: dict[str, Any] = _SHORT["mnist"] if small else {}
    for mark, changed in (("bound", {}), ("bound-plain", THEOREM_SETTING)):
        cell = make_cell(
            Spread("mnist", overlap=0.0, alpha=0.3),
            ["fedavg"],
            seeds[0],
            methods=LABELLED,
            variant={**short, **changed},
            marks=[mark, "small"] if small else [mark],
            subset=small,
        )
        yield replace(cell, theorem=True)


# --- all of them ---------------------------------------------------------------------------------

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
        lambda scale, seeds: list(_first_ten_cells(kinds, scale, seeds)),
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
        (*GREY, *ABLATION_ROWS),
        lambda scale, seeds: _ablation_cells(scale, seeds, variants),
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
        GREY,
        lambda scale, seeds: list(_hundred_cells(scale, seeds)),
        "first10_100_clients_partial_overlap.csv",
    ),
    Study(
        "first10-tinyimagenet",
        "First ten rounds, TinyImageNet, FedAvg",
        ("tinyimagenet",),
        lambda scale, seeds: list(_tinyimagenet_cells(scale, seeds)),
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
        lambda scale, seeds: list(_twenty_cells(scale, seeds)),
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
        lambda scale, seeds: list(_bound_cells(scale, seeds)),
    ),
)
STUDIES = {study.id: study for study in _ALL}
"""Every table and figure by its id."""


def _twenty_cells(scale: Scale, seeds: Sequence[int]) -> Iterator[Cell]:
    """Return the rows with 20 devices a session, whose resources the paper lists."""
    algorithms = ("fedavg", "fedprox", "scaffold-authors", "fedacg")
    for dataset in GREY if scale == "full" else GREY[:1]:
        for seed in seeds[:1]:  # resources do not depend on it
            spread = Spread(dataset, overlap=0.2, alpha=0.3, devices=20)
            short = small_variant(10, 7, 20, data__limit_train=6_000)
            yield make_cell(
                spread,
                algorithms,
                seed,
                variant=short if scale == "small" else {},
                marks=["small"] if scale == "small" else [],
                subset=scale == "small",
            )


def study(name: str) -> Study:
    """Return a table or figure by its id."""
    if name not in STUDIES:
        raise unknown(name, STUDIES, "table or figure", "ebbflow paper")
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
