"""Benchmarks: how long the work takes, beside what else does the same work."""
