"""What records say: accuracy, counted work, wireless cost, the convergence bound."""
