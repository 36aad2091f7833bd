"""Runs `python -m learned_start` in the process of the test."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

import pytest

from ebbflow.cli.running import run_app
from learned_start.cli import app
from tests.test_cli import Answer

NAME = "python -m learned_start"


def learned_start(*arguments: str) -> Answer:
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
