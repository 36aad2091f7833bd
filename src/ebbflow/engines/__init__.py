"""Engines: maps over the devices of a cohort that return sums."""

from ebbflow.engines.sequential import Sequential
from ebbflow.engines.vectorised import Vectorised

__all__ = ["Sequential", "Vectorised"]
