"""What a node of a Ray cluster does with a cell of a sweep.

The function is sent to nodes itself, and not by its name: it has to tell of nodes where ebbflow
cannot be imported, too. So it imports what it needs, and this module imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def compute_on_node(
    reference: tuple[str, Mapping[str, Any]], name: str, cores: int, paths: Sequence[str]
) -> tuple[str, str, int | None, str]:
    """Compute a cell in a process that Ray has started.

    Return the node's number and name, how the attempt ended, and why the node leaves the cell to
    others, if it does; where no attempt was made, it can compute none.
    """
    import socket  # noqa: PLC0415 - as all imports here
    import sys  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import ray  # noqa: PLC0415

    for path in paths:  # the same code as that of the process that has submitted it, if it is there
        if path not in sys.path and Path(path).exists():
            sys.path.append(path)
    ending: int | None = None
    try:
        from ebbflow.sweeps.on_ray import compute_task  # noqa: PLC0415
    except Exception as error:
        why = f"ebbflow cannot be imported: {error}"
    else:
        ending, why = compute_task(reference, name, cores)
    return ray.get_runtime_context().get_node_id(), socket.gethostname(), ending, why
