"""Averaged embeddings, beside torch's own embedding and autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Output
from ebbflow.models import embedding
from tests.models.samples import doubled, pulled_back, random_cotangent, start, texts

VOCABULARY, WIDTH, CLASSES = 50, 6, 4
MODEL = embedding((9,), CLASSES, vocabulary=VOCABULARY, width=WIDTH)


class Averaged(nn.Module):
    """The paper's classifier of texts, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Output:
        mask = (x != 0).unsqueeze(-1)
        mean = (self.embedding(x) * mask).sum(1) / (mask.sum(1) + 1e-6)
        return Output(self.classifier(mean), mean)


def texts_with_repeats() -> Tensor:
    x = texts(7)
    x[1] = 5  # the same word all along
    x[2] = 0  # no word at all
    x[3, ::2] = 0  # padding in between
    return x


def test_forward_and_gradient_are_those_of_the_plain_module() -> None:
    x, state = texts_with_repeats(), doubled(start(MODEL))
    module = Averaged().double()
    nn.utils.vector_to_parameters(state.theta.clone(), module.parameters())
    expected = module(x)
    output, gradient, _ = pulled_back(MODEL, state, x, None)
    torch.testing.assert_close(output, expected)
    cotangent = random_cotangent(output)
    loss = (cotangent.logits * expected.logits).sum()
    loss = loss + (cotangent.features * expected.features).sum()
    by_module = torch.autograd.grad(loss, list(module.parameters()))
    torch.testing.assert_close(gradient, nn.utils.parameters_to_vector(by_module))
    assert MODEL.pullback is not None
    torch.testing.assert_close(MODEL.pullback(state.theta, x, cotangent), gradient)


@pytest.mark.parametrize("rows", [1, 5])
def test_the_pullback_is_the_transposed_jacobian_for_each_kind_of_cotangent(rows: int) -> None:
    x, state = texts(rows), doubled(start(MODEL, 2))
    assert MODEL.pullback is not None
    output, gradient, _ = pulled_back(MODEL, state, x, None)
    logits, features = random_cotangent(output)
    none = Output(torch.zeros_like(logits), torch.zeros_like(features))
    apart = [
        MODEL.pullback(state.theta, x, none._replace(logits=logits)),
        MODEL.pullback(state.theta, x, none._replace(features=features)),
    ]
    torch.testing.assert_close(apart[0] + apart[1], gradient)
    assert not apart[1][VOCABULARY * WIDTH :].any()  # features do not pass through the classifier


def test_padding_neither_counts_nor_learns() -> None:
    x, state = texts_with_repeats(), start(MODEL)
    assert not state.theta[:WIDTH].any()
    other = state.theta.clone()
    other[:WIDTH] = 7.0
    outputs = [MODEL.forward(t, state.buffers, x, None, False)[0] for t in (state.theta, other)]
    assert torch.equal(outputs[0].logits, outputs[1].logits)
    assert MODEL.pullback is not None
    gradient = MODEL.pullback(state.theta, x, random_cotangent(outputs[0]))
    assert not gradient[:WIDTH].any()


def test_a_text_without_words_gives_the_bias() -> None:
    state, x = start(MODEL), torch.zeros(2, 9, dtype=torch.int64)
    output, _ = MODEL.forward(*state, x, None, True)
    assert not output.features.any()
    assert torch.equal(output.logits, state.theta[-CLASSES:].expand(2, -1))
    assert MODEL.pullback is not None
    assert MODEL.pullback(state.theta, x, random_cotangent(output)).isfinite().all()


def test_words_start_standard_normal() -> None:
    words = start(embedding((9,), 4, vocabulary=2_000)).theta[300 : 2_000 * 300]
    assert float(words.mean()) == pytest.approx(0, abs=0.01)
    assert float(words.std()) == pytest.approx(1, rel=0.01)


def test_inputs_that_are_no_tokens_are_refused() -> None:
    with pytest.raises(EbbflowError, match=r"needs token numbers \(int64\), .* holds float32"):
        MODEL.forward(*start(MODEL), torch.zeros(2, 9), None, False)


@pytest.mark.parametrize("token", [VOCABULARY, -1])
def test_a_word_that_the_table_lacks_is_refused(token: int) -> None:
    x = texts(3)
    x[1, 1] = token
    with pytest.raises(
        EbbflowError, match=r"numbered 0 to 49: set parameters.embedding.vocabulary"
    ):
        MODEL.forward(*start(MODEL), x, None, True)


def test_a_part_of_the_words_is_the_same_model_on_their_texts() -> None:
    state, texts_of_two = doubled(start(MODEL)), [texts_with_repeats(), texts(2)]
    assert MODEL.hints.bag_of_words is not None
    assert MODEL.pullback is not None
    words, renumbered, model = MODEL.hints.bag_of_words.subset(texts_of_two)
    assert words.tolist() == sorted({0, *torch.cat(texts_of_two).flatten().tolist()})
    size = VOCABULARY * WIDTH
    rows = state.theta[:size].view(VOCABULARY, WIDTH)[words]
    theta = torch.cat([rows.view(-1), state.theta[size:]])
    assert len(theta) == model.layout.total
    for x, same in zip(texts_of_two, renumbered, strict=True):
        assert torch.equal(words[same], x)
        output, _ = MODEL.forward(*state, x, None, True)
        part, _ = model.forward(theta, state.buffers, same, None, True)
        assert torch.equal(part.logits, output.logits)
        cotangent = random_cotangent(output)
        assert model.pullback is not None
        actual, expected = (
            model.pullback(theta, same, cotangent),
            MODEL.pullback(state.theta, x, cotangent),
        )
        assert torch.equal(actual[len(words) * WIDTH :], expected[size:])
        table = torch.zeros(VOCABULARY, WIDTH, dtype=torch.float64)
        table[words] = actual[: len(words) * WIDTH].view(-1, WIDTH)
        assert torch.equal(table, expected[:size].view(VOCABULARY, WIDTH))


def test_a_part_without_texts_is_padding_alone() -> None:
    assert MODEL.hints.bag_of_words is not None
    words, renumbered, model = MODEL.hints.bag_of_words.subset([])
    assert words.tolist() == [0]
    assert renumbered == []
    assert model.layout.shapes[0] == (1, WIDTH)


@pytest.mark.parametrize("token", [VOCABULARY, -1])
def test_a_part_has_no_words_that_the_table_lacks(token: int) -> None:
    assert MODEL.hints.bag_of_words is not None
    x = texts(3)
    x[1, 1] = token
    with pytest.raises(EbbflowError, match=r"set parameters\.embedding\.vocabulary above"):
        MODEL.hints.bag_of_words.subset([x])
