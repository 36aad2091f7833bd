"""Real federations: ebbflow's sessions on nodes that Flower connects."""
