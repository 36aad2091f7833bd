"""Sweeps on Ray: clusters on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps.wishes import kept, planned
from tests.test_cli import process

pytest.importorskip("ray")

from benchmarks.cluster import machines


@pytest.fixture(scope="module")
def one() -> Iterator[machines.Nodes]:
    """Return a cluster that is reached by 127.0.0.1 alone."""
    with machines.nodes(1) as started:
        yield started
        everything = started.processes()
    assert machines.left_over(everything) == []


@pytest.mark.slow
def test_a_cluster_on_127_0_0_1_is_joined(one: machines.Nodes, tmp_path: Path) -> None:
    sweep = kept(tmp_path / "sweep", planned({"seeds": [1, 2]}))
    answer = process("sweep", "--out", str(sweep.path), "--ray", one.address, "--json")
    assert answer.returncode == 0, answer
    assert json.loads(answer.stdout)["counts"]["done"] == 2
