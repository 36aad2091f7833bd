"""`python -m benchmarks.chaos`: disturbs runs and writes docs/reliability.md."""

from benchmarks.chaos.cli import app
from ebbflow.cli.running import run_app

if __name__ == "__main__":
    run_app(app, "python -m benchmarks.chaos")
