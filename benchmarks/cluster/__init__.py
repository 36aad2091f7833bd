"""Trials of the engine of many machines, with nodes of a Ray cluster on this one."""
