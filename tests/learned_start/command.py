"""Runs `python -m learned_start` in the process of the test."""

from __future__ import annotations

from functools import partial

from learned_start.cli import app
from tests.commands import answered

learned_start = partial(answered, app, "python -m learned_start")
