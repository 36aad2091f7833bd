"""The configuration: what a user may write, how layers are merged, what is run."""
