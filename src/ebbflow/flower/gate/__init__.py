"""A gate in front of a SuperLink, which lets nodes through and nobody else."""
