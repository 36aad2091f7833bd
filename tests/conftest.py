"""Hypothesis without a deadline: a busy machine is no failure. One browser for all tests."""

import pytest
from hypothesis import settings

from tests.browser import browser, page_factory  # noqa: F401 - fixtures

settings.register_profile("ebbflow", deadline=None)
settings.load_profile("ebbflow")


def pytest_configure(config: pytest.Config) -> None:
    """Pass over a warning that torch gives to itself when it first differentiates forward."""
    ours = "ignore:`torch.jit.script` is:DeprecationWarning"
    config.addinivalue_line("filterwarnings", ours)
