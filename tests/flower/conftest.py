"""Tests in one process need not wait for each other."""

from __future__ import annotations

import importlib.util
import os

import pytest


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("flwr") is None:
        return
    from ebbflow.flower import crowd, opening, running  # noqa: PLC0415

    monkeypatch.setattr(opening, "WAIT", 0.001)
    monkeypatch.setattr(running, "WAIT", 0.001)
    monkeypatch.setattr(crowd, "POLL", 0.002)
    monkeypatch.setattr(crowd, "SHARE", 0.0)
    monkeypatch.setattr(crowd, "LATE_POLL", 0.002)
    monkeypatch.setattr(crowd, "LINGER", 1.0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # nobody cuts the power here
