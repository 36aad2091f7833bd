"""A preset for every row of the paper's tables, generated on demand.

A row names the data set, the partition and the algorithm; `settings` adds what the paper says about
all rows. Where the text and the authors' code differ, the presets ``authors-code`` and
``paper-text`` decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from ebbflow.config.resolve import resolve
from ebbflow.config.schema import Settings
from ebbflow.config.toml_text import toml

DATASETS = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tinyimagenet": "TinyImageNet",
    "agnews": "AG News",
}
ALGORITHMS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "moon": "MOON",
    "scaffold": "SCAFFOLD",
    "scaffold-authors": "the authors' SCAFFOLD",
    "fedacg": "FedACG",
}
KINDS = {
    "dirichlet": "Dirichlet",
    "two_shard": "Two-Shard",
    "partial_overlap": "Partial-Overlap",
    "half": "Half",
    "distinct": "Distinct",
}
PARAMETERS: dict[str, dict[str, float]] = {
    "fedprox": {"mu": 1.0},
    "moon": {"mu": 1.0, "tau": 1.0},
    "fedacg": {"momentum": 0.5, "beta": 0.1},
}
"""The paper's parameters of the algorithms that have any."""
SEEDS = (100, 200, 300)
METHODS = ("warm_start", "previous", "average")
DEVICES_IN_ALL = 20
"""The appendix's total number of devices, both groups together, unless a table differs."""


class PaperRow(NamedTuple):
    """A row of a table; ``devices`` is set only if it differs from the other tables."""

    dataset: str
    kind: str
    algorithm: str
    overlap: float | None = None
    alpha: float | None = None
    devices: int | None = None

    @property
    def name(self) -> str:
        """The preset's name.

        >>> PaperRow("mnist", "dirichlet", "fedprox", 0.0, 0.3).name
        'mnist-dirichlet-o0.0-a0.3-fedprox'
        >>> PaperRow("mnist", "partial_overlap", "scaffold", devices=50).name
        'mnist-partial_overlap-d50-scaffold'
        """
        return _name(*self)


class PaperTable(NamedTuple):
    """Rows of one table: every combination of the values listed."""

    datasets: tuple[str, ...]
    kinds: tuple[str, ...]
    algorithms: tuple[str, ...]
    overlaps: tuple[float | None, ...] = (None,)
    alphas: tuple[float | None, ...] = (None,)
    devices: int | None = None

    def rows(self, dataset: str) -> list[PaperRow]:
        """Return the rows of one data set."""
        return [
            PaperRow(dataset, kind, algorithm, overlap, alpha, self.devices)
            for kind, overlap, alpha, algorithm in product(
                self.kinds, self.overlaps, self.alphas, self.algorithms
            )
            if dataset in self.datasets
        ]

    def pattern(self, dataset: str) -> str:
        """Return the names of one data set's rows as a shell pattern with braces."""
        return _name(
            dataset,
            _braces(self.kinds),
            _braces(self.algorithms),
            _braces(self.overlaps),
            _braces(self.alphas),
            self.devices,
        )


_MAIN = ("moon", "fedprox", "scaffold", "scaffold-authors", "fedacg")
_APPENDIX = ("fedavg", "fedprox", "moon", "scaffold", "scaffold-authors")
_IMAGES = ("mnist", "fmnist", "svhn", "cifar10", "cifar100")
TABLES = (
    # 100 devices a session; where a table says SCAFFOLD, the authors' variant was run.
    PaperTable((*_IMAGES, "tinyimagenet"), ("dirichlet",), _MAIN, (0.0, 0.2), (0.3, 0.7)),
    PaperTable(("agnews",), ("dirichlet",), _MAIN, (0.0, 0.8), (0.3, 0.7)),
    # The appendix: 20 devices in all.
    PaperTable(_IMAGES, ("two_shard", "partial_overlap", "half"), _APPENDIX),
    PaperTable(("mnist", "fmnist"), ("distinct",), _APPENDIX),
    PaperTable(("svhn",), ("distinct",), ("fedavg", "fedprox")),
    PaperTable(("tinyimagenet",), ("partial_overlap", "half"), ("fedavg",)),
    # The appendix: 100 devices in all, 50 for SCAFFOLD.
    PaperTable(
        ("mnist", "fmnist"), ("partial_overlap",), ("fedavg", "fedprox", "moon"), devices=100
    ),
    PaperTable(("mnist",), ("partial_overlap",), ("scaffold", "scaffold-authors"), devices=50),
)
"""The rows of the paper's accuracy tables."""


