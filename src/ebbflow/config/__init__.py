"""Configuration: what a user may write, how layers are merged, and what is run."""
