"""Dense networks in closed form: the derivatives, the kernel, and that no cut of the work shows."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Affine, Algorithm, Broadcast, Objective, cross_entropy
from ebbflow.core.dense import OutputSlopes, add_gradient, forward, layer_views
from ebbflow.core.errors import HookError
from ebbflow.core.evaluate import Score, evaluate
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.objectives import Contrast, Distillation, TaskLoss
from ebbflow.core.slopes import Compared, slopes
from ebbflow.core.tasks import TASKS
from ebbflow.core.types import Examples, Model, ModelState, Output, Pixels, State
from ebbflow.engines import Sequential, Vectorised
from ebbflow.engines import dense as module
from ebbflow.engines.dense import aligned, why_not_dense
from ebbflow.engines.dense_passes import KernelPasses, TorchPasses
from ebbflow.engines.native import dense as native
from ebbflow.models import from_module, mlp
from ebbflow.models.dropout import kept_units
from ebbflow.starts.continuous import distilled
from tests.engines.rounds import (
    CLASSES,
    MANY,
    RECIPE,
    SHAPE,
    assert_agree,
    cohort,
    deep,
    examples,
    lane,
    same_bits,
    shifts,
)

MLP = mlp(SHAPE, CLASSES, hidden=21)
SHIFTS = shifts(MLP.layout.total)
SOURCE = Path(native.__file__).with_name("dense.c")
built = pytest.mark.skipif(native.library() is None, reason="the kernel was not built here")
both = pytest.mark.parametrize("fused", [pytest.param(True, marks=built), False])


def layered(
    widths: Sequence[int],
    activation: type[nn.Module],
    *,
    bias: bool = True,
    norm: bool = False,
    drop: float = 0.0,
) -> Model:
    """Return a network of these widths, with other stages behind all layers but the last."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths[:-1]):
            layers.append(nn.Linear(inputs, outputs, bias=bias))
            # With so large an epsilon, a variance near zero makes no more of rounding.
            layers += [nn.BatchNorm1d(outputs, eps=0.1, affine=bias, momentum=0.3)] * norm
            layers += [activation(), *[nn.Dropout(drop)] * bool(drop)]
        return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1], bias=bias))

    return from_module(build, "layered")


def trained(
    model: Model,
    lanes: list[Lane],
    who: Cohort,
    data: Examples | None = None,
    recipe: Recipe = RECIPE,
    *,
    fused: bool = True,
    workers: int = 1,
) -> list[Trained]:
    engine = Vectorised(model, data or examples(), recipe, workers=workers, fused=fused)
    try:
        for each in lanes:
            assert engine.route(each, who).path == "dense layers"
        return engine(lanes, who)
    finally:
        engine.close()


