"""Two runs that tests make copies of."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbflow import experiment
from ebbflow.runs.checkpoint import checkpoint_paths
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.run_folders import SMALL


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    experiment.run(with_keys(SMALL, {}), folder)
    return folder


@pytest.fixture(scope="session")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was stopped in its fourth session, with two checkpoints."""
    folder = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(Stopped):
        experiment.run(with_keys(SMALL, {}), folder, callbacks=[StopAfter(11)])
    assert len(checkpoint_paths(folder)) == 2
    return folder
