"""A trial that kills nodes finds what is left of any of them, also of those in between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from benchmarks.cluster import machines

PARENT = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen(sleep, stdout=subprocess.DEVNULL)
print("ready", flush=True)
time.sleep(600)
"""


class StandInCluster:
    """Nodes that are two processes each: a raylet with a child, and another one."""

    address = "127.0.0.1:6379"

    def __init__(self, initialize_head: bool, head_node_args: Any) -> None:
        self.begun: list[subprocess.Popen[str]] = []
        self.head_node = self.add_node()

    def add_node(self, **_: object) -> Any:
        found = {}
        for name, script in (("raylet", PARENT), ("log_monitor", "import time; time.sleep(600)")):
            self.begun.append(
                subprocess.Popen([sys.executable, "-c", script], text=True, stdout=subprocess.PIPE)
            )
            found[name] = [SimpleNamespace(process=self.begun[-1])]
        stdout = found["raylet"][0].process.stdout
        assert stdout.readline() == "ready\n"
        return SimpleNamespace(all_processes=found)

    def remove_node(self, node: Any, allow_graceful: bool) -> None:
        """Forget a node, as one that does not end what belongs to it."""

    def shutdown(self) -> None:
        for process in self.begun:
            process.kill()
            process.communicate()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[machines.Nodes]:
    monkeypatch.setattr("ray.cluster_utils.Cluster", StandInCluster)
    made = machines.Nodes(2)
    try:
        yield made
    finally:
        for process in [*made.processes(), *made.everything]:
            machines._kill(process)
        made.close()


def test_what_is_left_of_a_node_that_joined_and_was_killed_is_found(nodes: machines.Nodes) -> None:
    nodes.add()
    monitor = nodes.others[-1].all_processes["log_monitor"][0].process
    raylet = nodes.others[-1].all_processes["raylet"][0].process
    before = len(nodes.everything)
    assert before == 3 * 3
    nodes.kill()
    left = machines.left_over(nodes.everything, seconds=0.5)
    assert monitor.pid in left
    assert raylet.pid not in left
    nodes.add()
    assert len(nodes.everything) == before + 3
