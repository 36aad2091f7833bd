"""Runs `python -m chang2025` in the process of the test."""

from __future__ import annotations

from functools import partial

from chang2025.cli import app
from tests.commands import answered

NAME = "python -m chang2025"

chang2025 = partial(answered, app, NAME)
