"""Configurations in one line, and the data that most of them are for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.core.types import Dataset
from ebbflow.data import datasets


@cache
def digits() -> Dataset:
    return datasets.load("digits")


def with_settings(*settings: str) -> Config:
    """Return the defaults with settings as the command line takes them."""
    layers = Layers()
    for setting in settings:
        layers.add_setting(setting)
    return layers.config()


def with_keys(*keys: Mapping[str, Any]) -> Config:
    """Return the defaults with values by dotted key; what comes later goes before."""
    layers = Layers()
    for some in keys:
        for key, value in some.items():
            layers.add_key(key, value, "test")
    return layers.config()
