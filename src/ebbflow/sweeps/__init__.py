"""Sweeps: many runs from one plan, computed by as many workers as there are, each run once."""
