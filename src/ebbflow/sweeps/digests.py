"""The digest of a configuration: equal digests mean equal results, but for rounding."""

from __future__ import annotations

import json
from typing import Any

from ebbflow.config.resolved import Config
from ebbflow.core.files import sha256
from ebbflow.simulation.methods import set_parameters

WITHOUT_EFFECT = frozenset({"checkpoint", "device", "engine", "wireless", "window"})
"""Sections and keys that change a result by rounding at most."""


def result_settings(config: Config) -> dict[str, Any]:
    """Return the settings that a result depends on, as JSON has them."""
    values = config.model_dump(mode="json", exclude=_excluded())
    return {**values, "parameters": set_parameters(config)}


def digest(config: Config) -> str:
    """Return the digest of the settings that a result depends on.

    Defaults are left out, so that a key that is added to the configuration changes no digest.
    """
    values = config.model_dump(mode="json", exclude=_excluded(), exclude_defaults=True)
    values["parameters"] = set_parameters(config)
    return sha256(json.dumps(values, sort_keys=True).encode())[:16]


def _excluded() -> dict[str, Any]:
    # The path of a file of weights is not a setting: a cell that needs weights says so, and its
    # result holds the file's digest.
    more = {"model": {"weights"}, "history": {"on_damage"}}
    return {**dict.fromkeys(WITHOUT_EFFECT, True), **more}
