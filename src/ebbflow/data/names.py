"""Names of data sets."""

ALIASES = {"fashion-mnist": "fmnist", "ag_news": "agnews"}
"""Alternative names of data sets."""
