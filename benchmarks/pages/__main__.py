"""`python -m benchmarks.pages`: makes the runs behind a page and writes its tables."""

from benchmarks.pages.cli import app
from ebbflow.cli.running import run_app

if __name__ == "__main__":
    run_app(app, "python -m benchmarks.pages")
