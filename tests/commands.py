"""Runs the command of a publication in the process of the test."""

from __future__ import annotations

import contextlib
import io
import sys
from unittest import mock

import pytest
import typer

from ebbflow.cli.running import run_app
from tests.test_cli import Answer


def answered(app: typer.Typer, name: str, *arguments: str) -> Answer:
    """Run a command; anything but an exit with a code comes through as it is."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", [name, *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run_app(app, name)
    code = end.value.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())
