"""Run folders: what is written while a run goes on, and how it is read back."""
