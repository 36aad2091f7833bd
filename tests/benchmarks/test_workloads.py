"""The works: drawn by name, and the same for those who read them as arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import workloads
from benchmarks.peers.protocol import read_workload
from benchmarks.workloads import Workload

SMALL: dict[str, Callable[[], Workload]] = {
    "W1": lambda: workloads.softmax_workload(3, 50, 16),
    "W2": lambda: workloads.cnn_workload(2, 8, 4, 8),
    "W3": lambda: workloads.resnet_workload(4),
    "W4": lambda: workloads.text_workload(3, 20, 8, 50, 4, 6),
    "W5": lambda: workloads.mlp_workload(3, 20, 8, 5),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_work_is_the_same_every_time(name: str) -> None:
    one, other = SMALL[name](), SMALL[name]()
    assert one.name == name
    assert torch.equal(one.examples.x, other.examples.x)
    assert torch.equal(one.initial.theta, other.initial.theta)
    for a, b in zip(one.cohorts, other.cohorts, strict=True):
        for steps, again in zip(a.batches, b.batches, strict=True):
            for rows, same in zip(steps, again, strict=True):
                np.testing.assert_array_equal(rows, same)


def test_the_reported_sizes_are_those_of_the_issue() -> None:
    workload = workloads.softmax_workload()
    assert [len(rows) for rows in workload.cohorts[0].batches[0]] == [128, 128, 128, 128, 88]
    assert workload.device_steps == 500
    assert workload.model.layout.total == 7_850
    assert set(workloads.WORKLOADS) == set(SMALL)


def test_rounds_take_their_cohorts_in_turn_and_differ() -> None:
    workload = workloads.softmax_workload(2, 20, 8)
    assert workload.cohort(0) is workload.cohort(workloads.ROUNDS)
    first, second = workload.cohort(0).batches[0][0], workload.cohort(1).batches[0][0]
    assert not np.array_equal(first, second)


def test_words_are_frequent_and_rare_and_never_padding() -> None:
    tokens = workloads.text_workload(4, 50, 16, 200, 4, 20).examples.x
    counts = torch.bincount(tokens.flatten(), minlength=200)
    assert counts[0] == 0
    assert counts.max() > 10 * counts[1:].float().median()


def test_an_exported_work_is_read_back(tmp_path: Path) -> None:
    workload = SMALL["W1"]()
    workloads.export(workload, tmp_path)
    read = read_workload(tmp_path)
    np.testing.assert_array_equal(read.x, workload.examples.x.numpy())
    np.testing.assert_array_equal(read.y, workload.examples.y.numpy())
    np.testing.assert_array_equal(read.theta, workload.initial.theta.numpy())
    assert read.facts["classes"] == 10
    assert {name: value.shape for name, value in read.tensors().items()} == {
        "weight": (10, 784),
        "bias": (10,),
    }
    for turn in range(4):
        for device, steps in enumerate(workload.cohort(turn).batches):
            for ours, theirs in zip(steps, read.batches(turn, device), strict=True):
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", SMALL)
def test_an_exported_work_is_imported_as_it_was(name: str, tmp_path: Path) -> None:
    workload = SMALL[name]()
    workloads.export(workload, tmp_path)
    again = workloads.imported(read_workload(tmp_path))
    assert (again.name, again.title, again.lr) == (name, workload.title, workload.lr)
    assert (again.batch, again.recipe) == (workload.batch, workload.recipe)
    assert again.model.layout == workload.model.layout
    assert torch.equal(again.examples.x, workload.examples.x)
    assert torch.equal(again.examples.y, workload.examples.y)
    for mine, theirs in zip(workload.initial, again.initial, strict=True):
        assert torch.equal(mine, theirs)
    for cohort, other in zip(workload.cohorts, again.cohorts, strict=True):
        assert (cohort.round, cohort.devices, cohort.samples) == (
            other.round,
            other.devices,
            other.samples,
        )
        assert cohort.names == other.names
        np.testing.assert_equal(list(other.shards), list(cohort.shards))
        np.testing.assert_equal(list(other.batches), list(cohort.batches))
