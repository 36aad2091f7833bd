"""Tables, pictures, JSON and progress displays. They show what `ebbflow.analysis` computes."""
