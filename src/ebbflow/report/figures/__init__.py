"""Figures of runs for papers, pages and notebooks, drawn without any global state."""
