"""What a method remembers between sessions, for the simulator and for real federations."""
