"""Seconds, joules and bytes of a round on the air: arithmetic on records, nothing is slept."""
