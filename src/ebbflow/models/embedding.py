"""Averaged word embeddings (9,157,804 parameters for four classes), with a closed-form gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import (
    BagOfWords,
    Buffers,
    EngineHints,
    Layout,
    Model,
    ModelState,
    Output,
    Theta,
    WordSubset,
)
from ebbflow.models.checks import bounded, whole

PADDING = 0
_EPSILON = 1e-6  # keeps the mean of a text without tokens finite


def embedding(
    sample_shape: tuple[int, ...], classes: int, vocabulary: int = 30_522, width: int = 300
) -> Model:
    """Return logits = W z + b, with z the mean embedding of a text's tokens; z is MOON's feature.

    z is the sum of E[token] over the tokens that are not padding (number 0), divided by their count
    + 1e-6. With c the loss's derivative in z, the gradient of E is c/(count + 1e-6) in the row of
    each token. That needs no graph, and nothing of the table's size except for the gradient.
    """
    if len(sample_shape) != 1:
        raise EbbflowError(
            'model.kind = "embedding" needs texts as token numbers [length], but a sample of this '
            f"data set has the shape {list(sample_shape)}: choose another model or data set"
        )
    vocabulary = whole("embedding", "vocabulary", vocabulary)
    width = whole("embedding", "width", width)
    layout = Layout(
        ("embedding.weight", "classifier.weight", "classifier.bias"),
        ((vocabulary, width), (classes, width), (classes,)),
    )
    bounded("embedding", sample_shape, classes, layout.total)
    table = layout.slices()["embedding.weight"]

    def initial(draw: torch.Generator) -> ModelState:
        # N(0, 1) for the words, zeros for the padding, and as torch draws a linear layer.
        theta = torch.empty(layout.total)
        theta[table].normal_(generator=draw)
        theta[:width] = 0
        bound = 1 / math.sqrt(width)
        theta[table.stop :].uniform_(-bound, bound, generator=draw)
        return ModelState(theta, torch.zeros(0))

    def shares(x: Tensor, dtype: torch.dtype) -> Tensor:
        _check_tokens(x, vocabulary)
        return _shares(x, dtype)

    def mean(theta: Theta, x: Tensor) -> Tensor:
        # Padding has weight zero: the kernel for padding_idx is several times slower.
        rows = theta[table].view(vocabulary, width)
        return embedding_bag(x, rows, mode="sum", per_sample_weights=_shares(x, theta.dtype))

    def head(tail: Tensor, features: Tensor) -> Tensor:
        return torch.addmm(tail[-classes:], features, tail[:-classes].view(classes, width).T)

    def pull(tail: Tensor, features: Tensor, cotangent: Output) -> tuple[Tensor, Tensor]:
        slope = torch.addmm(
            cotangent.features, cotangent.logits, tail[:-classes].view(classes, width)
        )
        of_weight = (cotangent.logits.T @ features).view(-1)
        return slope, torch.cat([of_weight, cotangent.logits.sum(0)])

    def subset(texts: Sequence[Tensor]) -> WordSubset:
        present = torch.zeros(vocabulary, dtype=torch.bool)
        present[PADDING] = True
        for x in texts:
            _check_tokens(x, vocabulary)
            present = present.to(x.device).index_fill_(0, x.flatten(), True)
        words, numbers = present.nonzero().view(-1), present.cumsum(0) - 1
        smaller = embedding(sample_shape, classes, len(words), width)
        return WordSubset(words, [numbers[x] for x in texts], smaller)

    def forward(
        theta: Theta, buffers: Buffers, x: Tensor, noise: Tensor | None, train: bool
    ) -> tuple[Output, Buffers]:
        _check_tokens(x, vocabulary)
        features = mean(theta, x)
        return Output(head(theta[table.stop :], features), features), buffers

    def pullback(theta: Theta, x: Tensor, cotangent: Output) -> Tensor:
        slope, of_tail = pull(theta[table.stop :], mean(theta, x), cotangent)
        share = slope / _counts(x, theta.dtype)
        gradient = torch.zeros_like(theta)
        text, place = (x != PADDING).nonzero(as_tuple=True)
        gradient[table].view(vocabulary, width).index_add_(0, x[text, place], share[text])
        gradient[table.stop :] = of_tail
        return gradient

    return Model(
        "embedding",
        layout,
        Layout((), ()),
        initial,
        forward,
        pullback=pullback,
        hints=EngineHints(
            vectorise=False,  # a copy of the table for every device of a block fills the memory
            bag_of_words=BagOfWords(vocabulary, width, shares, head, pull, subset),
        ),
    )


def _counts(x: Tensor, dtype: torch.dtype) -> Tensor:
    return (x != PADDING).sum(1, keepdim=True).to(dtype) + _EPSILON


def _shares(x: Tensor, dtype: torch.dtype) -> Tensor:
    return (x != PADDING) / _counts(x, dtype)


def _check_tokens(x: Tensor, vocabulary: int) -> None:
    if x.dtype != torch.int64:
        raise EbbflowError(
            f'model.kind = "embedding" needs token numbers (int64), but the data set holds '
            f"{str(x.dtype).removeprefix('torch.')}: choose another model or data set"
        )
    if x.is_cuda or not x.numel():  # reading the values would make a GPU wait
        return
    least, most = (int(value) for value in torch.aminmax(x))
    if least < 0 or most >= vocabulary:
        raise EbbflowError(
            f"the texts hold token numbers from {least} to {most}, but the model's words are "
            f"numbered 0 to {vocabulary - 1}: set parameters.embedding.vocabulary above the highest"
        )
