"""Nothing leaves the machine, and nothing is left in the home folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep trackers offline; W&B's process, which serves all tests, keeps its log for itself."""
    scratch = tmp_path_factory.mktemp("services")
    values = {
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "WANDB_CACHE_DIR": str(scratch / "cache"),
        "WANDB_CONFIG_DIR": str(scratch / "config"),
        "WANDB_DATA_DIR": str(scratch / "data"),
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_MODE": "offline",
    }
    usual = pytest.MonkeyPatch()
    for name in os.environ:
        if name.startswith(("MLFLOW_", "WANDB_")):
            usual.delenv(name)
    for name, value in values.items():
        usual.setenv(name, value)
    yield
    usual.undo()
