"""Benchmarks: how long ebbflow takes, beside other simulators and plain loops."""
