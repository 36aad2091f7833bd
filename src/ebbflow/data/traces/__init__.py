"""Traces of who is there when: the forms they come in, what is odd about them, and sessions."""
