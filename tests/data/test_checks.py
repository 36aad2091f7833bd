"""Data that a run warns of, and data that it does not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ebbflow.api import compare
from ebbflow.core.types import Dataset, Examples, Pixels
from ebbflow.data.checks import data_warnings
from ebbflow.data.datasets import load

DRAW = np.random.default_rng(5)
X = torch.from_numpy(DRAW.normal(size=(200, 4)).astype(np.float32))
Y = torch.arange(200) % 3


def own(x: Tensor, test_y: Tensor = Y, pixels: Pixels | None = None) -> Dataset:
    return Dataset("mine", Examples(x, Y, pixels), Examples(x, test_y, pixels), 3)


def scaled(*factors: float) -> Tensor:
    return X * torch.tensor(factors)


@pytest.mark.parametrize(
    ("x", "places"),
    [
        (scaled(1, 100, 1, 1), "feature 1,"),
        (scaled(1, 1, 1, 0.01), "feature 3)"),
        (scaled(1000, 1000, 0, 1), "feature 3)"),
        (scaled(100, 1, 1, 1).reshape(200, 2, 2), "feature 0,"),
    ],
    ids=["one large", "one small", "constant", "of two axes"],
)
def test_features_of_unequal_size_are_warned_of(x: Tensor, places: str) -> None:
    (text,) = data_warnings(own(x), "mine.npz")
    assert text.startswith("the features of mine differ by a factor of ")
    assert places in text
    assert text.endswith("by mean and standard deviation of the training set")


def test_the_factor_is_that_of_the_standard_deviations() -> None:
    x = torch.tensor([[-1.0, 640.0, 5.0], [1.0, 0.0, 5.0]] * 100)
    (text,) = data_warnings(own(x), "mine")
    assert "a factor of 320 in their standard deviations (320 of feature 1, 1 of feature 0)" in text


@pytest.mark.parametrize(
    "data",
    [
        own(X),
        own(scaled(1, 30, 1, 1)),
        own(scaled(1000, 1000, 1000, 1000)),
        own(scaled(1000, 0, 0, 0)),
        own(torch.zeros(200, 4)),
        own((X.abs() / X.abs().max()) * torch.tensor([1.0, 1e-3, 1e-3, 1])),  # scaled like pixels
        own((scaled(1, 1000, 1, 1) * 50).long()),  # tokens
        own(torch.randint(256, (200, 3, 4, 4)).byte(), pixels=Pixels((0.5,) * 3, (0.5,) * 3)),
        own((scaled(1, 1000, 1, 1) - 7) / torch.tensor([1, 1000, 1, 1])),
    ],
    ids=["even", "30", "large", "one", "none", "small", "tokens", "pixels", "standardised"],
)
def test_other_data_are_not(data: Dataset) -> None:
    assert not list(data_warnings(data, "mine"))


def test_known_data_are_not_warned_of_either() -> None:
    assert not list(data_warnings(load("digits"), "digits"))
    assert not list(data_warnings(own(scaled(1, 1000, 1, 1)), "mnist"))


def test_a_label_that_only_the_training_set_has_is_named() -> None:
    (text,) = data_warnings(own(X, Y.clamp(max=1)), "mine")
    assert text.startswith("only the training set of mine has samples of the label 2: they are")
    (text,) = data_warnings(own(X, torch.zeros_like(Y)), "digits")
    assert "of the labels 1, 2: they are trained on and never tested; add some" in text
    many = Dataset("many", Examples(X, torch.arange(200)), Examples(X, torch.zeros(200)), 200)
    (text,) = data_warnings(many, "many")
    assert "of the labels 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 189 more: they" in text


def test_a_run_warns_before_anything_else_under_every_seed() -> None:
    data = own(scaled(1, 1000, 1, 1), Y.clamp(max=1))
    events = compare(data, seeds=[1, 2], sessions=2, rounds=1, devices=2, overlap=1.0).events
    warnings = [event for event in events if event["event"] == "warning"]
    assert events[:2] == warnings[:2]
    assert [(event["seed"], event["session"]) for event in warnings] == [(1, 1)] * 3 + [(2, 1)] * 3
    assert [event["text"] for event in warnings[:2]] == list(data_warnings(data, "mine"))
