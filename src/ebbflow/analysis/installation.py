"""Checks of the installation, the machine and the data: what `ebbflow doctor` prints."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ebbflow.config.merge import Layers
from ebbflow.core.errors import EbbflowError
from ebbflow.data.download import ENVIRONMENT, SOURCES, data_folders, find


class HealthCheck(NamedTuple):
    """The outcome of one check."""

    name: str
    ok: bool
    detail: str


def check_installation() -> Iterator[HealthCheck]:
    """Yield the checks in the order in which a user would ask for them."""
    yield HealthCheck("python", sys.version_info >= (3, 11), platform.python_version())
    for package in ("ebbflow", "torch", "numpy", "pydantic", "safetensors"):
        try:
            yield HealthCheck(package, True, version(package))
        except PackageNotFoundError:
            yield HealthCheck(package, False, f"missing: pip install {package}")
    plots = find_spec("matplotlib") is not None
    yield HealthCheck(
        "pictures", True, "matplotlib" if plots else "none: pip install 'ebbflow[plot]'"
    )
    yield HealthCheck("cores", True, f"{len(os.sched_getaffinity(0))} for this process")
    yield _training()
    yield _writable(Path.cwd(), "here")
    try:
        folders = data_folders()
    except EbbflowError as error:
        yield HealthCheck("data", False, str(error))
        return
    yield HealthCheck(
        "data", True, f"looked for in {', '.join(map(str, folders))} (${ENVIRONMENT})"
    )
    for name, source in SOURCES.items():
        where = find(source)
        yield HealthCheck(name, True, str(where) if where else f"not here: ebbflow data get {name}")


def _training() -> HealthCheck:
    """Train two rounds with each of two engines and compare their losses."""
    from ebbflow import experiment  # noqa: PLC0415 - torch only when it is needed

    def scores(engine: str) -> list[float]:
        layers = Layers()
        layers.add({"sessions": 1, "rounds": 2, "seeds": [1], "partition": {"devices": 4}}, "")
        layers.add_key("engine.kind", engine, "")
        return [r.loss for r in experiment.run(layers.config()).rounds]

    apart = max(abs(a - b) for a, b in zip(scores("vectorised"), scores("sequential"), strict=True))
    return HealthCheck("training", apart < 1e-5, f"two engines, losses {apart:.1e} apart")


def _writable(folder: Path, name: str) -> HealthCheck:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return HealthCheck(name, True, f"{folder} can be written to")
    except OSError as error:
        return HealthCheck(name, False, f"{folder} cannot be written to ({error.strerror})")
