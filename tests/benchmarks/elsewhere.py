"""A suite that fails, to see whose process it is."""

from __future__ import annotations

from pathlib import Path

from benchmarks.results import Suite
from benchmarks.suites import DifferentModelError
from ebbflow.core.errors import EbbflowError


def suite(repeats: int, peers: Path | None) -> Suite:
    raise EbbflowError("elsewhere")


def differing(repeats: int, peers: Path | None) -> Suite:
    raise DifferentModelError("too far", 0.5)
