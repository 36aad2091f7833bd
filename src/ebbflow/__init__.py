"""ebbflow: federated learning when devices come and go."""

__version__ = "0.1.0"
