"""Losses at mixtures of models and their derivatives: against autograd in double precision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import functional as autograd
from torch.func import hessian
from torch.nn import functional

import ebbflow
from ebbflow.core import mixtures
from ebbflow.core.mixtures import (
    Basis,
    SentModels,
    basis_bytes,
    basis_of,
    expanded,
    expansion_passes,
    received,
    sample_losses,
)
from ebbflow.core.survey import Compression
from ebbflow.core.types import Layout, Model, ModelState, Output
from ebbflow.core.vector import mix, not_negative, unflatten
from ebbflow.models import MODELS
from tests.models.samples import doubled, inputs, start, tiny

Logits = Callable[[Tensor], Tensor]
"""Logits as a function of the mixing weights."""
KINDS = ["softmax", "mlp", "cnn", "embedding"]
ALPHA = torch.tensor([0.7, 0.6, -0.3], dtype=torch.float64)
CORNERS = torch.eye(3, dtype=torch.float64)


def small(kind: str) -> Model:
    """Return a model of this kind, with few parameters where its images are large."""
    if kind == "softmax":
        return MODELS[kind]((5,), 4)
    return MODELS[kind]((5,), 4, hidden=7) if kind == "mlp" else tiny(kind)


def batch(kind: str, count: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, labels and what each sample counts."""
    draw = torch.Generator().manual_seed(8)
    if kind in ("softmax", "mlp"):
        x = torch.randn(count, 5, generator=draw, dtype=torch.float64)
    else:
        x = inputs(kind, count)
        x = x.double() if x.is_floating_point() else x
    y = torch.randint(4, (count,), generator=draw)
    return x, y, torch.rand(count, generator=draw, dtype=torch.float64) + 0.5


def states(model: Model, count: int = 3) -> list[ModelState]:
    """Return models that differ in their buffers, too; variances are positive."""
    draw = torch.Generator().manual_seed(4)
    found = [doubled(start(model, seed)) for seed in range(count)]
    return [
        state._replace(buffers=torch.rand(len(state.buffers), generator=draw).double() + 0.2)
        for state in found
    ]


def basis(kind: str) -> Basis:
    model = small(kind)
    return basis_of(model, states(model))


def sent_models(kind: str) -> SentModels:
    model = small(kind)
    return SentModels(model, states(model))


def own_logits(basis: Basis, x: Tensor, at: Tensor | None = None) -> Logits:
    """Return the model's own logits at a mixture, with the statistics of the mixture ``at``."""

    def logits(alpha: Tensor) -> Tensor:
        buffers = not_negative(alpha if at is None else at) @ basis.buffers
        return basis.model.forward(alpha @ basis.thetas, buffers, x, None, False)[0].logits

    return logits


def jacobian(function: Logits, at: Tensor) -> Tensor:
    """Return a derivative by autograd; some kernels of texts cannot be mapped by ``torch.func``."""
    found: Tensor = autograd.jacobian(function, at)  # type: ignore[no-untyped-call]  # torch's own
    return found


Expanded = tuple[Tensor, Tensor, Tensor]


def by_autograd(logits: Logits, alpha: Tensor, y: Tensor, counts: Tensor) -> Expanded:
    """Return the loss, its gradient and sum_i c_i J_i^T (diag(p_i) - p_i p_i^T) J_i."""

    def loss(alpha: Tensor) -> Tensor:
        return (functional.cross_entropy(logits(alpha), y, reduction="none") * counts).sum()

    return (
        loss(alpha),
        jacobian(loss, alpha),
        curved(logits, jacobian(logits, alpha), alpha, counts),
    )


def curved(logits: Logits, slopes: Tensor, alpha: Tensor, counts: Tensor) -> Tensor:
    total = torch.zeros(len(alpha), len(alpha), dtype=torch.float64)
    for count, j, p in zip(counts, slopes, functional.softmax(logits(alpha), -1), strict=True):
        total += count * j.T @ (torch.diag(p) - torch.outer(p, p)) @ j
    return total


def assert_expanded(found: Expanded, expected: Expanded, relative: float = 1e-8) -> None:
    """Compare two expansions, each part relative to its length."""
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float64
        assert float((ours - theirs).norm()) <= relative * float(theirs.norm())


