"""Translates the paper's command line into a configuration."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chang2025.flags import FLAGS, METHODS
from ebbflow.config.paper_rows import PARAMETERS, PaperRow, settings
from ebbflow.config.toml_text import toml
from ebbflow.core.errors import EbbflowError, unknown

BEHAVIOUR = "authors-code"
"""The preset below all that the flags say."""

# Spellings of the paper and of its authors' code. Case, hyphens and underscores do not count.
DATASETS = {
    "mnist": "mnist",
    "fmnist": "fmnist",
    "fashion_mnist": "fmnist",
    "SVHN": "svhn",
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "tinyimagenet": "tinyimagenet",
    "ag_news": "agnews",
    "digits": "digits",
}
ALGORITHMS = {
    "avg": "fedavg",
    "fedavg": "fedavg",
    "prox": "fedprox",
    "fedprox": "fedprox",
    "moon": "moon",
    "scaffold": "scaffold-authors",
    "acg": "fedacg",
    "fedacg": "fedacg",
}
KINDS = {
    "dirichlet": "dirichlet",
    "two_shard": "two_shard",
    "two_shards": "two_shard",
    "half": "half",
    "partial_overlap": "partial_overlap",
    "distinct": "distinct",
}
SIMILARITIES = {"two_norm": "per_tensor", "inner_product": "inner_product"}

# Flags that stand for the value of one key; the others need a rule of their own.
_KEYS = {flag.name: flag.key for flag in FLAGS if flag.key not in ("methods", "lr.algorithms")}
# What a configuration does not check: these are at least 0, and below what stands here.
_LIMITS = {
    "prox_alpha": math.inf,
    "moon_mu": math.inf,
    "moon_tau": math.inf,
    "acg_beta": math.inf,
    "kl_coefficient": math.inf,
    "similarity_scale": math.inf,
    "acg_lambda": 1.0,
}


class Translation(NamedTuple):
    """A configuration by dotted keys, the flags behind a key, and what should be said of it."""

    settings: dict[str, Any]
    places: dict[str, str]
    notes: list[str]

    def toml(self) -> str:
        """Return the configuration as TOML, with the notes at its head."""
        head = ["The paper's command line as a configuration.", *(f"note: {n}" for n in self.notes)]
        values = {"preset": [BEHAVIOUR], **self.settings}
        return "".join(f"# {line}\n" for line in head) + "\n" + toml(values, self.places)


def translate(
    flags: Mapping[str, Any], *, true_scaffold: bool = False, use_gpu: bool = False
) -> Translation:
    """Return what flags of the paper's command stand for.

    Args:
        flags: Values by the flags' names without dashes; one that is None counts as left out.
        true_scaffold: Whether ``scaffold`` means SCAFFOLD, not what the authors' code runs.
        use_gpu: Whether to compute on the device that ``gpu_index`` numbers.

    >>> values = translate({"dataset_name": "MNIST", "algorithm": "prox", "seed": 300})
    >>> values.settings["seeds"], values.settings["lr.algorithms.fedprox.initial"]
    ([300], 0.001)
    """
    given = {name: value for name, value in flags.items() if value is not None}
    row = _row(given, true_scaffold)
    notes = _notes(row, given, true_scaffold, use_gpu)
    values = settings(row) | {"device": "cpu", "parameters.warm_start.distance": "per_tensor"}
    for algorithm, parameters in PARAMETERS.items():
        values |= {f"parameters.{algorithm}.{name}": value for name, value in parameters.items()}
    places = {flag.key: "default" for flag in FLAGS if flag.key in values}
    for name, value in _values(row, given, use_gpu).items():
        key = _KEYS[name]
        if key in values:  # overlap and alpha have no place but with Dirichlet
            values[key], places[key] = value, f"--{name}"
    switches = [name for name in METHODS if name in given]
    if switches:
        values["methods"] = _methods(given, values["methods"])
        places["methods"] = " ".join(f"--{name}" for name in switches)
    rate = _rate(given.get("lr_config_path"), row)
    for number, part in enumerate(("initial", "floor")):
        key = f"lr.algorithms.{row.algorithm}.{part}"
        places[key] = "--lr_config_path" if rate else "built in"
        values[key] = rate[number] if rate else values[key]
    return Translation(values, places, notes)


def _row(given: Mapping[str, Any], true_scaffold: bool) -> PaperRow:
    dataset = _spelled(given["dataset_name"], DATASETS, "data set", "--dataset_name")
    algorithm = _spelled(given["algorithm"], ALGORITHMS, "algorithm", "--algorithm")
    label = "--in_session_label_dist"
    written = given.get("in_session_label_dist", "dirichlet")
    kind = _spelled(written, KINDS, "label distribution", label)
    if true_scaffold:
        if algorithm != "scaffold-authors":
            raise EbbflowError(
                f"--true-scaffold says which SCAFFOLD is meant, and --algorithm is "
                f"{given['algorithm']}: leave it out"
            )
        algorithm = "scaffold"
    if kind == "dirichlet":
        return PaperRow(dataset, kind, algorithm, overlap=0.0, alpha=0.3)
    return PaperRow(dataset, kind, algorithm)


def _values(row: PaperRow, given: Mapping[str, Any], use_gpu: bool) -> dict[str, Any]:
    """Return the values of the flags that stand for a single key."""
    for name, most in _LIMITS.items():
        value = given.get(name, 0.5)
        if not (0 <= value < most) or (name == "moon_tau" and value == 0):
            least = "above 0" if name == "moon_tau" else "at least 0"
            limit = "finite" if most == math.inf else f"below {most:g}"
            raise EbbflowError(f"--{name} {value:g} is refused: it should be {least} and {limit}")
    values = {name: value for name, value in given.items() if name in _KEYS}
    values |= {"dataset_name": row.dataset, "algorithm": [row.algorithm]}
    if "in_session_label_dist" in given:
        values["in_session_label_dist"] = row.kind
    if "seed" in given:
        values["seed"] = [given["seed"]]
    if "similarity" in given:
        values["similarity"] = _spelled(
            given["similarity"], SIMILARITIES, "similarity", "--similarity"
        )
    index = given.get("gpu_index", 0)
    if use_gpu or "gpu_index" in given:
        values["gpu_index"] = f"cuda:{index}" if use_gpu and index >= 0 else "cpu"
    return values


def _methods(given: Mapping[str, Any], usual: Sequence[str]) -> list[str]:
    methods = []
    for name, method in METHODS.items():
        switch = given.get(name, int(method in usual))
        if switch not in (0, 1):
            raise EbbflowError(f"--{name} {switch} is refused: write 1 for yes or 0 for no")
        if switch:
            methods.append(method)
    if not methods:
        raise EbbflowError(
            "nothing is left to run: set one of --initial, --average, --previous and --continuous "
            "to 1"
        )
    return methods


def _rate(path: str | None, row: PaperRow) -> tuple[float, float] | None:
    """Return a file's first rate and floor, or None where there is no file."""
    if path is None or not Path(path).exists():
        return None
    place = f"--lr_config_path {path}"
    try:
        table = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise EbbflowError(f"{place} cannot be read ({error.strerror}): check the path") from None
    except (ValueError, RecursionError) as error:
        raise EbbflowError(f"{place} is not valid JSON ({error}): mend the file") from None
    # SCAFFOLD has one entry, whichever of the two is meant.
    algorithm = "scaffold-authors" if row.algorithm == "scaffold" else row.algorithm
    rates = _entry(table, DATASETS, row.dataset, place)
    pair = _entry(rates, ALGORITHMS, algorithm, f"{place}: {row.dataset}")
    numbers = pair if isinstance(pair, list) else []
    plain = [number for number in numbers if type(number) in (int, float)]
    if (
        len(numbers) != 2
        or plain != numbers
        or not (0 < plain[0] <= sys.float_info.max and 0 <= plain[1] <= 1)
    ):
        raise EbbflowError(
            f"{place} has {json.dumps(pair)} for {row.dataset} and {algorithm}, not a pair of a "
            "rate above 0 and a floor from 0 to 1: mend the file"
        )
    return float(plain[0]), float(plain[1])


