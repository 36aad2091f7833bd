"""MOON: when there is a contrast, its gradient, and what the frozen models may not touch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.local import Batch, Recipe, loss_gradient, train
from ebbflow.core.types import Model, ModelState, State
from ebbflow.models import from_module, mlp, softmax
from tests.engines.rounds import (
    CLASSES,
    ENGINES,
    SHAPE,
    Federation,
    conv_normed,
    engine_on,
    visits,
)

MODELS = [softmax(SHAPE, CLASSES), mlp(SHAPE, CLASSES, 12), conv_normed()]
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)


def state(model: Model, seed: int) -> ModelState:
    theta, buffers = model.initial(torch.Generator().manual_seed(seed))
    return ModelState(theta.double(), buffers.double() + 0.1 * seed)


def batch(size: int = 9, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(size, *SHAPE, generator=draw, dtype=torch.float64)
    y = torch.randint(CLASSES, (size,), generator=draw)
    return Batch(x, y, torch.full((size,), 1 / size, dtype=torch.float64))


def seen(model: ModelState) -> State:
    one = torch.ones((), dtype=model.theta.dtype)
    return {"theta": model.theta, "buffers": model.buffers, "seen": one}


@every_model
@pytest.mark.parametrize("engine", ENGINES)
def test_a_first_participation_is_fedavgs(model: Model, engine: str) -> None:
    start = model.initial(torch.Generator().manual_seed(1))
    ours, plain = (
        Federation(engine_on(engine, model), ALGORITHMS[name](), start)
        for name in ("moon", "fedavg")
    )
    first, second, _ = visits()
    for federation in (ours, plain):
        federation.round(first)
    torch.testing.assert_close(ours.model.theta, plain.model.theta, rtol=0, atol=1e-6)
    for federation in (ours, plain):
        federation.round(second)  # two of the four devices come back
    assert float((ours.model.theta - plain.model.theta).abs().max()) > 1e-5


@every_model
@pytest.mark.parametrize(("mu", "tau"), [(1.0, 1.0), (5.0, 0.5)])
def test_its_gradient_is_that_of_the_whole_loss(model: Model, mu: float, tau: float) -> None:
    algorithm, one = ALGORITHMS["moon"](mu=mu, tau=tau), batch()
    here, sent, last = (state(model, seed) for seed in (1, 2, 3))
    client = seen(last)
    frozen = algorithm.anchors(Broadcast(*sent, {}), client)
    outputs = {n: model.forward(*anchor, one.x, None, False)[0] for n, anchor in frozen.items()}
    found, _ = loss_gradient(model, algorithm, *here, one, outputs, client)

    theta = here.theta.clone().requires_grad_()
    (logits, z), _ = model.forward(theta, here.buffers, one.x, None, True)
    with torch.no_grad():
        z_glob = model.forward(*sent, one.x, None, False)[0].features
        z_prev = model.forward(*last, one.x, None, False)[0].features

    def score(other: Tensor) -> Tensor:
        cosine = (z * other).sum(1) / (z.norm(dim=1) * other.norm(dim=1))
        return torch.exp(cosine / tau)

    contrast = -torch.log(score(z_glob) / (score(z_glob) + score(z_prev))).mean()
    loss = functional.cross_entropy(logits, one.y) + mu * contrast
    (expected,) = torch.autograd.grad(loss, theta)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


class Counting(nn.Module):
    """Notes the mode of every forward pass."""

    passes: list[bool] = []  # noqa: RUF012 - copies of the module share it

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.passes.append(self.training)
        found: Tensor = self.head(x.flatten(1))
        return found


def test_a_step_takes_one_pass_of_the_local_model_and_one_of_each_anchor() -> None:
    model = from_module(Counting, "counting")
    first, second, third = visits()
    federation = Federation(engine_on("sequential", model), ALGORITHMS["moon"](), _start(model))
    for who in (first, second, third):
        Counting.passes.clear()
        federation.round(who)
        steps = sum(len(batches) for batches in who.batches)
        assert Counting.passes.count(True) == steps
        assert Counting.passes.count(False) == 2 * steps


def _start(model: Model) -> ModelState:
    return model.initial(torch.Generator().manual_seed(1))


@pytest.mark.parametrize("model", MODELS[:2], ids=lambda m: m.name)
@pytest.mark.parametrize("nought", ["local", "global", "previous"])
def test_features_of_zero_give_numbers(model: Model, nought: str) -> None:
    algorithm, one = ALGORITHMS["moon"](), batch()
    states = {name: state(model, seed) for seed, name in enumerate(("local", "global", "previous"))}
    states[nought] = ModelState(torch.zeros_like(states[nought].theta), states[nought].buffers)
    client = seen(states["previous"])
    frozen = algorithm.anchors(Broadcast(*states["global"], {}), client)
    outputs = {n: model.forward(*anchor, one.x, None, False)[0] for n, anchor in frozen.items()}
    local, _ = model.forward(*states["local"], one.x, None, True)
    assert bool(algorithm.objective(local, one.y, outputs, client).isfinite().all())
    gradient, _ = loss_gradient(model, algorithm, *states["local"], one, outputs, client)
    assert bool(gradient.isfinite().all())


class Projected(nn.Module):
    """A perceptron whose representation is a projection of the hidden layer, without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 6)
        self.projection = nn.Linear(6, 5, bias=False)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.projection(self.hidden(x.flatten(1)).relu())
        return self.head(features), features


