"""Which modules are recognised as dense networks, and that what is read from them is the module."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from ebbflow.core import dense
from ebbflow.core.types import Linear, Model, Normalised
from ebbflow.models import from_module, mlp
from ebbflow.models.fitted import Fitted

INPUTS = 6


class Chain(nn.Module):
    """Three layers, put together by a function that a test brings."""

    def __init__(self, run: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.drop = nn.Dropout(0.5)
        self.run = run

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def stages(model: Model) -> list[str]:
    assert model.hints.dense is not None
    return [
        stage if isinstance(stage, str) else type(stage).__name__.lower()
        for stage in model.hints.dense.stages
    ]


DENSE: dict[str, tuple[Callable[[Any, Tensor], Any], str, int]] = {
    "functions": (
        lambda m, x: m.third(torch.tanh(m.second(functional.relu(m.first(x.flatten(1)))))),
        "linear relu linear tanh linear",
        5,
    ),
    "methods": (
        lambda m, x: m.third(m.second(m.first(torch.flatten(x, start_dim=1)).relu_()).tanh()),
        "linear relu linear tanh linear",
        5,
    ),
    "a view": (
        lambda m, x: m.third(m.second(m.first(x.view(x.size(0), -1)))),
        "linear linear linear",
        3,
    ),
    "a shape": (
        lambda m, x: m.third(m.second(m.first(x.reshape(x.shape[0], -1)))),
        "linear linear linear",
        3,
    ),
    "so many numbers": (
        lambda m, x: m.third(m.second(m.first(x.view(-1, INPUTS)))),
        "linear linear linear",
        3,
    ),
    "dropout": (
        lambda m, x: m.third(m.drop(m.second(m.first(x.flatten(1))).relu())),
        "linear linear relu masked linear",
        5,
    ),
}


@pytest.mark.parametrize("name", DENSE)
def test_modules_that_are_chains_are_read_however_they_are_written(name: str) -> None:
    run, wanted, features = DENSE[name]
    model = from_module(lambda: Chain(run))
    assert " ".join(stages(model)) == wanted
    assert model.hints.dense is not None
    assert (model.hints.dense.features, model.hints.dense.flattens) == (features, True)


def test_features_are_found_before_and_after_an_activation() -> None:
    def before(m: Any, x: Tensor) -> Any:
        z = m.second(m.first(x))
        return m.third(z.relu()), z

    def after(m: Any, x: Tensor) -> Any:
        h = m.second(m.first(x)).relu()
        return m.third(h), h

    for run, place in ((before, 2), (after, 3)):
        network = from_module(partial(Chain, run)).hints.dense
        assert network is not None
        assert network.features == place


def test_our_own_perceptron_is_one() -> None:
    network = mlp((2, 3), 4, hidden=5).hints.dense
    assert network is not None
    assert network.stages == (
        Linear(slice(0, 30), slice(30, 35), 5, 6),
        "relu",
        Linear(slice(35, 55), slice(55, 59), 4, 5),
    )
    assert network.features == 2


def _in_place(m: Any, x: Tensor) -> Any:
    z = m.second(m.first(x))
    return m.third(z.relu_()), z


def _by_kind(m: Any, x: Any) -> Any:
    hidden = m.second(m.first(x))
    return m.third(hidden.relu() if isinstance(x, Tensor) else hidden.tanh())


def _without_gradient(m: Any, x: Tensor) -> Any:
    with torch.no_grad():
        hidden = m.first(x).relu()
    return m.third(m.second(hidden))


def _in_half_precision(m: Any, x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return m.third(m.second(m.first(x)))


NOT_DENSE: dict[str, Callable[[Any, Tensor], Any]] = {
    "a shortcut": lambda m, x: m.third(m.first(x) + m.second(m.first(x))),
    "a layer twice": lambda m, x: m.third(m.second(m.second(m.first(x)))),
    "a layer that is not used": lambda m, x: m.third(m.first(x)),
    "another function": lambda m, x: m.third(m.second(m.first(x)).sigmoid()),
    "training differs": lambda m, x: m.third(
        m.second(m.first(x)).relu() if m.training else m.second(m.first(x))
    ),
    "a scale": lambda m, x: 2 * m.third(m.second(m.first(x))),
    "a branch on values": lambda m, x: m.third(m.second(m.first(x if x.sum() > 0 else -x))),
    "features that are changed in place": _in_place,
    "another function for other kinds of input": _by_kind,
    "no gradient for the first layer": _without_gradient,
    "products in lower precision": _in_half_precision,
}


@pytest.mark.parametrize("name", NOT_DENSE)
def test_what_is_no_chain_is_left_to_autograd(name: str) -> None:
    assert from_module(lambda: Chain(NOT_DENSE[name])).hints.dense is None


class Capped(nn.ReLU):
    """No more than six; on random rows of a small network nothing is more."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=6)


class Leaky(nn.ReLU):
    """Lets a little through."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(x, 0.01)


class Bounded(nn.Tanh):
    """Never quite one."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(-0.999, 0.999)


class Same(nn.Identity):
    """The same unless it is large."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(max=100)


class Flat(nn.Flatten):
    """Flattens what is not too large."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=100)


class Limited(nn.Linear):
    """Has scores that are not too large."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=100)


class Norm(nn.BatchNorm1d):
    """Has values that are not too large."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).clamp(max=100)


def _patched() -> nn.Module:
    layer = nn.ReLU()
    vars(layer)["forward"] = lambda x: x.relu().clamp(max=100)
    return layer


