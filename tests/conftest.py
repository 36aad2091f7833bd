"""Hypothesis without a deadline: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("ebbflow", deadline=None)
settings.load_profile("ebbflow")
