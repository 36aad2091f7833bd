"""The simulator: which devices are present when, and Algorithm 1 for any number of methods."""
