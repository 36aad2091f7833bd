"""Real federations: ebbflow's sessions on nodes that Flower connects.

    from ebbflow.flower import Sessions

    sessions = Sessions(lambda: FedAvg(), history="history/", trigger=after_rounds(10))
    sessions.run(grid, arrays)  # in place of strategy.start(grid, arrays)

What is here is imported when it is first used, because Flower and torch are slow to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebbflow.core.triggers import (
        Observed,
        Trigger,
        after_rounds,
        any_of,
        at,
        every,
        membership_changes,
        newcomers,
        on_call,
    )
    from ebbflow.flower.checks import Checks
    from ebbflow.flower.client import client_app, client_app_from
    from ebbflow.flower.members import Opening
    from ebbflow.flower.sessions import Sessions
    from ebbflow.flower.strategy import Local, Probe, Training
    from ebbflow.flower.terms import AskingTerms, Starting

_PLACES = {
    "Checks": "checks",
    "Local": "strategy",
    "Opening": "members",
    "Probe": "strategy",
    "Sessions": "sessions",
    "Starting": "terms",
    "AskingTerms": "terms",
    "Training": "strategy",
    "client_app": "client",
    "client_app_from": "client",
}
_TRIGGERS = (
    *("Observed", "Trigger", "after_rounds", "any_of", "at", "every", "membership_changes"),
    *("newcomers", "on_call"),
)

__all__ = [
    "AskingTerms",
    "Checks",
    "Local",
    "Observed",
    "Opening",
    "Probe",
    "Sessions",
    "Starting",
    "Training",
    "Trigger",
    "after_rounds",
    "any_of",
    "at",
    "client_app",
    "client_app_from",
    "every",
    "membership_changes",
    "newcomers",
    "on_call",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _TRIGGERS:
        return getattr(import_module("ebbflow.core.triggers"), name)
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"ebbflow.flower.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise ImportError(
            f'ebbflow.flower.{name} needs Flower: pip install "ebbflow[flower]"'
        ) from error
    return getattr(module, name)