def assert_near(found: Tensor, expected: Tensor, atol: float = 1e-9) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=atol)


# --- logits and losses ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_at_a_corner_the_logits_are_the_models_own(kind: str) -> None:
    some, (x, _, _) = basis(kind), batch(kind)
    for alpha, state in zip(CORNERS, states(some.model), strict=True):
        own = some.model.forward(state.theta, state.buffers, x, None, False)[0].logits
        assert_near(some.logits(alpha, x), own)


@pytest.mark.parametrize("kind", KINDS)
def test_between_corners_they_are_those_of_the_model_that_the_server_mixes(kind: str) -> None:
    some, (x, _, _) = basis(kind), batch(kind)
    mixed = mix(states(some.model), ALPHA.tolist())
    own = some.model.forward(mixed.theta, mixed.buffers, x, None, False)[0].logits
    assert_near(some.logits(ALPHA, x), own)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_those_of_every_sample_at_every_mixture(kind: str) -> None:
    some, (x, y, _) = basis(kind), batch(kind)
    asked = torch.stack([*CORNERS, ALPHA])
    found = sample_losses(some, asked, x, y)
    assert found.shape == (4, len(y))
    for alpha, losses in zip(asked, found, strict=True):
        logits = own_logits(some, x)(alpha)
        assert_near(losses, functional.cross_entropy(logits, y, reduction="none"))


def test_variances_of_an_extrapolated_mixture_stay_positive() -> None:
    some, (x, y, counts) = basis("cnn"), batch("cnn")
    far = torch.tensor([4.0, 1.0, -4.0], dtype=torch.float64)
    assert bool((far @ some.buffers < 0).any())
    assert bool(sample_losses(some, far[None], x, y).isfinite().all())
    assert all(bool(part.isfinite().all()) for part in expanded(some, far, x, y, counts))


# --- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [ALPHA, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)])
def test_slope_and_curvature_are_those_of_autograd(kind: str, at: Tensor) -> None:
    """Running statistics are held fixed: torch does not differentiate in them."""
    some, (x, y, counts) = basis(kind), batch(kind)
    found = expanded(some, at, x, y, counts)
    assert_expanded(found, by_autograd(own_logits(some, x, at), at, y, counts))


def test_for_softmax_regression_the_curvature_is_the_hessian() -> None:
    some, (x, y, counts) = basis("softmax"), batch("softmax")

    def loss(alpha: Tensor) -> Tensor:
        logits = own_logits(some, x)(alpha)
        return (functional.cross_entropy(logits, y, reduction="none") * counts).sum()

    _, _, curvature = expanded(some, ALPHA, x, y, counts)
    assert_near(curvature, hessian(loss)(ALPHA))


POWERS = st.floats(-1, 3).map(lambda power: 10**power)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999), st.sampled_from(["softmax", "mlp"]), POWERS)
def test_the_curvature_is_never_negative(seed: int, kind: str, scale: float) -> None:
    """In float32 too, beside its own size, where predictions are all but certain."""
    model = small(kind)
    draw = torch.Generator().manual_seed(seed)
    some = basis_of(model, [start(model, seed + k) for k in range(4)])
    some = replace(some, thetas=scale * some.thetas)
    alpha = torch.randn(4, generator=draw)
    x, y = torch.randn(9, 5, generator=draw), torch.randint(4, (9,), generator=draw)
    _, _, curvature = expanded(some, alpha, x, y, torch.ones(9))
    values = torch.linalg.eigvalsh(curvature)
    assert float(values.min()) >= -mixtures.ROUNDING * float(values.abs().max())


def difference(x: Tensor, alpha: Tensor, counts: Tensor) -> Tensor:
    """Return the curvature from the logits of all models as J^T diag(p) J - J^T p p^T J."""
    weighted = functional.softmax(x @ alpha, -1).unsqueeze(-1) * x
    mean = weighted.sum(1)
    spread = torch.einsum("b,bck,bcl->kl", counts, weighted, x)
    return (spread - torch.einsum("b,bk,bl->kl", counts, mean, mean)).double()


