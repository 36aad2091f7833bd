"""When a session ends and the next one begins: the triggers of simulated and real federations.

They are made in `ebbflow.core.triggers`, where the simulator's schedules can use them, too.
"""

from __future__ import annotations

from ebbflow.core.triggers import (
    Observed,
    OnCall,
    Trigger,
    after_rounds,
    any_of,
    at,
    describe,
    every,
    membership_changes,
    newcomers,
    on_call,
)

__all__ = [
    "Observed",
    "OnCall",
    "Trigger",
    "after_rounds",
    "any_of",
    "at",
    "describe",
    "every",
    "membership_changes",
    "newcomers",
    "on_call",
]
