"""The mean, weighted by the devices' numbers of samples: what every algorithm uses by itself."""

from ebbflow.core.aggregation import Aggregation


def mean() -> Aggregation:
    """Return the mean, for which sums are enough."""
    return Aggregation("mean")
