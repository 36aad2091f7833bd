"""ebbflow: federated learning when devices come and go.

>>> import ebbflow
>>> found = ebbflow.compare("digits", sessions=4, rounds=2, seeds=[1], devices=4)
>>> sorted({row["method"] for row in found.rows})
['average', 'previous', 'warm_start']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbflow.api import compare as compare
    from ebbflow.api import resume as resume
    from ebbflow.api import run as run
    from ebbflow.core.errors import EbbflowError as EbbflowError
    from ebbflow.runs.records import Records as Records

__version__ = "0.1.0"
__all__ = ["EbbflowError", "Records", "compare", "resume", "run"]

_HOMES = {
    "EbbflowError": "ebbflow.core.errors",
    "Records": "ebbflow.runs.records",
    "compare": "ebbflow.api",
    "resume": "ebbflow.api",
    "run": "ebbflow.api",
}


def __getattr__(name: str) -> Any:
    # Lazily, so that `ebbflow --help` need not wait for torch.
    if name not in _HOMES:
        raise AttributeError(f"module 'ebbflow' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
