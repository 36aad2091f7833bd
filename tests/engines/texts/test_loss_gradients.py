"""Slopes in closed form are those of autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, cross_entropy
from ebbflow.core.local import Batch, cotangent
from ebbflow.core.objectives import Contrast, Distillation
from ebbflow.core.types import ModelState, Output, State
from ebbflow.engines.texts.loss_gradients import slope
from ebbflow.starts.continuous import distilled
from tests.algorithms.toys import by_autograd


class Harder(Contrast):
    """Computes something else than the record that it is made of."""

    def __call__(
        self, output: Output, labels: Tensor, anchors: dict[str, Output], client: State
    ) -> Tensor:
        return 2 * super().__call__(output, labels, anchors, client)


TEACHER = ModelState(torch.zeros(1), torch.zeros(0))
MOON = ALGORITHMS["moon"](mu=0.7, tau=0.5)
KINDS: dict[str, Algorithm] = {
    "fedavg": ALGORITHMS["fedavg"](),
    "moon": MOON,
    "continuous": distilled(ALGORITHMS["fedavg"](), TEACHER, (0, 2), 0.6, 2.0, "teacher"),
    "mixed": distilled(ALGORITHMS["fedavg"](), TEACHER, (0, 2), 0.6, 2.0, "mixed"),
    "both": distilled(MOON, TEACHER, (0, 2), 0.6, 3.0),
    "a student's contrast": MOON._replace(
        objective=Contrast(0.7, 0.5, Distillation(cross_entropy, 0.6, 2.0, "teacher", ()))
    ),
    "a contrast of another kind": MOON._replace(objective=Harder(0.7, 0.5)),
    "unknown": by_autograd(),
    "unknown base": distilled(by_autograd(), TEACHER, (0,), 0.6),
}


@pytest.mark.parametrize("seen", [0.0, 1.0])
@pytest.mark.parametrize("name", KINDS)
def test_a_slope_is_that_of_autograd(name: str, seen: float) -> None:
    draw = torch.Generator().manual_seed(3)

    def output() -> Output:
        features = torch.randn(6, 5, generator=draw, dtype=torch.float64)
        features[2] = 0  # a text without words has no direction
        return Output(torch.randn(6, 3, generator=draw, dtype=torch.float64), features)

    anchors = {each: output() for each in ("global", "previous", "teacher")}
    weights = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.2, 0.0], dtype=torch.float64)
    batch = Batch(weights, torch.tensor([0, 1, 2, 0, 1, 2]), weights)
    client: State = {"seen": torch.tensor(seen, dtype=torch.float64)}
    at = output()
    expected = cotangent(KINDS[name], at, batch, anchors, client)
    torch.testing.assert_close(slope(KINDS[name], at, batch, anchors, client), expected)
