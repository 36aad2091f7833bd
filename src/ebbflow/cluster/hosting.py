"""The actor around a worker. Imported by Ray's processes, and imports neither torch nor Ray itself.

The variables that decide about a processor's instructions are read when torch is imported: they are
set first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ebbflow.cluster.dispatch import FetchError
from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from ebbflow.cluster.chunks import Put, Task

FETCH_SECONDS = 300.0
"""The longest that a worker waits for something that was put into the object store."""


class WorkerHost:
    """A process that has a worker.

    Args:
        environment: Variables to set before torch is imported.
        threads: How many threads train.
    """

    def __init__(self, environment: Mapping[str, str], threads: int) -> None:
        os.environ.update(environment)
        import torch  # noqa: PLC0415 - after its variables are set

        from ebbflow.cluster.worker import LeafWorker  # noqa: PLC0415 - it imports torch
        from ebbflow.core.malloc import kept_memory, use_one_arena  # noqa: PLC0415

        use_one_arena()
        torch.set_num_threads(1)
        self._memory = kept_memory()
        self._memory.__enter__()  # for as long as the process lives
        self._worker = LeafWorker(_fetch, threads)

    def facts(self, data: Put, device: str, kernel: bool) -> dict[str, str]:
        """Return what must be the same here as on the driver."""
        return self._worker.facts(data, device=device, kernel=kernel)

    def run(self, task: Task) -> Any:
        """Do a task."""
        return self._worker.run(task)

    def process(self) -> int:
        """Return the process's number."""
        return os.getpid()


def _fetch(put: Put) -> Any:
    import ray  # noqa: PLC0415 - it is there: this is one of its processes

    try:
        return ray.get(put.reference, timeout=FETCH_SECONDS)
    except ray.exceptions.RayError as error:
        if getattr(error, "traceback_str", None):  # it has arrived, and unpickling it failed
            util: Any = ray.util  # which has no types
            raise EbbflowError(
                f"node {util.get_node_ip_address()} cannot read the {put.kind} "
                f"({last_line(error)}): install the same packages on all nodes"
            ) from None
        raise FetchError(f"the {put.kind} did not arrive: {type(error).__name__}") from None


def last_line(error: Exception) -> str:
    """Return the last line of what an error says, which is where Ray has the cause."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else type(error).__name__