# --- the passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0.0, 0.9])
@pytest.mark.parametrize("norm", [False, True])
def test_the_gradient_is_that_of_autograd(keep: float, norm: bool) -> None:
    model = layered((64, 5, 4, CLASSES), nn.Tanh, norm=True, drop=0.4) if norm else deep()
    network = model.hints.dense
    assert network is not None
    draw = torch.Generator().manual_seed(3)
    theta, buffers = (each.double() for each in model.initial(draw))
    x = torch.randn(7, 64, generator=draw, dtype=torch.float64)
    noise = torch.rand(7, *(model.noise or ()), generator=draw, dtype=torch.float64)
    slope = torch.randn(7, CLASSES, generator=draw, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    output, after = model.forward(leaf, buffers, x, noise, True)
    (wanted,) = torch.autograd.grad(output.logits, leaf, slope)
    old = torch.randn(theta.shape, generator=draw, dtype=torch.float64)
    into = old.clone() if keep else torch.full_like(old, float("nan"))
    layers = layer_views(network, theta)
    passed = forward(network, layers, x, noise, buffers)
    add_gradient(network, layers, passed, OutputSlopes(slope), layer_views(network, into), keep)
    torch.testing.assert_close(passed.output.logits, output.logits.detach())
    torch.testing.assert_close(into, wanted + (keep * old if keep else 0))
    torch.testing.assert_close(buffers, after)


@pytest.mark.parametrize("first", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize("second", [nn.ReLU, nn.Tanh])
def test_an_activation_behind_another_leaves_it_what_it_needs(
    first: type[nn.Module], second: type[nn.Module]
) -> None:
    model = from_module(
        lambda: nn.Sequential(nn.Linear(6, 5), first(), second(), nn.Linear(5, CLASSES))
    )
    assert model.hints.dense is not None
    who, at, data = cohort(MANY[:6]), lane(model, Algorithm("a")), examples((6,))
    assert_agree(trained(model, [at], who, data)[0], reference(model, at, who, data), at)


def test_features_before_a_mask_stay_what_they_are() -> None:
    class Masking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(6, 5), nn.Linear(5, CLASSES)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features = self.first(x).tanh()
            return self.last(self.drop(features).relu()), features

    model = from_module(Masking)
    assert model.hints.dense is not None
    theta, buffers = model.initial(torch.Generator().manual_seed(0))
    x = examples((6,)).x
    wanted, _ = model.forward(theta, buffers, x, None, False)
    layers = layer_views(model.hints.dense, theta)
    found = forward(model.hints.dense, layers, x, None, buffers, train=False).output
    torch.testing.assert_close(found, wanted)


# --- the derivatives of objectives ---------------------------------------------------------------


def compared_with(batch: int, width: int, seen: float) -> Compared:
    draw = torch.Generator().manual_seed(batch)
    labels = torch.randint(CLASSES, (batch,), generator=draw)
    frozen = {
        name: Output(
            torch.randn(batch, CLASSES, generator=draw, dtype=torch.float64),
            torch.randn(batch, width, generator=draw, dtype=torch.float64),
        )
        for name in ("global", "previous", "teacher")
    }
    one_hot = torch.eye(CLASSES, dtype=torch.float64)[labels]
    client = {"seen": torch.tensor(seen, dtype=torch.float64)}
    return Compared(labels, one_hot, 1 / batch, tuple(frozen), frozen.__getitem__, client)


OBJECTIVES: dict[str, Objective] = {
    "classes": cross_entropy,
    "contrast": Contrast(2.0, 0.5),
    "teacher": Distillation(cross_entropy, 0.7, 3.0, "teacher", ()),
    "mixed": Distillation(Contrast(1.0, 1.0), 0.7, 0.5, "mixed", (0, 3)),
    "contrast of a student": Contrast(
        1.0, 2.0, Distillation(Contrast(1.0, 1.0), 1, 1, "mixed", (1,))
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("seen", [0.0, 1.0])
def test_slopes_are_those_of_autograd(name: str, seen: float) -> None:
    batch, draw = compared_with(6, 4, seen), torch.Generator().manual_seed(5)
    logits = torch.randn(6, CLASSES, generator=draw, dtype=torch.float64).requires_grad_()
    features = torch.randn(6, 4, generator=draw, dtype=torch.float64)
    features[0] = 0  # a length that the cosine raises to the smallest
    features.requires_grad_()
    anchors = {each: batch.anchor(each) for each in batch.names}
    losses = OBJECTIVES[name](Output(logits, features), batch.labels, anchors, batch.client)
    wanted = torch.autograd.grad(
        (losses * batch.weight).sum(), (logits, features), allow_unused=True, materialize_grads=True
    )
    found = slopes(OBJECTIVES[name], Output(logits.detach(), features.detach()), batch)
    torch.testing.assert_close(found.logits, wanted[0])
    # At length zero the cosine has no derivative: torch takes one of many.
    if found.features is not None:
        torch.testing.assert_close(found.features[1:], wanted[1][1:])
    else:
        assert not wanted[1].any()


def test_a_first_visit_asks_no_frozen_model() -> None:
    def asked(name: str) -> Output:
        raise AssertionError(name)

    batch = compared_with(4, 3, 0.0)._replace(anchor=asked)
    output = Output(torch.zeros(4, CLASSES).double(), torch.ones(4, 3).double())
    assert slopes(Contrast(1.0, 1.0), output, batch).features is None


def test_an_objective_that_does_not_depend_on_outputs_has_no_slope() -> None:
    def constant(
        output: Output, labels: Tensor, anchors: dict[str, Output], client: State
    ) -> Tensor:
        return torch.ones(len(labels))

    output = Output(torch.zeros(4, CLASSES), torch.ones(4, 3))
    found = slopes(constant, output, compared_with(4, 3, 1.0))
    assert not found.logits.any()
    assert found.features is None


# --- the kernel ----------------------------------------------------------------------------------


@built
@given(
    widths=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    sizes=st.lists(st.lists(st.integers(1, 35), max_size=3), min_size=1, max_size=5),
    tanh=st.booleans(),
    bias=st.booleans(),
    momentum=st.sampled_from([0.0, 0.9]),
    radius=st.sampled_from([None, 0.5]),
    name=st.sampled_from(["fedavg", "fedprox", "scaffold", "moon", "feddyn"]),
)
@settings(max_examples=40, deadline=None)
def test_any_shape_agrees_with_the_reference(
    widths: list[int],
    sizes: list[list[int]],
    tanh: bool,
    bias: bool,
    momentum: float,
    radius: float | None,
    name: str,
) -> None:
    widths[-1] = max(2, widths[-1])
    model = layered(widths, nn.Tanh if tanh else nn.ReLU, bias=bias)
    data, recipe = examples((widths[0],), widths[-1]), Recipe(momentum, radius)
    algorithm = ALGORITHMS[name]()
    who = cohort(sizes)._replace(samples=tuple(1 + sum(own) for own in sizes))
    at = lane(model, algorithm, lr=0.05)
    (fast,) = trained(model, [at], who, data, recipe)
    slow = Sequential(model, data, recipe)
    assert_agree(fast, slow([at], who)[0], at, within=3e-4)
    again = lane(model, algorithm, lr=0.05, clients=fast[1])
    (later,) = trained(model, [again], who, data, recipe)
    assert_agree(later, slow([again], who)[0], again, within=3e-4)


def in_double(at: Lane) -> Lane:
    shared = at.shared
    extras = {name: value.double() for name, value in shared.extras.items()}
    return at._replace(shared=Broadcast(shared.theta.double(), shared.buffers.double(), extras))


@given(
    widths=st.lists(st.integers(1, 40), min_size=3, max_size=5),
    sizes=st.lists(st.lists(st.integers(4, 35), max_size=3), min_size=1, max_size=5),
    tanh=st.booleans(),
    bias=st.booleans(),
    norm=st.booleans(),
    drop=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    name=st.sampled_from(["fedavg", "fedprox", "scaffold", "moon", "feddyn"]),
)
@settings(max_examples=12, deadline=None)
def test_normalised_and_dropped_units_agree_with_the_reference(
    widths: list[int],
    sizes: list[list[int]],
    tanh: bool,
    bias: bool,
    norm: bool,
    drop: float,
    name: str,
) -> None:
    """In double precision tightly, and in single precision as far as that goes."""
    widths[-1] = max(2, widths[-1])
    model = layered(widths, nn.Tanh if tanh else nn.ReLU, bias=bias, norm=norm, drop=drop)
    data = examples((widths[0],), widths[-1])
    exact = replace(data, x=data.x.double())
    who = cohort(sizes)._replace(samples=tuple(1 + sum(own) for own in sizes))
    at = lane(model, ALGORITHMS[name](), lr=0.05)
    (wanted,) = Sequential(model, exact, RECIPE)([in_double(at)], who)
    (ours,) = trained(model, [in_double(at)], who, exact)
    assert_agree(ours, wanted, in_double(at), within=1e-8)
    for fused in (True, False):
        (total, _), (exactly, _) = trained(model, [at], who, data, fused=fused)[0], wanted
        for one, other in zip(total[:2], exactly[:2], strict=True):
            torch.testing.assert_close(
                one / total.samples, (other / exactly.samples).float(), rtol=1e-3, atol=1e-4
            )


@both
def test_a_mini_batch_of_one_has_no_variance(fused: bool) -> None:
    model, data = layered((64, 5, CLASSES), nn.ReLU, norm=True), examples((64,))
    with pytest.raises(Exception, match=r"session 3, round 2, device \d+, step 2"):
        trained(model, [lane(model, Algorithm("a"))], cohort([(4, 1)]), data, fused=fused)


@built
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7, 2 / 3])
def test_the_kernel_drops_the_very_units_that_a_layer_drops(share: float) -> None:
    model = layered((3, 50, 2), nn.ReLU, drop=share)
    assert model.hints.dense is not None
    layers = native.kernel_layers(model.hints.dense)
    assert layers is not None
    kernel = native.DenseKernel(layers, 1)
    x, noise = torch.rand(1000, 3) + 0.1, torch.rand(1000, 1)
    x[:, 0] = 1.0
    theta = torch.ones(model.layout.total)
    laid = kernel.laid_out(x, np.arange(1000))
    values, _, _ = kernel.forward(theta, torch.zeros(0), laid, noise)
    panels = values[1008 * 50 : 2 * 1008 * 50].view(63, 50, 16)
    found = panels.permute(0, 2, 1).reshape(1008, 50)[:1000] != 0
    assert torch.equal(found, kept_units(noise[:, 0], 50, share, 0))


@built
def test_sums_longer_than_a_block_of_the_kernel_agree() -> None:
    model = layered((700, 300, 5), nn.ReLU)
    data, who, at = examples((700,), 5), cohort([(20, 33), (5,)]), lane(model, Algorithm("a"))
    assert_agree(trained(model, [at], who, data)[0], reference(model, at, who, data), at, 1e-4)


def reference(model: Model, at: Lane, who: Cohort, data: Examples) -> Trained:
    return Sequential(model, data, RECIPE)([at], who)[0]


class Backwards(nn.Module):
    """Names its last layer first, so that theta begins with it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, CLASSES)
        self.hidden = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.hidden(x.flatten(1)).tanh())
        return logits


@both
def test_layers_may_lie_in_theta_in_another_order_than_they_are_used(fused: bool) -> None:
    model = from_module(Backwards)
    who, at = cohort(MANY[:6]), lane(model, Algorithm("a"))
    ours = trained(model, [at], who, fused=fused)[0]
    assert_agree(ours, reference(model, at, who, examples()), at)


@built
def test_stages_in_the_usual_order_go_through_the_kernel() -> None:
    def passes(model: Model) -> type:
        engine = Vectorised(model, examples(), RECIPE, workers=1)
        engine.close()
        assert engine._dense is not None
        return type(engine._dense.passes)

    def chain(*stages: nn.Module) -> Model:
        return from_module(lambda: nn.Sequential(nn.Flatten(), *stages))

    first, last = nn.Linear(64, 5), nn.Linear(5, CLASSES)
    assert passes(MLP) is KernelPasses
    assert passes(deep()) is KernelPasses
    assert passes(chain(first, nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(), last)) is KernelPasses
    assert passes(chain(first, nn.ReLU(), nn.BatchNorm1d(5), last)) is KernelPasses
    assert passes(chain(first, nn.Dropout(), nn.ReLU(), last)) is TorchPasses
    assert passes(chain(first, nn.ReLU(), nn.Tanh(), last)) is TorchPasses
    assert passes(chain(nn.BatchNorm1d(64), first, last)) is TorchPasses


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_the_source_compiles_without_a_warning(tmp_path: Path) -> None:
    strict = ["-Wall", "-Wextra", "-Wshadow", "-Wno-psabi", "-Werror", "-std=gnu11", "-O2"]
    target = tmp_path / "kernel.so"
    command = ["cc", *strict, "-fPIC", "-shared", "-o", str(target), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@built
def test_a_kernel_without_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(native.DenseKernel, "train", refuse)
    with pytest.raises(Exception, match="session 3, round 2: out of memory"):
        trained(MLP, [lane(MLP, Algorithm("a"))], cohort([(4,)]))


# --- whoever trains beside it --------------------------------------------------------------------


@both
def test_neither_workers_nor_company_nor_order_change_a_bit(fused: bool) -> None:
    who = cohort(MANY)
    lanes = [lane(MLP, build(), lr=0.05) for build in ALGORITHMS.values()]
    together = trained(MLP, lanes, who, fused=fused, workers=3)
    for at, ours in zip(lanes, together, strict=True):
        assert same_bits(trained(MLP, [at], who, fused=fused)[0], ours), at.algorithm.name


@both
def test_mini_batches_that_are_not_kept_give_the_same_bits(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, lanes = cohort(MANY[:6]), [lane(MLP, Algorithm("a")), lane(MLP, Algorithm("b"), lr=0.2)]
    kept = trained(MLP, lanes, who, fused=fused)
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    again = trained(MLP, lanes, who, fused=fused)
    assert all(same_bits(*pair) for pair in zip(kept, again, strict=True))


@both
def test_where_theta_lies_does_not_show(fused: bool) -> None:
    """A broadcast model may be a part of a longer vector, at any address."""
    who, at = cohort(MANY[:6]), lane(MLP, Algorithm("a"))
    longer = torch.cat([torch.zeros(1), at.shared.theta])
    moved = at._replace(shared=at.shared._replace(theta=longer[1:]))
    assert aligned(longer[1:]).data_ptr() != longer[1:].data_ptr()
    ours, theirs = (trained(MLP, [each], who, fused=fused)[0] for each in (at, moved))
    assert same_bits(ours, theirs)


@both
def test_a_direction_that_is_no_record_is_asked_in_every_step(fused: bool) -> None:
    class Steeper(Affine):
        def __call__(
            self, gradient: Tensor, theta: Tensor, shared: Broadcast, client: State
        ) -> Tensor:
            return 2 * gradient

    who = cohort(MANY[:6])
    for direction in (Steeper(), lambda g, theta, shared, client: 2 * g):
        at = lane(MLP, Algorithm("steep", direction=direction), lr=0.02)
        plain = lane(MLP, Algorithm("plain"), lr=0.04)
        assert_agree(
            trained(MLP, [at], who, fused=fused)[0], trained(MLP, [plain], who, fused=fused)[0], at
        )


@both
def test_pictures_are_prepared_before_they_are_multiplied(fused: bool) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, 256, (400, *SHAPE), generator=draw, dtype=torch.uint8)
    pixels = Pixels((0.5,), (0.25,), crop=1, flip=True)
    data = Examples(x, torch.randint(CLASSES, (400,), generator=draw), pixels)
    who, at = cohort(MANY[:6]), lane(MLP, Algorithm("a"))
    ours = trained(MLP, [at], who, data, fused=fused)[0]
    assert_agree(ours, reference(MLP, at, who, data), at)


@both
@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_other_tasks_have_their_own_losses(task: str, fused: bool) -> None:
    draw = torch.Generator().manual_seed(2)
    y = torch.randn(400, CLASSES, generator=draw)
    truth = y if task == "regression" else (y > 0).float()
    data = Examples(examples().x, truth)
    algorithm = Algorithm("a", objective=TaskLoss(TASKS[task]))
    who, at = cohort(MANY[:6]), lane(MLP, algorithm)
    ours = trained(MLP, [at], who, data, fused=fused)[0]
    assert_agree(ours, reference(MLP, at, who, data), at)


# --- evaluation ----------------------------------------------------------------------------------


def scored(model: Model, states: list[ModelState], test: Examples, *, fused: bool) -> list[Score]:
    engine = Vectorised(model, examples(SHAPE_OF[model.name]), RECIPE, workers=2, fused=fused)
    try:
        return engine.evaluate(states, test)()
    finally:
        engine.close()


SHAPE_OF: dict[str, tuple[int, ...]] = {"mlp": SHAPE, "layered": (37,)}


@both
@given(
    samples=st.integers(1, 5000),
    tanh=st.booleans(),
    bias=st.booleans(),
    norm=st.booleans(),
    drop=st.sampled_from([0.0, 0.5]),
)
@settings(max_examples=20, deadline=None)
def test_a_model_scores_as_it_does_with_the_reference(
    fused: bool, samples: int, tanh: bool, bias: bool, norm: bool, drop: float
) -> None:
    """Nothing is dropped, and running statistics are used and left as they are."""
    activation = nn.Tanh if tanh else nn.ReLU
    model = layered((37, 19, CLASSES), activation, bias=bias, norm=norm, drop=drop)
    draw = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, 37, generator=draw)
    test = Examples(x, torch.randint(CLASSES, (samples,), generator=draw))
    states = [
        ModelState(
            torch.randn(model.layout.total, generator=draw),
            0.5 + torch.rand(model.buffer_layout.total, generator=draw),
        )
        for _ in range(3)
    ]
    before = [state.buffers.clone() for state in states]
    for state, found in zip(states, scored(model, states, test, fused=fused), strict=True):
        wanted = evaluate(model, state, test)
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        # Two scores that are equal but for rounding may change places.
        assert abs(found.accuracy - wanted.accuracy) * samples <= 100
    assert all(torch.equal(a.buffers, b) for a, b in zip(states, before, strict=True))


@both
def test_pictures_are_prepared_before_they_are_scored(fused: bool) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randint(0, 256, (400, *SHAPE), generator=draw, dtype=torch.uint8)
    test = Examples(x, torch.randint(CLASSES, (400,), generator=draw), Pixels((0.5,), (0.25,)))
    state = MLP.initial(draw)
    (found,) = scored(MLP, [state], test, fused=fused)
    assert found.loss == pytest.approx(evaluate(MLP, state, test).loss, rel=1e-5)


@built
@pytest.mark.parametrize(("columns", "kind"), [(60, torch.float32), (64, torch.float64)])
def test_the_kernel_reads_no_test_samples_of_another_size_or_type(
    columns: int, kind: torch.dtype
) -> None:
    test = Examples(torch.zeros(8, columns, dtype=kind), torch.zeros(8, dtype=torch.int64))
    state = MLP.initial(torch.Generator().manual_seed(2))
    with pytest.raises(HookError, match=r"evaluation: .*(dtype|shapes)"):
        scored(MLP, [state], test, fused=True)


@built
def test_a_scoring_kernel_without_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    found = native.library()
    assert found is not None
    monkeypatch.setattr(found, "ebbflow_dense_scores", lambda *given: 1)
    test = Examples(examples().x, examples().y)
    with pytest.raises(Exception, match="memory"):
        scored(MLP, [MLP.initial(torch.Generator().manual_seed(2))], test, fused=True)


# --- who is not trained here ---------------------------------------------------------------------


def test_double_precision_goes_through_torch() -> None:
    data = Examples(examples().x.double(), examples().y)
    who, at = cohort(MANY[:6]), lane(MLP, Algorithm("a"))
    double = at._replace(shared=Broadcast(at.shared.theta.double(), at.shared.buffers, {}))
    ours = trained(MLP, [double], who, data)[0]
    assert_agree(ours, reference(MLP, double, who, data), double, within=1e-12)


def test_a_model_of_another_type_than_its_samples_is_mapped() -> None:
    engine = Vectorised(MLP, examples(), RECIPE, workers=1)
    at = lane(MLP, Algorithm("a"))
    double = at._replace(shared=Broadcast(at.shared.theta.double(), at.shared.buffers, {}))
    route = engine.route(double, cohort([(3,)]))
    engine.close()
    assert route.path == "mapped blocks"
    assert route.reason == "the model is torch.float64 and the samples are torch.float32"


NORMED = layered((64, 8, CLASSES), nn.ReLU, norm=True)


@both
@pytest.mark.parametrize("count", [0, 4, 15, 17])
def test_buffers_of_another_length_are_left_to_torch_to_refuse(count: int, fused: bool) -> None:
    """The kernel checks no bounds, and brings running statistics up to date in place."""
    at, who, data = lane(NORMED, Algorithm("a")), cohort([(9,)]), examples((64,))
    odd = at._replace(shared=at.shared._replace(buffers=torch.ones(count)))
    engine = Vectorised(NORMED, data, RECIPE, workers=1, fused=fused)
    try:
        assert engine.route(odd, who).reason == f"the model has {count} numbers in buffers " + (
            "instead of 16"
        )
        with pytest.raises(HookError, match="session 3, round 2, device 10, step 1"):
            engine([odd], who)
        with pytest.raises(HookError, match="evaluation"):
            engine.evaluate([ModelState(at.shared.theta, torch.ones(count))], data)()
    finally:
        engine.close()


def test_buffers_of_another_type_are_left_to_torch() -> None:
    at = lane(NORMED, Algorithm("a"))
    odd = at._replace(shared=at.shared._replace(buffers=at.shared.buffers.double()))
    engine = Vectorised(NORMED, examples((64,)), RECIPE, workers=1)
    reason = engine.route(odd, cohort([(9,)])).reason
    engine.close()
    assert reason == "the model is torch.float64 and the samples are torch.float32"


@both
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
@pytest.mark.parametrize("radius", [None, 5.0], ids=["all steps at once", "step by step"])
def test_a_shift_of_any_form_is_added_as_torch_adds_it(
    shift: Tensor, radius: float | None, fused: bool
) -> None:
    at = lane(MLP, Algorithm("shifted", direction=Affine(shift=lambda shared, client: shift)))
    who, recipe = cohort(MANY[:6]), RECIPE._replace(radius=radius)
    (wanted,) = Sequential(MLP, examples(), recipe)([at], who)
    assert_agree(trained(MLP, [at], who, recipe=recipe, fused=fused)[0], wanted, at)


@both
@pytest.mark.parametrize("part", ["parameters", "buffers", "type"])
def test_a_frozen_model_of_another_kind_is_refused(part: str, fused: bool) -> None:
    theta, buffers = NORMED.initial(torch.Generator().manual_seed(9))
    odd = {
        "parameters": ModelState(theta[:4], buffers),
        "buffers": ModelState(theta, buffers[:4]),
        "type": ModelState(theta.double(), buffers),
    }[part]
    at = lane(NORMED, distilled(Algorithm("a"), odd, (0,)))
    with pytest.raises(HookError, match="session 3, round 2, device 10, step 1"):
        trained(NORMED, [at], cohort([(9,)]), examples((64,)), fused=fused)


@both
def test_models_whose_entries_lie_apart_are_read_all_the_same(fused: bool) -> None:
    """Step by step, and as frozen models."""
    who, data, at = cohort(MANY[:1]), examples((64,)), lane(NORMED, ALGORITHMS["moon"]())

    def apart(vector: Tensor) -> Tensor:
        return torch.stack([vector, torch.full_like(vector, 9.0)], 1)[:, 0]

    seen = {**at.algorithm.init_client(at.shared), "seen": torch.tensor(1.0)}
    at = at._replace(clients={10: seen})
    shared = at.shared._replace(theta=apart(at.shared.theta), buffers=apart(at.shared.buffers))
    spread = {name: apart(value) if value.dim() else value for name, value in seen.items()}
    odd = at._replace(shared=shared, clients={10: spread})
    ours, theirs = (trained(NORMED, [each], who, data, fused=fused)[0] for each in (at, odd))
    assert same_bits(ours, theirs)


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (mlp((64,), CLASSES), (1, 8, 8), ""),
        (mlp((63,), CLASSES), (1, 8, 8), "the samples are no rows of 63 numbers"),
        (layered((8, 5, CLASSES), nn.ReLU), (1, 8, 8), "the samples are no rows of 8 numbers"),
        (layered((64, 5, CLASSES), nn.ReLU), (8, 8), "the samples are no rows of 64 numbers"),
    ],
)
def test_samples_that_are_no_rows_are_left_to_autograd(
    model: Model, shape: tuple[int, ...], reason: str
) -> None:
    assert why_not_dense(model, examples(shape)) == reason


def test_labels_that_the_model_does_not_know_are_refused() -> None:
    data = replace(examples(), y=examples().y + 1)
    with pytest.raises(Exception, match=r"session 3, round 2, device 1\d"):
        trained(MLP, [lane(MLP, Algorithm("a"))], cohort([(60,), (60,)]), data)


def test_a_hook_that_draws_from_torch_is_refused() -> None:
    def noisy(gradient: Tensor, theta: Tensor, shared: Broadcast, client: State) -> Tensor:
        return gradient + torch.randn_like(gradient)

    at = lane(MLP, Algorithm("noisy", direction=noisy))
    with pytest.raises(Exception, match="random layers of its own"):
        trained(MLP, [at], cohort([(3,)]))


def test_rows_beyond_the_cohort_are_never_read() -> None:
    who, data = cohort([(3,), (9, 1)]), examples()
    used = np.unique(np.concatenate([rows for own in who.batches for rows in own]))
    x = torch.full_like(data.x, float("nan"))
    x[used] = data.x[used]
    ((total, _),) = trained(MLP, [lane(MLP, Algorithm("a"))], who, replace(data, x=x))
    assert bool(torch.isfinite(total.delta).all())
