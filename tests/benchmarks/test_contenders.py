"""Contenders of the same process do the same work."""

from __future__ import annotations

import pytest
import torch

from benchmarks import works
from benchmarks.contenders import Draws, Gather, Gemm, PlainLoop, Products, Rounds, cores, starts
from benchmarks.works import Work
from ebbflow.engines import Sequential, Vectorised

SMALL = {
    "W1": works.softmax_work(3, 50, 16),
    "W2": works.cnn_work(2, 16, 8, 16),
    "W4": works.text_work(3, 20, 8, 50, 4, 6),
}


def reference(work: Work, rounds: int) -> torch.Tensor:
    plain = Rounds(work, Sequential(work.model, work.examples, work.recipe))
    for _ in range(rounds):
        plain()
    return plain.models[0].theta


@pytest.mark.parametrize("name", SMALL)
def test_a_plain_loop_reaches_the_reference(name: str) -> None:
    loop = PlainLoop(SMALL[name], 1)
    before = torch.get_num_threads()
    for _ in range(2):
        loop()
    assert float((loop.theta - reference(SMALL[name], 2)).abs().max()) < 1e-5
    assert torch.get_num_threads() == before


def test_rounds_go_on_from_where_they_are() -> None:
    work = SMALL["W1"]
    engine = Vectorised(work.model, work.examples, work.recipe)
    rounds = Rounds(work, engine)
    for _ in range(3):
        rounds()
    engine.close()
    assert rounds.turn == 3
    assert float((rounds.models[0].theta - reference(work, 3)).abs().max()) < 1e-6


def test_starts_differ_from_each_other() -> None:
    a, b = starts(SMALL["W1"], 2)
    assert not torch.equal(a.theta, b.theta)
    assert torch.equal(a.theta, starts(SMALL["W1"], 1)[0].theta)


def test_parts_of_a_round_run_again_and_again() -> None:
    work = SMALL["W1"]
    products, gather = Products(work, cores()), Gather(work, cores())
    for part in (products, gather, Draws(work), Gemm(16)):
        part()
        part()
    products.close()
    gather.close()
