"""Vectors, algorithms, local training, signatures: torch and numpy, nothing else of ours."""