def _entry(table: Any, spellings: Mapping[str, str], wanted: str, place: str) -> Any:
    """Return the entry of a file's table that some spelling names."""
    if not isinstance(table, dict):
        raise EbbflowError(f"{place} is not of the form data set, algorithm, [rate, floor]")
    known = {_plain(spelling): meaning for spelling, meaning in spellings.items()}
    for key, entry in table.items():
        if known.get(_plain(key)) == wanted:
            return entry
    raise EbbflowError(
        f"{place} has no entry for {wanted}: add it, or leave --lr_config_path out for the rates "
        "that are built in"
    )


def _notes(
    row: PaperRow, given: Mapping[str, Any], true_scaffold: bool, use_gpu: bool
) -> list[str]:
    notes = []
    if true_scaffold:
        notes.append("scaffold is SCAFFOLD itself; the paper's tables come from scaffold-authors.")
    elif row.algorithm == "scaffold-authors":
        notes.append(
            "scaffold is what the authors' code runs under that name; see also --true-scaffold."
        )
    if row.kind != "dirichlet":
        notes.append(
            f"{row.kind}: overlap and alpha have no meaning, and devices are those in all."
        )
    path = given.get("lr_config_path")
    if path is not None and not Path(path).exists():
        notes.append(
            f"there is no file {json.dumps(path)}: the published rates, built in, are used."
        )
    if "gpu_index" in given and not use_gpu:
        notes.append("the device is the CPU; --use-gpu heeds --gpu_index.")
    return notes


def _spelled(written: str, spellings: Mapping[str, str], what: str, flag: str) -> str:
    """Return what a name means, however it is spelled."""
    for spelling, meaning in spellings.items():
        if _plain(spelling) == _plain(written):
            return meaning
    raise unknown(written, spellings, what, flag)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