@cache
def rows() -> dict[str, PaperRow]:
    """Return every row by its preset's name, data set after data set.

    >>> rows()["svhn-half-moon"].kind
    'half'
    """
    ordered = [row for dataset in DATASETS for table in TABLES for row in table.rows(dataset)]
    return {row.name: row for row in ordered}


def patterns() -> Iterator[tuple[str, list[str]]]:
    """Yield each data set's title with the names of its presets, as shell patterns.

    >>> next(patterns())[1][-1]
    'mnist-partial_overlap-d50-{scaffold,scaffold-authors}'
    """
    for dataset, title in DATASETS.items():
        yield title, [table.pattern(dataset) for table in TABLES if dataset in table.datasets]


def settings(row: PaperRow) -> dict[str, Any]:
    """Return all that a row sets, by dotted keys, with the data set's defaults spelled out.

    The appendix reports three transitions, hence one session fewer, and the first ten rounds. The
    window of the other tables is not stated; five rounds fit their numbers best.
    """
    dirichlet = row.kind == "dirichlet"
    usual = resolve(
        Settings(dataset=row.dataset, algorithm=[row.algorithm], methods=[*METHODS, "continuous"])
    )
    rate = usual.lr.algorithms[row.algorithm]
    methods = list(METHODS)
    if dirichlet and row.dataset != "agnews":
        methods.append("continuous")
    values = {
        "dataset": row.dataset,
        "algorithm": [row.algorithm],
        "methods": methods,
        "seeds": list(SEEDS),
        "sessions": 7 if dirichlet else 6,
        "rounds": usual.rounds,
        "window": [5, 10] if dirichlet else [10],
        "model.kind": usual.model.kind,
        "partition.kind": row.kind,
        "partition.overlap": row.overlap,
        "partition.alpha": row.alpha,
        "partition.devices": row.devices
        or (usual.partition.devices if dirichlet else DEVICES_IN_ALL),
        "local.steps": 5,
        "local.batch": usual.local.batch,
        "local.momentum": 0.9,
        f"lr.algorithms.{row.algorithm}.initial": rate.initial,
        f"lr.algorithms.{row.algorithm}.floor": rate.floor,
        "pilot.sessions": 1,
        "pilot.rounds": usual.rounds,
        "probe.rounds": 1,
        "probe.steps": 5,
        "probe.batch": usual.local.batch,
        "parameters.warm_start.scale": usual.parameters["warm_start"]["scale"],
        "parameters.continuous.kl": usual.parameters["continuous"]["kl"],
    }
    for key, value in PARAMETERS.get(row.algorithm, {}).items():
        values[f"parameters.{row.algorithm}.{key}"] = value
    return {key: value for key, value in values.items() if value is not None}


def text(name: str) -> str:
    """Return a row's preset as TOML; its first line describes it."""
    row = rows()[name]
    values = settings(row)
    devices = values["partition.devices"]
    if row.kind == "dirichlet":
        spread = f"Dirichlet, overlap {row.overlap}, alpha {row.alpha}, {devices} devices a session"
    else:
        spread = f"{KINDS[row.kind]}, {devices} devices in two halves that take turns"
    lines = [
        f"# {DATASETS[row.dataset]}, {spread}: {ALGORITHMS[row.algorithm]}.",
        "# Add --preset authors-code for what was run, or --preset paper-text.",
    ]
    if row.algorithm == "scaffold":
        lines.append("# The rates were published for what is called scaffold-authors here.")
    if row.kind != "dirichlet" and values["model.kind"] == "softmax":
        lines.append(
            "# The table says MLP; the paper's 7,850 parameters are those of softmax regression."
        )
    return "\n".join(lines) + "\n\n" + toml(values)


def _name(
    dataset: str, kind: object, algorithm: object, overlap: object, alpha: object, devices: object
) -> str:
    parts = {"": dataset, "-": kind, "-o": overlap, "-a": alpha, "-d": devices}
    shown = (f"{mark}{part}" for mark, part in parts.items() if part is not None)
    return f"{''.join(shown)}-{algorithm}"


def _braces(options: Sequence[object]) -> object:
    if len(options) == 1:
        return options[0]
    return f"{{{','.join(map(str, options))}}}"
