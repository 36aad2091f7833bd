"""Data sets, who holds which samples, and who is here when."""
