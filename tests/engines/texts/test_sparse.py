"""Sparse matrices of texts beside dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.engines.texts import sparse as module
from ebbflow.engines.texts.sparse import sparse, texts_of
from ebbflow.models import embedding


def matrix(rows: int, columns: int, seed: int, filled: float = 0.3) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    dense = torch.rand(rows, columns, generator=draw, dtype=torch.float64)
    return torch.where(torch.rand(rows, columns, generator=draw) < filled, dense, 0.0)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 9), st.integers(1, 8), st.integers(0, 99), st.sampled_from([0.0, 0.3, 1.0]))
def test_products_are_those_of_dense_matrices(
    rows: int, columns: int, seed: int, filled: float
) -> None:
    dense = matrix(rows, columns, seed, filled)
    ours, right = sparse(dense), matrix(columns, 3, seed + 1, 1.0)
    left = matrix(rows, 2, seed + 2, 1.0)
    torch.testing.assert_close(ours.product(right), dense @ right)
    torch.testing.assert_close(ours.transposed().product(left), dense.T @ left)
    other = matrix(4, columns, seed + 3)
    torch.testing.assert_close(ours.gram(sparse(other)), dense @ other.T)
    wanted = np.random.default_rng(seed).integers(max(rows, 1), size=5 if rows else 0)
    torch.testing.assert_close(ours.rows(wanted).product(right), dense[wanted] @ right)
    first, last = sorted((rows // 3, rows - rows // 4))
    torch.testing.assert_close(ours.part(first, last).product(right), dense[first:last] @ right)


def test_a_gram_matrix_is_the_same_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sparse(matrix(20, 15, 1))
    whole = texts.gram(texts)
    monkeypatch.setattr(module, "_COLUMNS", 3)
    assert torch.equal(texts.gram(texts), whole)
    some = np.array([4, 1, 19])
    assert torch.equal(texts.rows(some).gram(texts.rows(some)), whole[some][:, some])


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_texts_are_what_the_model_reads(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TEXTS", at_once)
    model = embedding((6,), 3, vocabulary=9, width=4)
    x = torch.tensor([[1, 1, 1, 2, 0, 0], [0] * 6, [0, 8, 0, 3, 0, 8], [5] * 6])
    state = model.initial(torch.Generator().manual_seed(0))
    theta = state.theta.double()
    expected = model.forward(theta, state.buffers, x, None, False)[0].features
    assert model.hints.bag_of_words is not None
    texts = texts_of(model.hints.bag_of_words, x, torch.float64)
    torch.testing.assert_close(texts.product(theta[: 9 * 4].view(9, 4)), expected)
    assert len(texts.columns) == 2 + 0 + 2 + 1  # a repeated word is one entry
    assert len(texts_of(model.hints.bag_of_words, x[:0], torch.float64)) == 0
