"""Hooks on names do what they do on vectors, or say that they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ebbflow.engines.texts.combination import Combination, NotLinearError, combined, multiples_of

LIKE = torch.zeros((), dtype=torch.float64)
Linear = Callable[[Any, Any], Any]

LINEAR: dict[str, Linear] = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "negative": lambda a, b: -a - b,
    "multiple": lambda a, b: 3 * a + b * 0.5,
    "quotient": lambda a, b: (a - b) / 4,
    "tensor": lambda a, b: torch.tensor(3.0) * a + b * torch.tensor([0.5]),
    "by tensor": lambda a, b: (a - b) / torch.tensor(4.0),
    "functions": lambda a, b: torch.add(torch.mul(a, 2), torch.sub(b, a, alpha=0.25), alpha=3),
    "methods": lambda a, b: a.add(b, alpha=2).sub(a.clone(), alpha=0.5).mul(3).div(7),
    "in place": lambda a, b: a.clone().add_(b, alpha=2).mul_(3).sub_(b).div_(2),
    "augmented": lambda a, b: sum([a, b, a]),
    "zeros": lambda a, b: torch.zeros_like(a) + b,
    "from zero": lambda a, b: 0 - a + b,
    "functions again": lambda a, b: torch.neg(torch.div(a, 2)) + torch.clone(b),
    "detached": lambda a, b: a.detach() + b,
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_algebra_is_that_of_vectors(name: str) -> None:
    vectors = {"a": torch.tensor([1.0, 2.0]).double(), "b": torch.tensor([-3.0, 0.5]).double()}
    result = LINEAR[name](*(Combination.of(each, LIKE) for each in vectors))
    total = torch.zeros(2, dtype=torch.float64)
    for each, multiple in multiples_of(result).items():
        total += multiple * vectors[each]
    torch.testing.assert_close(total, LINEAR[name](*vectors.values()))


BEYOND: dict[str, Linear] = {
    "product": lambda a, b: a * b,
    "constant": lambda a, b: a + 1,
    "vector": lambda a, b: a * torch.ones(2),
    "quotient": lambda a, b: a / b,
    "inverse": lambda a, b: torch.ones(()) / a,
    "function": lambda a, b: torch.sign(a),
    "method": lambda a, b: a.clamp(min=0),
    "norm": lambda a, b: a.norm(),
    "order": lambda a, b: a if a > b else b,
    "equal": lambda a, b: a == b,
    "truth": lambda a, b: bool(a),
    "number": lambda a, b: float(a),
    "entry": lambda a, b: a[0],
    "entries": lambda a, b: list(a),
    "power": lambda a, b: a**2,
    "ones": lambda a, b: torch.ones_like(a),
}


@pytest.mark.parametrize("name", BEYOND)
def test_anything_else_is_refused(name: str) -> None:
    a, b = (Combination.of(each, LIKE) for each in "ab")
    with pytest.raises((NotLinearError, AttributeError, TypeError)):
        BEYOND[name](a, b)


def test_what_cancels_is_dropped_and_what_is_small_is_not() -> None:
    a, b = (Combination.of(each, LIKE) for each in "ab")
    assert ((a * 0.1 + a * 0.2) - a * 0.3 + b).multiples() == {"b": 1.0}
    assert (a * 1e-30 + b).multiples() == {"a": 1e-30, "b": 1.0}
    assert multiples_of(a * float("nan")).keys() == {"a"}


def test_new_tensors_are_tensors() -> None:
    a = Combination.of("a", LIKE)
    assert torch.equal(a.new_zeros(()), LIKE)
    assert a.new_tensor(3).dtype == a.dtype == torch.float64
    assert a.device == LIKE.device
    assert combined(a) is a
    assert combined(a.new_zeros(2)) is None
    with pytest.raises(NotLinearError, match="returned a Tensor for a vector"):
        multiples_of(LIKE)
