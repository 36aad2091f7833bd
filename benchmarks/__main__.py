"""`python -m benchmarks`: times the work on this machine."""

from benchmarks.cli import app
from ebbflow.cli.running import run_app

run_app(app, "python -m benchmarks")
