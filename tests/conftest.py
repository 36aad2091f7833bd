"""Hypothesis without a deadline: a busy machine is no failure. One browser for all tests."""

import gc
import signal

import pytest
from hypothesis import settings

from tests.browser import browser, page_factory  # noqa: F401 - fixtures

settings.register_profile("ebbflow", deadline=None)
settings.load_profile("ebbflow")


def pytest_configure(config: pytest.Config) -> None:
    """Pass over a warning that torch gives to itself when it first differentiates forward."""
    ours = "ignore:`torch.jit.script` is:DeprecationWarning"
    config.addinivalue_line("filterwarnings", ours)
    _hear_signals()


def pytest_collection_finish() -> None:
    """Leave thousands of tests out of what is looked through for garbage again and again."""
    gc.collect()
    gc.freeze()


def _hear_signals() -> None:
    """Undo what nohup and a shell's background do: tests, and what they start, wait for these."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
