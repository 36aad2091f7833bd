"""What runs came to, for people who look at it in Python: tables, verdicts, figures, pages."""
