"""`python -m chang2025`: the paper's tables and figures, reproduced."""

from chang2025.cli import app
from ebbflow.cli.running import run_app

run_app(app, "python -m chang2025")
