"""What is the paper's own: the set-ups of its tables, and its command line."""
