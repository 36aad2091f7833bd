"""A plain Flower app on MNIST, and the same app with sessions."""
