"""`python -m benchmarks`: times ebbflow on this machine."""

from benchmarks.cli import app
from ebbflow.cli.running import run_app

if __name__ == "__main__":
    run_app(app, "python -m benchmarks")