def test_a_model_asleep_is_not_thrown_away() -> None:
    """Hidden units that are all zero: the cosine's slope, one over its epsilon, ends there."""
    model, algorithm = from_module(Projected, "projected"), ALGORITHMS["moon"]()
    shared, client = Broadcast(*state(model, 1), {}), seen(state(model, 2))
    one = batch()
    here = state(model, 3).theta
    here[model.layout.slices()["hidden.bias"]] = -100
    assert not model.forward(here, shared.buffers, one.x, None, True)[0].features.any()
    outputs = {
        name: model.forward(*anchor, one.x, None, False)[0]
        for name, anchor in algorithm.anchors(shared, client).items()
    }
    gradient, _ = loss_gradient(model, algorithm, here, shared.buffers, one, outputs, client)
    assert float(gradient.norm()) < 10


def test_anchors_touch_no_running_statistics() -> None:
    model, one = conv_normed(), batch()
    sent, last = state(model, 1), state(model, 2)
    runs: list[LocalRun] = []

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        runs.append(run)
        return weighted_upload(shared, client, run)

    before = [part.clone() for part in (*sent, *last)]
    for algorithm, client in ((ALGORITHMS["moon"](), seen(last)), (ALGORITHMS["fedavg"](), {})):
        watched = algorithm._replace(upload=upload)
        count = torch.tensor(9.0, dtype=torch.float64)
        shared = Broadcast(*sent, {})
        train(model, watched, Recipe(0.9), shared, client, [one], 0.1, count)
    # One step from the same model: BatchNorm has seen the same batch once, in either case.
    assert torch.equal(runs[0].buffers, runs[1].buffers)
    assert not torch.equal(runs[0].buffers, sent.buffers)
    assert not torch.equal(runs[0].theta, runs[1].theta)
    assert all(torch.equal(a, b) for a, b in zip(before, (*sent, *last), strict=True))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_device_remembers_its_own_model_of_its_last_participation(engine: str) -> None:
    model = conv_normed()
    federation = Federation(engine_on(engine, model), ALGORITHMS["moon"](), _start(model))
    first, second, _ = visits()
    federation.round(first)
    kept = {d: dict(state) for d, state in federation.clients.items()}
    assert all(float(state["seen"]) == 1 for state in kept.values())
    assert len({float(state["theta"].sum()) for state in kept.values()}) == len(kept)
    federation.round(second)
    for device, before in kept.items():
        changed = not torch.equal(federation.clients[device]["theta"], before["theta"])
        assert changed == (device in second.devices)
