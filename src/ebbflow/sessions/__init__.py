"""What a method remembers from session to session, for the simulator and real federations."""
