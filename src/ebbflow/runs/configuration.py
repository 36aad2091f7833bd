"""The configuration of a run folder, which has to be the one that the run was started with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebbflow.config.merge import Layers, leaves, read_written
from ebbflow.config.resolved import Config
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from ebbflow.runs import records
from ebbflow.runs.checkpoint import checkpoint_paths

FREE = {"engine", "checkpoint", "device", "window", "wireless"}
"""Settings that may change while a run is under way: how the work is done, and what is shown."""


def read_config(folder: Path) -> Config:
    """Return the resolved configuration of a run folder."""
    return run_layers(folder).config()


def run_layers(folder: Path) -> Layers:
    """Return the configuration of a run folder as layers, to put others on top."""
    records.check_run(folder)
    layers = Layers()
    layers.add_file(folder / records.CONFIG)
    if not records.sealed_config(folder):
        _compare_with_saved(folder, layers)
    return layers


def _compare_with_saved(folder: Path, layers: Layers) -> None:
    """Raise an error unless a changed file says the same as what the run has saved.

    Settings that may change are told, and none may be missing: the file may have been cut short.
    """
    for path in [*checkpoint_paths(folder), folder / records.SUMMARY]:
        try:
            written = records.read_sealed(path)["config"]
        except (EbbflowError, KeyError):
            continue
        known = set(_keys(layers.values))
        missing = [key for key in _keys(written) if key not in known]
        if missing:
            raise EbbflowError(
                f"{folder / records.CONFIG} was changed or damaged, and lacks {missing[0]}: "
                f"{records.RESTORE}"
            )
        then, now = read_written(written, str(path)), layers.config()
        check_unchanged(then, now, folder)
        for key in sorted(FREE):
            if getattr(then, key) != getattr(now, key):
                text = f"{folder / records.CONFIG}: {key} was changed since the run was last saved"
                warnings.warn(text, EbbflowWarning, stacklevel=2)
        return
    raise EbbflowError(
        f"{folder / records.CONFIG} was changed or damaged, and the run has saved nothing yet to "
        "compare it with: start a new run"
    )


def _keys(values: dict[str, Any]) -> list[str]:
    """Return the dotted keys of all values that TOML can hold: not of null, nor of a bare table."""
    return [".".join(path) for path, value in leaves(values) if value not in (None, {})]


Parameters = dict[str, dict[str, Any]]


def check_unchanged(
    then: Config,
    now: Config,
    folder: Path,
    parameters_of: Callable[[Config], Parameters] = lambda config: config.parameters,
) -> None:
    """Raise an error if settings have changed that may not; ``parameters_of`` gives parameters.

    Seeds may have been added behind those that were there: they do not change what these compute.
    """
    before, after = (_comparable(config, parameters_of(config)) for config in (then, now))
    if after["seeds"][: len(before["seeds"])] == before["seeds"]:
        after["seeds"] = before["seeds"]
    for key in {**before, **after}:  # in the order of the settings
        if key not in FREE and before.get(key) != after.get(key):
            raise EbbflowError(
                f"{folder / records.CONFIG}: {key} is {after.get(key)} and was {before.get(key)} "
                "when the run was last saved: change it back, or start a new run"
            )


def _comparable(config: Config, parameters: Parameters) -> dict[str, Any]:
    # The warm start's sketches do not change the weights by more than a mixture's rounding.
    start = {k: v for k, v in parameters.get("warm_start", {}).items() if k != "signature"}
    others = {name: values for name, values in parameters.items() if name != "warm_start"}
    compared = {**others, "warm_start": start} if start else others
    settings = config.model_dump(mode="json")
    settings["history"].pop("on_damage", None)
    return {**settings, "parameters": compared}
