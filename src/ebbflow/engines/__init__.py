"""Engines: maps over the devices of a cohort that return sums."""

from ebbflow.engines.sample_space import SampleSpace
from ebbflow.engines.sequential import Sequential
from ebbflow.engines.vectorised import Vectorised

__all__ = ["SampleSpace", "Sequential", "Vectorised"]
