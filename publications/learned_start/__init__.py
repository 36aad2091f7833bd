"""The learned start measured: forks from one state, whole trajectories, and what disturbs it."""
