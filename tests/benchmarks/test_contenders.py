"""Contenders of the same process do the same workload."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import contenders, workloads
from benchmarks.alone import Gemm, PlainLoop, ProductsOnly
from benchmarks.contenders import DrawsOnly, EngineRounds, GatherOnly, starts
from benchmarks.peers.protocol import ExportedWorkload, cores, read_workload
from benchmarks.workloads import Workload
from ebbflow.engines import Sequential, Vectorised

SMALL = {
    "W1": workloads.softmax_workload(3, 50, 16),
    "W2": workloads.cnn_workload(2, 16, 8, 16),
    "W4": workloads.text_workload(3, 20, 8, 50, 4, 6),
    "W5": workloads.mlp_workload(3, 50, 16, 20),
}


def exported(workload: Workload, folder: Path) -> ExportedWorkload:
    workloads.export(workload, folder)
    return read_workload(folder)


def reference(workload: Workload, rounds: int) -> torch.Tensor:
    plain = EngineRounds(workload, Sequential(workload.model, workload.examples, workload.recipe))
    for _ in range(rounds):
        plain()
    return plain.models[0].theta


@pytest.mark.parametrize("name", SMALL)
def test_a_plain_loop_reaches_the_reference(name: str, tmp_path: Path) -> None:
    loop = PlainLoop(exported(SMALL[name], tmp_path))
    for _ in range(2):
        loop()
    assert np.abs(loop.theta() - reference(SMALL[name], 2).numpy()).max() < 1e-5


def test_rounds_go_on_from_where_they_are() -> None:
    workload = SMALL["W1"]
    engine = Vectorised(workload.model, workload.examples, workload.recipe)
    rounds = EngineRounds(workload, engine)
    for _ in range(3):
        rounds()
    engine.close()
    assert rounds.turn == 3
    assert float((rounds.models[0].theta - reference(workload, 3)).abs().max()) < 1e-6


def test_starts_differ_from_each_other() -> None:
    a, b = starts(SMALL["W1"], 2)
    assert not torch.equal(a.theta, b.theta)
    assert torch.equal(a.theta, starts(SMALL["W1"], 1)[0].theta)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """Record what is multiplied, gathered and drawn, and do it."""
    recorded: dict[str, list[tuple[Any, ...]]] = {}

    def record(owner: object, name: str) -> None:
        function, made = getattr(owner, name), recorded.setdefault(name, [])

        def recording(*arguments: Any) -> Any:
            result = function(*arguments)
            made.append((*arguments, result))
            return result

        monkeypatch.setattr(owner, name, recording)

    record(torch, "mm")
    record(torch, "index_select")
    record(contenders, "local_batches")
    return recorded


def in_order(rows: Iterable[Any]) -> list[list[int]]:
    """Return lists of rows in an order that does not depend on which worker was first."""
    return sorted([int(row) for row in each] for each in rows)


def test_products_alone_are_two_for_every_step_of_a_round(
    calls: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    workload = SMALL["W1"]
    products = ProductsOnly(exported(workload, tmp_path), cores())
    for turn in (1, 2):
        products()
        assert len(calls["mm"]) == turn * 2 * workload.device_steps
    products.close()
    flops = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in calls["mm"])
    samples = len(workload.examples)
    assert flops == 2 * 2 * (2 * samples * 784 * 10)  # rounds, products, operations of each


def test_products_of_two_layers_are_five(
    calls: dict[str, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    """Forward and gradient of each, and the way back through the second."""
    workload = SMALL["W5"]
    products = ProductsOnly(exported(workload, tmp_path), cores())
    products()
    products.close()
    assert len(calls["mm"]) == 5 * workload.device_steps
    flops = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b, _ in calls["mm"])
    assert flops == 2 * len(workload.examples) * (2 * 784 * 20 + 3 * 20 * 10)
    assert flops == 2 * workload.multiply_adds


@pytest.mark.parametrize("name", ["LayerNorm", "GRU", "two inputs"])
def test_a_plain_loop_trains_a_users_module_like_the_reference(name: str, tmp_path: Path) -> None:
    workload = workloads.in_double(workloads.module_workload(name, 2, 8, 4))
    loop = PlainLoop(exported(workload, tmp_path))
    loop()
    assert np.abs(loop.theta() - reference(workload, 1).numpy()).max() < 1e-9


def test_gathering_alone_reads_the_rows_of_every_step(
    calls: dict[str, list[tuple[Any, ...]]],
) -> None:
    workload = SMALL["W1"]
    gather = GatherOnly(workload, cores())
    gather()
    gather()
    gather.close()
    steps = [rows for batches in workload.cohort(0).batches for rows in batches]
    gathered = [(rows, result) for _, _, rows, result in calls["index_select"]]
    assert in_order(rows for rows, _ in gathered) == in_order(steps + steps)
    assert all(torch.equal(result, workload.examples.x[rows]) for rows, result in gathered)


def test_drawing_alone_draws_every_device_again_each_round(
    calls: dict[str, list[tuple[Any, ...]]],
) -> None:
    workload = SMALL["W1"]
    draws = DrawsOnly(workload)
    draws()
    draws()
    drawn = [result for *_, result in calls["local_batches"]]
    devices = len(workload.cohort(0).devices)
    assert len(drawn) == 2 * devices
    for device, shard in enumerate(workload.cohort(0).shards):
        first, second = (np.concatenate(drawn[turn * devices + device]) for turn in (0, 1))
        assert sorted(first) == sorted(second) == sorted(shard)
        assert not np.array_equal(first, second)
        assert [len(rows) for rows in drawn[device]] == [16, 16, 16, 2]


def test_a_plain_product_is_counted_as_it_is_computed(
    calls: dict[str, list[tuple[Any, ...]]],
) -> None:
    gemm = Gemm(16)
    gemm()
    ((a, b, _),) = calls["mm"]
    assert gemm.operations(16) == 2 * a.shape[0] * a.shape[1] * b.shape[1] == 2 * 16**3
