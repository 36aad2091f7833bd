"""Runs `python -m chang2025` in the process of the test."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

import pytest

from chang2025.cli import app
from ebbflow.cli.running import run_app
from tests.test_cli import Answer

NAME = "python -m chang2025"


def chang2025(*arguments: str) -> Answer:
    """Run a command; anything but an exit with a code comes through as it is."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", [NAME, *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run_app(app, NAME)
    code = end.value.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())