@pytest.mark.parametrize(
    "stage",
    [Capped, Leaky, Bounded, Same, Flat, _patched, lambda: Limited(5, 5), lambda: Norm(5)],
    ids=["ReLU", "leaky", "Tanh", "Identity", "Flatten", "patched", "Linear", "BatchNorm1d"],
)
def test_a_layer_that_computes_something_of_its_own_is_left_to_autograd(
    stage: Callable[[], nn.Module],
) -> None:
    def build() -> nn.Module:
        last = nn.Linear(5, 3)
        nn.init.zeros_(last.weight)  # hides from a fresh module what comes before
        nn.init.zeros_(last.bias)
        return nn.Sequential(nn.Linear(6, 5), stage(), last)

    assert from_module(build).hints.dense is None


class Rectified(nn.ReLU):
    """Does what the layer does, by another name."""


class Rows(nn.Flatten):
    """Likewise."""


def test_a_layer_by_another_name_is_followed() -> None:
    model = from_module(
        lambda: nn.Sequential(Rows(), nn.Linear(6, 5), Rectified(), nn.Linear(5, 3))
    )
    assert stages(model) == ["linear", "relu", "linear"]


class Held(nn.Module):
    """Keeps a layer in evaluation."""

    def __init__(self, held: nn.Module) -> None:
        super().__init__()
        self.first, self.held, self.last = nn.Linear(6, 5), held, nn.Linear(5, 3)

    def train(self, mode: bool = True) -> Held:
        super().train(mode)
        self.held.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.held(self.first(x)))
        return logits


@pytest.mark.parametrize(
    ("held", "dense"),
    [
        (lambda: nn.BatchNorm1d(5), False),
        (lambda: nn.Dropout(1e-6), False),
        (nn.ReLU, True),
    ],
)
def test_a_layer_that_is_kept_in_evaluation_is_no_stage_unless_it_does_not_matter(
    held: Callable[[], nn.Module], dense: bool
) -> None:
    assert (from_module(lambda: Held(held())).hints.dense is not None) is dense


class Halves(nn.Module):
    """Makes two rows of every sample in the middle, which is no function of single samples."""

    def __init__(self, by_kind: bool) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 10), nn.Linear(5, 10), nn.Linear(10, 3)
        self.by_kind = by_kind

    def forward(self, x: Any) -> Tensor:
        hidden = self.a(x)
        if not self.by_kind or isinstance(x, Tensor):  # torch.fx does not see the second
            hidden = hidden.view(-1, 5)
        logits: Tensor = self.c(self.b(hidden).relu().view(-1, 10))
        return logits


@pytest.mark.parametrize("by_kind", [True, False])
def test_a_module_that_makes_other_rows_is_left_to_autograd(by_kind: bool) -> None:
    assert from_module(lambda: Halves(by_kind)).hints.dense is None


def test_rows_that_stay_what_they_are_may_be_asked_for_anywhere() -> None:
    def run(m: Any, x: Tensor) -> Any:
        hidden = m.first(x.view(-1, INPUTS)).relu()
        return m.third(m.second(hidden.view(hidden.size(0), -1)))

    assert stages(from_module(lambda: Chain(run))) == ["linear", "relu", "linear", "linear"]


def _frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    module[0].weight.requires_grad_(False)
    return module


def _hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    module[0].register_forward_hook(lambda part, given, result: 2 * result)
    return module


def _normed() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 3))


@pytest.mark.parametrize(
    "build",
    [
        _frozen,
        _hooked,
        _normed,
        lambda: nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
        lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 3)),
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)
        ),
        lambda: nn.Sequential(nn.Flatten(2), nn.Linear(6, 3)),
        lambda: nn.Bilinear(6, 6, 3),
    ],
    ids=[
        *("frozen", "hooked", "weight_norm", "layer_norm", "a mean of all batches"),
        *("no statistics are kept", "flatten", "bilinear"),
    ],
)
def test_other_layers_are_left_to_autograd(build: Callable[[], nn.Module]) -> None:
    assert from_module(build).hints.dense is None


def test_batch_normalisation_is_read_with_where_its_statistics_lie() -> None:
    model = from_module(
        lambda: nn.Sequential(
            nn.Linear(6, 5), nn.BatchNorm1d(5, affine=False), nn.ReLU(), nn.Linear(5, 4),
            nn.BatchNorm1d(4, eps=0.1, momentum=0.2),
        )
    )  # fmt: skip
    assert model.hints.dense is not None
    assert model.hints.dense.stages[1::3] == (
        Normalised(None, None, slice(0, 5), slice(5, 10), 5, 1e-5, 0.1),
        Normalised(slice(59, 63), slice(63, 67), slice(10, 14), slice(14, 18), 4, 0.1, 0.2),
    )


def test_lower_precision_has_no_closed_form() -> None:
    model = mlp((6,), 3)
    assert model.hints.at_precision is not None
    assert model.hints.at_precision("bf16").hints.dense is None


@pytest.mark.parametrize(("task", "outputs"), [("binary", 1), ("binary", 2), ("regression", 1)])
@pytest.mark.parametrize("train", [True, False])
def test_outputs_that_are_fitted_to_a_task_are_read_as_well(
    task: str, outputs: int, train: bool
) -> None:
    model = from_module(
        lambda: Fitted(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, outputs)), task)
    )
    network = model.hints.dense
    assert network is not None
    assert network.zero_first == (task == "binary" and outputs == 1)
    theta, buffers = model.initial(torch.Generator().manual_seed(0))
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    wanted, _ = model.forward(theta, buffers, x, None, train)
    found = dense.forward(network, dense.layer_views(network, theta), x, None).output
    torch.testing.assert_close(found, wanted)
