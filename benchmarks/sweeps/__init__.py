"""Tries sweeps: workers that are killed, nodes that are lost, and estimates against the truth."""
