"""The simulator: who is here when, and Algorithm 1 for any number of methods."""