def test_a_curvature_that_would_be_negative_has_its_digits_all_the_same() -> None:
    """Logits of some hundreds, of which hardly a prediction is not 0 or 1 to seven digits."""
    some, negative = replace(basis("softmax"), evaluated=True), 0
    for seed in range(50):
        draw = torch.Generator().manual_seed(seed)
        x, y = 300 * torch.randn(9, 4, 3, generator=draw), torch.zeros(9, dtype=torch.long)
        alpha, counts = torch.tensor([0.1, 0.2, -0.1]), torch.rand(9, generator=draw)
        if not mixtures._negative(difference(x, alpha, counts)):
            continue
        negative += 1
        _, _, found = expanded(some, alpha, x, y, counts)
        _, _, exact = expanded(some, alpha.double(), x.double(), y, counts.double())
        # Logits of up to some hundreds round to 1e-5 of one, and so do predictions.
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-3 * float(exact.abs().max()))
    assert negative > 5


def test_a_curvature_with_all_its_digits_is_rounded_as_ever() -> None:
    """As in all results that are kept: the difference, where nothing is lost by it."""
    some = replace(basis("softmax"), evaluated=True)
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 4, 3, generator=draw), torch.zeros(9, dtype=torch.long)
    alpha, counts = torch.tensor([0.7, 0.6, -0.3]), torch.rand(9, generator=draw)
    assert torch.equal(expanded(some, alpha, x, y, counts)[2], difference(x, alpha, counts))


class Bag(nn.Module):
    """Averages word vectors with a kernel that has no forward derivative."""

    def __init__(self, bend: bool = False) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(20, 5, mode="mean")
        self.head = nn.Linear(5, 4)
        self.bend = bend

    def forward(self, x: Tensor) -> Tensor:
        words = self.words(x)
        logits: Tensor = self.head(words.tanh() if self.bend else words)
        return logits


@pytest.mark.parametrize("bend", [False, True])
def test_a_layer_without_a_forward_derivative_is_differentiated_by_differences(bend: bool) -> None:
    """They are exact for logits of second order in alpha; else wrong in the order of STEP^2."""
    model = ebbflow.from_module(lambda: Bag(bend))
    some = basis_of(model, states(model))
    draw = torch.Generator().manual_seed(2)
    x, y = torch.randint(20, (15, 6), generator=draw), torch.randint(4, (15,), generator=draw)
    counts = torch.ones(15, dtype=torch.float64)

    def by_hand(alpha: Tensor) -> Tensor:
        named = unflatten(alpha @ some.thetas, model.layout)
        words = named["words.weight"][x].mean(1)
        words = words.tanh() if bend else words
        return words @ named["head.weight"].T + named["head.bias"]

    found = expanded(some, ALPHA, x, y, counts)
    expected = by_autograd(by_hand, ALPHA, y, counts)
    assert_expanded(found, expected, relative=1e-3 if bend else 1e-8)


def test_differences_are_near_the_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Logits) -> Logits:
        raise NotImplementedError("no forward derivative")

    some, (x, y, counts) = basis("mlp"), batch("mlp")
    exact = expanded(some, ALPHA, x, y, counts)
    monkeypatch.setattr(mixtures, "jacfwd", refuse)
    found = expanded(some, ALPHA, x, y, counts)
    assert_expanded(found, exact, relative=0.05)
    assert not torch.equal(found[1], exact[1])


