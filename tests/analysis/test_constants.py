"""The estimators of Theorem 1's constants against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ebbflow.analysis.constants import Problem, dissimilarity
from ebbflow.core.types import Examples, Indices, Model, ModelState
from ebbflow.models import MODELS

SHARDS = [np.arange(0, 7), np.arange(7, 12), np.arange(12, 20)]


def problem_of(kind: str) -> tuple[Problem, ModelState, Examples]:
    draw = torch.Generator().manual_seed(3)
    x = torch.randn((20, 1, 2, 2), generator=draw)
    y = torch.randint(0, 3, (20,), generator=draw)
    size = {"hidden": 6} if kind == "mlp" else {}
    model: Model = MODELS[kind]((1, 2, 2), 3, **size)
    examples = Examples(x, y)
    shards: list[Indices] = [shard.astype(np.int64) for shard in SHARDS]
    state = model.initial(draw)
    return Problem.of(model, examples, shards), state, examples


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_loss_gradients_and_noise_are_those_of_brute_force(kind: str) -> None:
    problem, state, examples = problem_of(kind)

    def gradient(rows: Indices) -> torch.Tensor:
        at = torch.from_numpy(rows)
        theta = state.theta.clone().requires_grad_()
        output, _ = problem.model.forward(theta, state.buffers, examples.x[at], None, False)
        loss = torch.nn.functional.cross_entropy(output.logits, examples.y[at])
        (found,) = torch.autograd.grad(loss, theta)
        return found

    found = problem.gradients(state)
    assert found.square == pytest.approx(float((gradient(np.arange(20)) ** 2).sum()), rel=1e-4)
    own = [float((gradient(shard) ** 2).sum()) for shard in SHARDS]
    assert found.squares == pytest.approx(own, rel=1e-4)
    assert found.loss == pytest.approx(problem.loss(state))
    variances, ratios = [], [0.0]
    for shard in SHARDS:
        single = torch.stack([gradient(shard[i : i + 1]) for i in range(len(shard))])
        variances.append(float(single.var(0).sum()))
        x = examples.x[torch.from_numpy(shard)].flatten(1)
        apart = torch.cdist(x, x) + torch.eye(len(shard))
        ratios.append(float((torch.cdist(single, single) / apart).max()))
    assert problem.variances(state) == pytest.approx(variances, rel=1e-4)
    assert problem.variability(state) == pytest.approx(max(ratios), rel=1e-3)
    x = examples.x[torch.from_numpy(SHARDS[1])].flatten(1)
    assert problem.dispersion()[1] == pytest.approx(float(x.var(0).sum()) * 4, rel=1e-5)


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_sharpness_is_the_hessians_norm(kind: str) -> None:
    problem, state, examples = problem_of(kind)
    rows = torch.from_numpy(SHARDS[2])

    def loss(theta: torch.Tensor) -> torch.Tensor:
        output, _ = problem.model.forward(theta, state.buffers, examples.x[rows], None, False)
        return torch.nn.functional.cross_entropy(output.logits, examples.y[rows])

    hessian = torch.autograd.functional.hessian(loss, state.theta)  # type: ignore[no-untyped-call]  # torch's
    exact = float(torch.linalg.matrix_norm(hessian, 2))
    found = problem.sharpness(state, device=2, steps=60)
    assert found == pytest.approx(exact, rel=0.02)
    assert found <= exact * (1 + 1e-5)
    assert problem.sharpness(state, steps=3) > 0
    assert problem.sharpness(state, device=2, steps=2) <= found * (1 + 1e-6)


def test_the_closed_form_bounds_every_curvature() -> None:
    problem, state, _ = problem_of("softmax")
    bound = problem.smoothness()
    assert bound is not None
    draw = torch.Generator().manual_seed(0)
    for scale in (0.0, 0.1, 1.0, 10.0):
        theta = scale * torch.randn(state.theta.shape, generator=draw)
        for device in range(3):
            sharpness = problem.sharpness(ModelState(theta, state.buffers), device, steps=30)
            assert sharpness <= bound * (1 + 1e-5)
    assert problem_of("mlp")[0].smoothness() is None


def test_the_optimum_is_below_every_loss_and_stationary() -> None:
    problem, state, _ = problem_of("softmax")
    least = problem.optimum(state, iterations=500)
    assert least < problem.loss(state)
    assert problem.optimum(state, iterations=1) >= least
    draw = torch.Generator().manual_seed(1)
    for _ in range(20):
        theta = state.theta + torch.randn(state.theta.shape, generator=draw)
        assert problem.loss(ModelState(theta, state.buffers)) > least


def test_equal_features_with_different_labels_have_no_variability() -> None:
    problem, state, examples = problem_of("softmax")
    x, y = examples.x.clone(), examples.y.clone()
    x[1], y[0], y[1] = x[0], 0, 1
    twins = Problem.of(problem.model, Examples(x, y), [np.arange(5)])
    assert twins.variability(state) == np.inf


def test_zeta_2_is_the_least_that_holds() -> None:
    assert dissimilarity([1.0], [2.0], 1.0) == 0.0
    assert dissimilarity([4.0, 9.0], [1.0, 2.0], 2.0) == 5.0
