"""Training steps in bfloat16: near those in float32, the same on every cut, and what is sent."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ebbflow
from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Lane, Recipe, Trained
from ebbflow.core.types import Examples, Model
from ebbflow.models import MODELS, at_precision, cnn, from_module, mlp
from ebbflow.models import precision as precision_file
from tests.engines.rounds import (
    assert_agree,
    cohort,
    lane,
    reference,
    same_bits,
    tensors,
    vectorised,
)
from tests.models.samples import draws, images, inputs, random_cotangent, start, tiny

SHAPE, CLASSES = (3, 8, 8), 5
modules = pytest.mark.parametrize("kind", ["mlp", "cnn", "resnet18"])


def bf16(kind: str) -> Model:
    return at_precision(tiny(kind), "bf16")


def gradients(model: Model, kind: str, rows: int = 16) -> tuple[Tensor, Tensor]:
    assert model.gradient is not None
    return model.gradient(*start(model), inputs(kind, rows), draws(model, rows), random_cotangent)


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def test_float32_is_the_model_itself() -> None:
    for kind in MODELS:
        assert at_precision(tiny(kind), "fp32") is tiny(kind)


@pytest.mark.parametrize("kind", ["softmax", "embedding"])
def test_a_closed_form_refuses_bfloat16_in_a_sentence(kind: str) -> None:
    message = rf'precision = "bf16": the model {kind} .* set precision = "fp32", or a model.kind'
    with pytest.raises(EbbflowError, match=message):
        at_precision(tiny(kind), "bf16")


def test_so_does_an_experiment_before_it_begins() -> None:
    with pytest.raises(EbbflowError, match=r'precision = "bf16": the model softmax'):
        ebbflow.compare("digits", settings={"precision": "bf16"})
    with pytest.raises(EbbflowError, match=r"precision = \"fp16\" .* 'fp32' or 'bf16'"):
        ebbflow.compare("digits", settings={"precision": "fp16"})


def test_a_product_is_one_of_rounded_numbers_rounded() -> None:
    model, x = from_module(lambda: nn.Linear(6, 3, bias=False)), images(5, (6,))
    low, state = at_precision(model, "bf16"), start(model)
    output, _ = low.forward(*state, x, None, True)

    def rounded(tensor: Tensor) -> Tensor:
        return tensor.bfloat16().float()

    expected = rounded(rounded(x) @ rounded(state.theta.view(3, 6)).T)
    assert output.logits.dtype == torch.float32
    torch.testing.assert_close(output.logits, expected, rtol=2**-8, atol=0)
    assert torch.equal(output.logits, rounded(output.logits))
    assert low.gradient is not None
    assert model.gradient is not None
    gradient, _ = low.gradient(*state, x, None, random_cotangent)
    cotangent = random_cotangent(output)
    slope = cotangent.logits + cotangent.features
    assert gradient.dtype == torch.float32
    assert apart(gradient.view(3, 6), slope.T @ x) < 2**-7
    assert not torch.equal(gradient, model.gradient(*state, x, None, random_cotangent)[0])


@modules
def test_the_gradient_is_near_that_in_float32(kind: str) -> None:
    """Each number keeps 8 bits, but a unit that a ReLU lets through or not counts as a whole."""
    exact, exact_buffers = gradients(tiny(kind), kind)
    found, buffers = gradients(bf16(kind), kind)
    assert found.dtype == buffers.dtype == torch.float32
    assert 1e-4 < apart(found, exact) < (0.1 if kind == "mlp" else 0.5)
    if buffers.numel():
        torch.testing.assert_close(buffers, exact_buffers, rtol=0.05, atol=0.02)


@modules
def test_what_torch_calls_autocast_is_as_far_from_float32(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processors with and without instructions for bfloat16 compute the same thing.

    Both ways are taken whatever this one has. With 4 samples ResNet's last batch norm would see 4
    numbers, which may lie so close to each other that rounding decides; 16 do not.
    """
    model = bf16(kind)
    exact, _ = gradients(tiny(kind), kind)
    monkeypatch.setattr(precision_file, "_multiplies_bfloat16", lambda: False)
    rounded, _ = gradients(model, kind)
    monkeypatch.setattr(precision_file, "_multiplies_bfloat16", lambda: True)
    torchs, _ = gradients(model, kind)
    assert not torch.equal(rounded, torchs)
    assert apart(rounded, exact) == pytest.approx(apart(torchs, exact), rel=0.25)
    assert torchs.dtype == torch.float32


@modules
def test_evaluation_stays_float32(kind: str) -> None:
    state, x = start(tiny(kind)), inputs(kind, 4)
    exact, _ = tiny(kind).forward(*state, x, None, False)
    found, _ = bf16(kind).forward(*state, x, None, False)
    assert torch.equal(found.logits, exact.logits)


def test_nothing_is_left_behind_in_the_thread() -> None:
    model, x = bf16("mlp"), inputs("mlp", 4)
    gradients(model, "mlp")
    assert not torch.is_autocast_enabled("cpu")
    product = x.flatten(1) @ x.flatten(1).T
    assert not torch.equal(product, product.bfloat16().float())


# --- a round -------------------------------------------------------------------------------------

