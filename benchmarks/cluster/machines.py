"""Ray clusters of several nodes on this machine, and the end of a node by SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from ebbflow.cluster.connection import careless, imported

AT_WORK = "ray::WorkerHost.run"
"""What a worker's process is called while it is at a task."""
STORE = 256 * 2**20
"""Bytes of each node's object store."""


class Nodes:
    """A cluster on 127.0.0.1: a head, and further nodes that can be killed."""

    def __init__(self, count: int, cores: int = 1, store: int = STORE) -> None:
        imported(on_loopback=True)
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - Ray reports nothing from now on

        self._usual: dict[str, Any] = {
            "num_cpus": cores,
            "object_store_memory": store,
            "node_ip_address": "127.0.0.1",
        }
        head = {**self._usual, "include_dashboard": False}
        with careless():
            self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
            self.others = [self._cluster.add_node(**self._usual) for _ in range(count - 1)]
        self.everything: set[psutil.Process] = set()
        """All processes that nodes have had, also those that were killed."""
        self.processes()

    @property
    def address(self) -> str:
        """The address to connect to."""
        address: str = self._cluster.address
        return address

    def add(self, variables: Mapping[str, str] | None = None) -> None:
        """Let one more node join; ``variables`` are those of its environment that differ."""
        with careless():
            self.others.append(self._cluster.add_node(**self._usual, env_vars=variables))
        self.processes()

    def kill(self) -> None:
        """End the latest node and all of its processes, by SIGKILL."""
        self.processes()
        node = self.others.pop()
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in [*raylet.children(recursive=True), raylet]:
            _kill(process)
        self._cluster.remove_node(node, allow_graceful=False)

    def latest_works(self) -> bool:
        """Whether the latest node is at a task: Ray's processes say so in their names."""
        raylet = self.others[-1].all_processes["raylet"][0].process.pid
        with suppress(psutil.NoSuchProcess):
            return any(_title(child) == AT_WORK for child in psutil.Process(raylet).children())
        return False

    def of_latest(self) -> list[psutil.Process]:
        """Return the processes in which the latest node computes, and their parent."""
        return _family(self.others[-1].all_processes["raylet"][0].process.pid)

    def processes(self) -> list[psutil.Process]:
        """Return all processes of all nodes that live, which are remembered in `everything`."""
        found = []
        for node in [self._cluster.head_node, *self.others]:
            for infos in node.all_processes.values():
                for info in infos:
                    found += _family(info.process.pid)
        self.everything.update(found)
        return found

    def close(self) -> None:
        """End everything."""
        self.processes()
        with careless():
            self._cluster.shutdown()


def _title(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return "".join(process.cmdline()).strip()
    return ""


def _kill(process: psutil.Process) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def nodes(count: int, cores: int = 1, store: int = STORE) -> Iterator[Nodes]:
    """Start a cluster until the block ends."""
    started = Nodes(count, cores, store)
    try:
        yield started
    finally:
        started.close()


def left_over(processes: Collection[psutil.Process], seconds: float = 20.0) -> list[int]:
    """Return which of these processes still live after some time."""
    _, alive = psutil.wait_procs(list(processes), timeout=seconds)
    return [process.pid for process in alive if process.status() != psutil.STATUS_ZOMBIE]
