"""Trials of real federations on this machine: python -m benchmarks.federation PART..."""