SIZES = [(8, 8, 3), (5, 5), (8,), (8, 8, 3), (4, 2), (5, 5)]


def pictures() -> Examples:
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(400, *SHAPE, generator=draw)
    return Examples(x, torch.randint(CLASSES, (400,), generator=draw))


ROUNDING = 2**-8
"""How far bfloat16, which keeps 8 bits, moves a number at most, relative to the number."""
ROUNDED = 4
"""The numbers that mlp rounds on the way to a gradient: see `assert_within_rounding`."""


def assert_within_rounding(one: Trained, other: Trained, at: Lane) -> None:
    """Compare two engines that round to bfloat16 in different places.

    Where torch multiplies bfloat16 itself, a linear layer of one device adds its bias to the
    product and rounds the sum; mapped over devices, it rounds the product and adds the bias in
    float32. Elsewhere both engines round the same sums in float32, but perhaps added up in another
    order, and a sum in the middle between two bfloat16 numbers may go to either. So the hidden
    layer's output, the logits, their derivatives and the gradient itself may each come out as two
    numbers, both within ROUNDING of the true one and hence 2 * ROUNDING apart. Relative
    differences of factors add up: a gradient g may differ by

        ROUNDED * 2 * ROUNDING * |g| = 2**-5 |g|,

    where |g| is its largest entry, whose terms (at most 8 samples) hardly cancel. A unit so close
    to the ReLU's kink that only one engine lets it through would count as a whole, but these data
    have none.

    All that a round returns is linear in its gradients: theta moves by -lr * a * g, where g is now
    their mean, weighted by the momentum, and a the effective sum of the steps. SCAFFOLD's c divides
    the movement by lr * a again. So the share 2**-5 is one of the movement's size for theta
    and delta, and one of c's own size for c, whatever the rate. A tolerance relative to theta's
    size, as in float32, is far too wide for theta and delta, which move by a small part of that,
    and too narrow for c.
    """
    left, right = tensors(one), tensors(other)
    assert left.keys() == right.keys()
    for name in left:
        origin = at.shared.theta if name.endswith(".theta") else torch.zeros(())
        moved = (right[name] - origin).abs().max() if right[name].numel() else 0.0
        share = 0.0 if name in ("samples", "devices") else ROUNDED * 2 * ROUNDING
        torch.testing.assert_close(
            left[name], right[name], rtol=0, atol=float(share * moved), msg=name
        )


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon"])
@pytest.mark.parametrize(
    ("model", "within"), [(cnn(SHAPE, CLASSES), 0.3), (mlp(SHAPE, CLASSES, 20), 0.05)]
)
def test_a_round_is_near_one_in_float32_and_the_same_on_every_cut(
    model: Model, within: float, algorithm: str
) -> None:
    low, who, data = at_precision(model, "bf16"), cohort(SIZES), pictures()
    at = lane(model, ALGORITHMS[algorithm](), lr=0.01)
    exact = vectorised(model, [at], who, data=data)[0]
    found = vectorised(low, [at], who, data=data)[0]
    assert 1e-5 < apart(found[0].delta, exact[0].delta) < within
    assert found[0].delta.dtype == torch.float32
    for block, workers in ((1, 1), (2, 2), (3, 3)):
        assert same_bits(vectorised(low, [at], who, block, workers, data=data)[0], found)
    alone = reference(low, [at], who, data)[0]
    if model.hints.vectorise:
        assert_within_rounding(found, alone, at)
    else:  # both engines take one device after another
        assert_agree(found, alone, at)


def test_the_recipe_is_that_of_float32() -> None:
    """The momentum is kept in float32: many small steps are not lost beside a large weight."""
    model = at_precision(from_module(lambda: nn.Linear(6, 3)), "bf16")
    draw = torch.Generator().manual_seed(0)
    data = Examples(torch.randn(400, 6, generator=draw), torch.randint(3, (400,), generator=draw))
    at, who = lane(model, ALGORITHMS["fedavg"](), lr=1e-4), cohort([(8,) * 5] * 3)
    ((sent, _),) = vectorised(model, [at], who, data=data, recipe=Recipe(0.9))
    moved = at.shared.theta + sent.delta / sent.samples
    assert torch.unique(moved - at.shared.theta).numel() > 15
    assert not torch.equal(moved, moved.bfloat16().float())


def test_an_experiment_runs_in_bfloat16_and_says_so() -> None:
    small: dict[str, Any] = {"sessions": 2, "rounds": 3, "devices": 4, "seeds": [1], "window": 3}
    settings = {"model.kind": "mlp"}
    exact = ebbflow.compare("digits", settings=settings, **small)
    found = ebbflow.compare("digits", settings=settings | {"precision": "bf16"}, **small)
    again = ebbflow.compare("digits", settings=settings | {"precision": "bf16"}, **small)
    assert found.config["precision"] == "bf16"
    assert [r.loss for r in found.rounds] == [r.loss for r in again.rounds]
    assert [r.loss for r in found.rounds] != [r.loss for r in exact.rounds]
    assert [r.loss for r in found.rounds] == pytest.approx([r.loss for r in exact.rounds], rel=0.02)
