"""What the server does, with plain Flower."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp, strategy
from flwr.serverapp.strategy import Result

from mnist_app.task import Net

app = ServerApp()


def train(grid: Grid, name: str, rounds: int) -> Result:
    """Train with one of Flower's strategies."""
    arrays = ArrayRecord(Net().state_dict())
    chosen: strategy.Strategy = getattr(strategy, name)()
    return chosen.start(grid, arrays, num_rounds=rounds)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run's configuration says."""
    train(grid, str(context.run_config["strategy"]), int(context.run_config["num-rounds"]))
