"""What a method remembers of past sessions."""
