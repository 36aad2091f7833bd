"""FedAvg (McMahan et al., 2017): the data-weighted mean of the devices' models."""

from ebbflow.core.algorithm import Algorithm


def fedavg() -> Algorithm:
    """Return FedAvg, the default of every hook of `Algorithm`."""
    return Algorithm("fedavg")
