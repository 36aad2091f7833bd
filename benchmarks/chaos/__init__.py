"""Disturbs runs in every way that can be thought of, and counts what is lost."""
