"""Tables, pictures and progress: they read records, never torch."""
