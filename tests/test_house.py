"""The code base itself: one name for one thing, and registries as the only truth."""

from __future__ import annotations

from pathlib import Path

from benchmarks.house import (
    NAMES,
    PARTS,
    longest_signature,
    modules,
    named_algorithms,
    repeated_classes,
)
from ebbflow.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent


def test_no_class_name_means_two_things() -> None:
    parts = [part for part in PARTS if part != "tests"]
    code = [path for part in parts for path in modules(ROOT, part) if "peers" not in path.parts]
    assert repeated_classes(code) == {}


def test_no_place_outside_the_registry_lists_algorithms() -> None:
    """FedAvg is named as a default, as Continuous's base and as the theorem's algorithm."""
    places = [(path.name, name) for path, _, name in named_algorithms(modules(ROOT, "product"))]
    assert {name for _, name in places} == {"fedavg"}
    assert {file for file, _ in places} == {
        "accounting.py",
        "continuous.py",
        "cost.py",
        "federate_runs.py",
        "run_bounds.py",
        "schema.py",
        "strategy.py",
    }


def test_the_count_knows_every_algorithm() -> None:
    assert set(ALGORITHMS) == NAMES


def test_signatures_stay_short() -> None:
    count, name, _ = longest_signature(modules(ROOT, "product"))
    assert count <= 9, name