# --- sums over samples ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_splitting_the_samples_changes_no_sum(kind: str) -> None:
    some, samples = basis(kind), batch(kind)
    together = expanded(some, ALPHA, *samples)
    parts = [
        expanded(some, ALPHA, *(each[part] for each in samples))
        for part in (slice(3), slice(3, 4), slice(4, None))
    ]
    for total, summands in zip(together, zip(*parts, strict=True), strict=True):
        assert_near(total, torch.stack(summands).sum(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_over_few_rows_changes_no_sum(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some, (x, y, counts) = basis(kind), batch(kind)
    losses, sums = sample_losses(some, CORNERS, x, y), expanded(some, ALPHA, x, y, counts)
    monkeypatch.setattr(mixtures, "ROWS", 7)
    assert_near(sample_losses(some, CORNERS, x, y), losses)
    for ours, theirs in zip(expanded(some, ALPHA, x, y, counts), sums, strict=True):
        assert_near(ours, theirs)


def test_there_may_be_more_samples_than_one_pass_takes() -> None:
    some, (x, y, counts) = basis("softmax"), batch("softmax", 2 * mixtures.ROWS + 6)
    assert sample_losses(some, CORNERS, x, y).shape == (3, len(y))
    found = expanded(some, ALPHA, x, y, counts)
    assert_expanded(found, by_autograd(own_logits(some, x), ALPHA, y, counts))


def test_a_sample_of_no_weight_does_not_count() -> None:
    some, (x, y, counts) = basis("mlp"), batch("mlp")
    counts[5:] = 0
    for ours, theirs in zip(
        expanded(some, ALPHA, x, y, counts),
        expanded(some, ALPHA, x[:5], y[:5], counts[:5]),
        strict=True,
    ):
        assert_near(ours, theirs)


# --- cheaper questions ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_in_their_cheapest_form_samples_have_the_same_losses_and_derivatives(kind: str) -> None:
    some, (x, y, counts) = basis(kind), batch(kind, 6)
    cheaper, inputs = sent_models(kind).for_samples(x)
    asked = torch.stack([*CORNERS, ALPHA])
    assert_near(sample_losses(cheaper, asked, inputs, y), sample_losses(some, asked, x, y))
    ours = expanded(cheaper, ALPHA, inputs, y, counts)
    assert_expanded(ours, expanded(some, ALPHA, x, y, counts))


def test_a_text_model_is_restricted_to_the_words_that_occur() -> None:
    some, (x, _, _) = basis("embedding"), batch("embedding", 3)
    smaller, renumbered = sent_models("embedding").for_samples(x)
    words = len(set(x.flatten().tolist()) | {0})
    assert smaller.thetas.shape[1] == some.thetas.shape[1] - (50 - words) * 6
    assert int(renumbered.max()) == words - 1


def test_logits_that_are_linear_are_computed_once_for_all_models() -> None:
    some, (x, _, _) = basis("softmax"), batch("softmax")
    evaluated, logits = some.for_samples(x)
    assert logits.shape == (20, 4, 3)

    def never(*inputs: object) -> tuple[Output, Tensor]:
        raise AssertionError("another forward pass")

    blind = replace(evaluated, model=replace(some.model, forward=never))
    assert_near(blind.logits(ALPHA, logits), some.logits(ALPHA, x))


def test_other_models_and_samples_stay_as_they_are() -> None:
    some, (x, _, _) = basis("mlp"), batch("mlp")
    same, rows = some.for_samples(x)
    assert same is some
    assert rows is x


@pytest.mark.parametrize("compression", get_args(Compression))
def test_words_are_received_as_they_are_in_the_whole_table(compression: Compression) -> None:
    """To the bit: 8-bit units are those of whole tensors, whichever words are asked about."""
    model = tiny("embedding")
    models = [start(model, seed) for seed in range(3)]
    whole = basis_of(model, received(models, model.layout, compression))
    x, _, _ = batch("embedding", 3)
    some, renumbered = SentModels(model, models, compression).for_samples(x)
    words = sorted(set(x.flatten().tolist()) | {0})
    assert torch.equal(torch.tensor(words)[renumbered], x)
    table = 50 * 6
    rows = whole.thetas[:, :table].view(3, 50, 6)[:, words].flatten(1)
    assert torch.equal(some.thetas, torch.cat([rows, whole.thetas[:, table:]], 1))


def test_models_that_arrived_in_bfloat16_are_made_whole_where_they_are_used() -> None:
    for kind in ("embedding", "mlp"):
        model = small(kind)
        models = [start(model, seed) for seed in range(3)]
        x = inputs(kind, 4) if kind == "embedding" else torch.ones(4, 5)
        halved = [state._replace(theta=state.theta.bfloat16()) for state in models]
        ours, _ = SentModels(model, halved).for_samples(x)
        theirs, _ = SentModels(model, models, "bf16").for_samples(x)
        assert torch.equal(ours.thetas, theirs.thetas)
        assert ours.thetas.dtype == torch.float32


# --- sending a basis -----------------------------------------------------------------------------

LAYOUT = Layout(("weight", "none", "bias"), ((3, 4), (0, 2), (5,)))


def sent(seed: int, scale: float, models: int = 3) -> list[ModelState]:
    """Return models whose tensors differ in scale."""
    draw = torch.Generator().manual_seed(seed)
    scales = torch.tensor([scale] * 12 + [1 / scale] * 5)
    thetas = scales * torch.randn(models, LAYOUT.total, generator=draw)
    return [ModelState(theta, torch.randn(2, generator=draw)) for theta in thetas]


def test_whole_models_arrive_as_they_are() -> None:
    models = sent(0, 1.0)
    for ours, theirs in zip(received(models, LAYOUT, "fp32"), models, strict=True):
        assert ours is theirs


@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_bfloat16_keeps_eight_binary_digits(seed: int, scale: float) -> None:
    models = sent(seed, scale)
    for ours, theirs in zip(received(models, LAYOUT, "bf16"), models, strict=True):
        assert ours.theta.dtype == torch.float32
        assert bool(((ours.theta - theirs.theta).abs() <= 2**-8 * theirs.theta.abs()).all())
        assert torch.equal(ours.theta, ours.theta.bfloat16().float())
        assert torch.equal(ours.buffers, theirs.buffers)


@given(st.integers(0, 999), st.floats(1e-3, 1e3))
def test_eight_bits_are_wrong_by_half_a_unit_of_their_tensor_at_most(
    seed: int, scale: float
) -> None:
    models = sent(seed, scale)
    found = received(models, LAYOUT, "int8")
    first = models[0].theta.bfloat16().float()
    assert torch.equal(found[0].theta, first)
    for ours, theirs in zip(found[1:], models[1:], strict=True):
        assert torch.equal(ours.buffers, theirs.buffers)
        wrong = unflatten((ours.theta - theirs.theta).abs(), LAYOUT)
        away = unflatten((theirs.theta - first).abs(), LAYOUT)
        size = unflatten(theirs.theta.abs() + first.abs(), LAYOUT)
        for name in ("weight", "bias"):
            unit = float(away[name].amax()) / 127
            rounding = 1e-6 * float(size[name].amax())  # of the two sums in float32
            assert float(wrong[name].amax()) <= unit / 2 + rounding


def test_eight_bits_take_no_more_than_255_values() -> None:
    models = sent(1, 1.0, models=2)
    first, second = received(models, LAYOUT, "int8")
    away = unflatten(second.theta - first.theta, LAYOUT)["weight"]
    steps = 127 * away / away.abs().amax()
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("compression", get_args(Compression))
def test_equal_models_arrive_equal_and_no_model_is_changed(compression: Compression) -> None:
    one = ModelState(torch.zeros(LAYOUT.total), torch.ones(2))
    models = [one, one, *sent(2, 1.0)]
    before = [model.theta.clone() for model in models]
    found = received(models, LAYOUT, compression)
    assert torch.equal(found[0].theta, found[1].theta)
    assert all(torch.equal(m.theta, b) for m, b in zip(models, before, strict=True))


def test_a_model_without_parameters_can_be_sent() -> None:
    nothing = ModelState(torch.zeros(0), torch.ones(2))
    for compression in get_args(Compression):
        (_, found) = received([nothing, nothing], Layout((), ()), compression)
        assert found.theta.shape == (0,)


def test_bytes_of_a_basis_by_hand() -> None:
    # Parameters: whole, half, or half for the first and a quarter for the others. Buffers whole.
    assert basis_bytes(100, 7, 3, "fp32") == 3 * 400 + 3 * 28
    assert basis_bytes(100, 7, 3, "bf16") == 3 * 200 + 3 * 28
    assert basis_bytes(100, 7, 3, "int8") == 200 + 2 * 100 + 3 * 28


def test_passes_of_an_expansion() -> None:
    """One at the mixture, and two more for the derivative of each model."""
    assert expansion_passes(4) == 9
