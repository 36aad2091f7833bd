"""A finished run, made once for all tests of the live page."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow import experiment
from tests.configs import with_keys
from tests.run_folders import SMALL


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live") / "small"
    experiment.run(with_keys(SMALL, {}), folder)
    return folder
