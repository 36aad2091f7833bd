"""Data sets, who holds which samples, and which devices are present when."""
