"""What a forward pass costs, beside the paper's table, and what docs/models.md says of it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from ebbflow.models import MODELS, flops

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


class Row(NamedTuple):
    """A line of the paper's table Simulation Parameters, and what it was computed for."""

    model: str
    shape: tuple[int, ...]
    classes: int
    parameters: int
    density: float  # phi, FLOPs per parameter
    within: float = 0.01


PAPER = {
    "mnist": Row("softmax", (1, 28, 28), 10, 7_850, 2.00),
    "fmnist": Row("softmax", (1, 28, 28), 10, 7_850, 2.00),
    "svhn": Row("cnn", (3, 32, 32), 10, 667_178, 91.04, within=0.025),
    "cifar10": Row("resnet18", (3, 32, 32), 10, 11_573_066, 6.50),
    "cifar100": Row("resnet18", (3, 32, 32), 100, 11_596_196, 6.50),
    "tinyimagenet": Row("resnet34", (3, 64, 64), 200, 21_730_056, 27.69),
    "agnews": Row("embedding", (64,), 4, 9_157_804, 2.63e-4),
}
every_row = pytest.mark.parametrize("dataset", PAPER)


@cache
def counted(row: Row) -> int:
    dtype = torch.int64 if row.model == "embedding" else torch.float32
    return flops(MODELS[row.model](row.shape, row.classes), torch.zeros(1, *row.shape, dtype=dtype))


@every_row
def test_the_papers_density_is_the_forward_pass_per_parameter(dataset: str) -> None:
    row = PAPER[dataset]
    assert counted(row) / row.parameters == pytest.approx(row.density, rel=row.within)


@every_row
def test_the_document_has_the_numbers_that_are_counted(dataset: str) -> None:
    row = PAPER[dataset]
    (line,) = re.findall(rf"^\| {dataset} \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    model, parameters, counts, density, printed, difference = line.split(" | ")
    ours = counted(row) / row.parameters
    assert model == f"`{row.model}`"
    assert parameters == f"{row.parameters:,}"
    assert counts == f"{counted(row):,}"
    assert density == (f"{ours:.2f}" if ours > 1 else f"{ours:.3e}")
    assert float(printed) == row.density
    assert difference == f"{100 * (ours / row.density - 1):+.1f} %"


def test_what_the_paper_adds_is_a_few_operations_per_normalised_number() -> None:
    """Per entry that BatchNorm sees: 9 in all ResNets; 12 in the CNN, whose layers have biases.

    The table prints two decimals, so each row gives a range; those of the ResNets share 9.01-9.24.
    """
    entries = {"svhn": 106_496, "cifar10": 50_688, "cifar100": 50_688, "tinyimagenet": 305_152}

    def range_of(dataset: str) -> tuple[float, float]:
        row = PAPER[dataset]
        low, high = (
            (row.parameters * (row.density + half) - counted(row)) / entries[dataset]
            for half in (-0.005, 0.005)
        )
        return low, high

    ranges = [range_of(dataset) for dataset in ("cifar10", "cifar100", "tinyimagenet")]
    assert max(low for low, _ in ranges) == pytest.approx(9.01, abs=0.01)
    assert min(high for _, high in ranges) == pytest.approx(9.24, abs=0.01)
    assert range_of("svhn") == pytest.approx((12.11, 12.18), abs=0.01)


def test_operations_are_those_of_one_sample() -> None:
    model = MODELS["mlp"]((20,), 5, hidden=8)
    assert flops(model, torch.zeros(1, 20)) == flops(model, torch.zeros(7, 20)) == 2 * (160 + 40)
