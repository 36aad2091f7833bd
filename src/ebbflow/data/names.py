"""Names of data sets."""

ALIASES = {"fashion-mnist": "fmnist", "ag_news": "agnews"}
"""Other names of data sets that are understood."""
