"""`python -m learned_start`: what the learned start is worth, measured."""

from ebbflow.cli.running import run_app
from learned_start.cli import app

run_app(app, "python -m learned_start")
