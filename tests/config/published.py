"""The authors' learning rates and the paper's rounds, typed again from their sources."""

# First rate and floor: avg, prox and acg; moon; scaffold.
RATES = {
    "mnist": [(0.001, 0.6), (0.001, 0.6), (0.03, 0.9)],
    "fmnist": [(0.003, 0.3), (0.003, 0.3), (0.03, 0.9)],
    "svhn": [(0.005, 0.2), (0.01, 0.2), (0.1, 0.9)],
    "agnews": [(0.005, 0.2), (0.005, 0.2), (0.05, 0.2)],
    "cifar10": [(0.05, 0.5), (0.05, 0.5), (0.3, 0.9)],
    "cifar100": [(0.1, 0.5), (0.1, 0.5), (0.4, 0.9)],
    "tinyimagenet": [(0.2, 0.5), (0.2, 0.5), (0.5, 0.9)],
}
ROUNDS = {
    "mnist": 50,
    "fmnist": 50,
    "svhn": 200,
    "tinyimagenet": 200,
    "cifar10": 150,
    "cifar100": 150,
    "agnews": 100,
}
