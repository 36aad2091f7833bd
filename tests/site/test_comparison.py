"""What the page on other frameworks says of versions and of speed is what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "package", "file"),
    [
        ("Flower", "flwr", "flower"),
        ("pfl-research", "pfl", "pfl"),
        ("FedJAX", "fedjax", "fedjax"),
        ("FedLab", "fedlab", "fedlab"),
        ("BlazeFL", "blazefl", "blazefl"),
    ],
)
def test_the_versions_are_those_that_were_measured(name: str, package: str, file: str) -> None:
    constraints = (ROOT / "benchmarks/peers/constraints" / f"{file}.txt").read_text("utf-8")
    (measured,) = re.findall(rf"^{package}==(\S+)$", constraints, re.MULTILINE)
    (shown,) = re.findall(rf"^\| {name} \| ([\d.]+)", PAGE, re.MULTILINE)
    assert measured == shown or measured.startswith(f"{shown}.")


def beside_us(workload: str, peer: str) -> float:
    """Return how many times as long as ebbflow a peer took."""
    section = PERFORMANCE.split(f"## {workload}: ")[1].split("\n## ")[0]
    (ratio,) = re.findall(rf"^\| {peer} \| [^|]+ \| ([\d.]+) \|", section, re.MULTILINE)
    return float(ratio)


@pytest.mark.parametrize(
    ("words", "workload", "peer"),
    [
        (r"the fastest peer, FedLab, ([\d.]+) times", "W1", "fedlab"),
        (r"Flower on Ray ([\d.]+) times", "W1", "flower"),
        (r"took the fastest, FedJAX, ([\d.]+) times", "W5", "fedjax"),
        (r"20 devices BlazeFL ([\d.]+) times", "W2", "blazefl"),
        (r"and FedJAX ([\d.]+) times", "W2", "fedjax"),
    ],
)
def test_the_speeds_are_those_of_the_page_on_performance(
    words: str, workload: str, peer: str
) -> None:
    (shown,) = re.findall(words, re.sub(r"\s+", " ", PAGE))
    digits = len(shown.partition(".")[2])
    assert float(shown) == round(beside_us(workload, peer), digits)
