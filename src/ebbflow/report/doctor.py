"""Whether everything is here that ebbflow needs."""

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


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str


def examine() -> Iterator[Check]:
    """Yield what was found, in the order in which a user would ask."""
    yield Check("python", sys.version_info >= (3, 11), platform.python_version())
    for package in ("ebbflow", "torch", "numpy", "pydantic", "safetensors"):
        try:
            yield Check(package, True, version(package))
        except PackageNotFoundError:
            yield Check(package, False, f"missing: pip install {package}")
    plots = find_spec("matplotlib") is not None
    yield Check("pictures", True, "matplotlib" if plots else "none: pip install 'ebbflow[plot]'")
    yield Check("cores", True, f"{len(os.sched_getaffinity(0))} for this process")
    yield _training()
    yield _writable(Path.cwd(), "here")
    try:
        folders = data_folders()
    except EbbflowError as error:
        yield Check("data", False, str(error))
        return
    yield Check("data", True, f"looked for in {', '.join(map(str, folders))} (${ENVIRONMENT})")
    for name, source in SOURCES.items():
        where = find(source)
        yield Check(name, True, str(where) if where else f"not here: ebbflow data get {name}")


def _training() -> Check:
    """Train for two rounds and see that the engines agree."""
    from ebbflow import experiment  # noqa: PLC0415 - torch only when it is needed

    def scores(engine: str) -> list[float]:
        layers = Layers()
        layers.add({"sessions": 1, "rounds": 2, "seeds": [1], "partition": {"devices": 4}}, "")
        layers.add_key("engine.kind", engine, "")
        return [r.loss for r in experiment.run(layers.config()).rounds]

    apart = max(abs(a - b) for a, b in zip(scores("vectorised"), scores("sequential"), strict=True))
    return Check("training", apart < 1e-5, f"two engines, losses {apart:.1e} apart")


def _writable(folder: Path, name: str) -> Check:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Check(name, True, f"{folder} can be written to")
    except OSError as error:
        return Check(name, False, f"{folder} cannot be written to ({error.strerror})")
