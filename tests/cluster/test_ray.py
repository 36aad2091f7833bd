"""Real nodes of a real Ray cluster, on 127.0.0.1: the same bits, and no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from ebbflow import experiment
from ebbflow.cluster.agreement import facts
from ebbflow.config.resolved import Config
from ebbflow.config.schema import EngineKind
from ebbflow.core.errors import EbbflowError, RunStoppedError
from ebbflow.runs.records import EVENTS, METRICS
from tests.cluster.test_engine import SMALL
from tests.configs import with_keys

pytest.importorskip("ray")

from benchmarks.cluster import machines
from benchmarks.cluster.cells import cells, outcome
from benchmarks.cluster.kills import ROUNDS, compared

KEYS = {**SMALL, "model.kind": "softmax", "algorithm": ["fedavg", "scaffold"]}


@pytest.fixture(scope="module")
def two() -> Iterator[machines.Nodes]:
    with machines.nodes(2) as started:
        yield started
    assert machines.left_over(started.everything) == []


def there(at: machines.Nodes, **more: Any) -> Config:
    return with_keys(KEYS, {"engine.kind": "ray", "engine.address": at.address, **more})


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "crc")} for line in found]


def stopped_and_resumed(config: Config, folder: Path, other: EngineKind) -> None:
    """Run two rounds, stop, and go on with another engine."""
    with pytest.raises(RunStoppedError):
        experiment.run(config, folder, stop=partial(next, iter([False]), True))
    experiment.resume(folder, engine=other)


def assert_same(one: Path, other: Path) -> None:
    assert (one / METRICS).read_bytes() == (other / METRICS).read_bytes()
    costs = [
        [event for event in lines(folder, EVENTS) if event["event"] == "costs"]
        for folder in (one, other)
    ]
    assert costs[0] == costs[1]


def test_a_run_that_two_nodes_began_goes_on_here_with_the_same_bits(
    two: machines.Nodes, tmp_path: Path
) -> None:
    experiment.run(with_keys(KEYS), tmp_path / "here")
    stopped_and_resumed(there(two), tmp_path / "both", "vectorised")
    assert_same(tmp_path / "both", tmp_path / "here")


def test_the_reference_engine_is_no_substitute(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunStoppedError):
        experiment.run(with_keys(KEYS), folder, stop=lambda: True)
    with pytest.raises(EbbflowError, match=r'"sequential" rounds otherwise: resume it as it is'):
        experiment.resume(folder, engine="sequential")


# --- slow ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_began_here_goes_on_on_two_nodes_with_the_same_bits(
    two: machines.Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", two.address)
    experiment.run(with_keys(KEYS), tmp_path / "here")
    stopped_and_resumed(with_keys(KEYS), tmp_path / "both", "ray")
    assert_same(tmp_path / "both", tmp_path / "here")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_a_node_killed_in_the_middle_of_rounds_does_not_show(cell: Any) -> None:
    found = compared(cell, kills=5, rounds=ROUNDS, say=print)
    assert found["equal"]
    assert found["costs"]
    assert found["kills"] == 5
    assert found["equal after kills"]
    assert found["costs after kills"]
    assert found["processes left"] == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_that_differs_is_refused_by_name(
    two: machines.Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*known: Any, **more: Any) -> dict[str, str]:
        return {**facts(*known, **more), "torch": "0.1"}

    monkeypatch.setattr("ebbflow.cluster.engine.facts", other)
    cell = cells()[0]
    config = cell.config(**{"engine.kind": "ray", "engine.address": two.address})
    with pytest.raises(EbbflowError, match=r"node 127\.0\.0\.1 \(\w{6}\) has torch .* it is 0\.1"):
        outcome(cell, config)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_with_an_ebbflow_that_knows_nothing_of_clusters_is_refused_by_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "ebbflow").mkdir()
    (tmp_path / "ebbflow" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    cell = cells()[0]
    with machines.nodes(1) as several:
        several.add({"PYTHONPATH": str(tmp_path)})
        config = cell.config(**{"engine.kind": "ray", "engine.address": several.address})
        sentence = r"^node 127\.0\.0\.1 \(\w{6}\) cannot start .*No module named 'ebbflow\.cluster'"
        with pytest.raises(EbbflowError, match=sentence):
            outcome(cell, config)


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ebbflow", *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "RAY_ADDRESS": ""},
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_on_this_machine_alone_is_ended_by_a_signal_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    """A cluster that a run starts ends with it, and the run can be resumed without one."""
    settings = [f"--set={k}={json.dumps(v)}" for k, v in {**KEYS, "rounds": 400}.items()]
    folder = tmp_path / "run"
    run = command("compare", *settings, "--set=engine.kind=ray", "--out", str(folder), "-q")
    everything: dict[int, psutil.Process] = {}
    try:
        until = time.monotonic() + 200
        while not (folder / METRICS).exists() or not (folder / METRICS).stat().st_size:
            assert time.monotonic() < until
            assert run.poll() is None, run.communicate()
            for child in psutil.Process(run.pid).children(recursive=True):
                everything[child.pid] = child
            time.sleep(0.2)
        assert any("raylet" in " ".join(p.cmdline()) for p in everything.values() if p.is_running())
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=120)
    finally:
        run.kill()
    assert run.returncode == 130, said
    assert machines.left_over(list(everything.values())) == []
    assert "resume" in said
