"""ebbflow from Python: the same experiments as on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset as TorchDataset

from ebbflow import experiment
from ebbflow.config.merge import Layers
from ebbflow.config.schema import SHORTCUTS, as_list
from ebbflow.core.errors import unknown
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.report.progress import progress_display
from ebbflow.runs.configuration import read_config
from ebbflow.runs.records import Records

Data = str | Path | Dataset | tuple[TorchDataset[Any], TorchDataset[Any]]
"""A data set's name, the path of an .npz file, a loaded data set, or torch's (train, test)."""


def compare(
    dataset: Data | None = None,
    *,
    config: Path | str | None = None,
    preset: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    progress: bool = False,
    **shortcuts: Any,
) -> Records:
    """Compare ways to start a session and return the records.

    Args:
        dataset: The data; by default those of ``config`` or a preset, or else the digits.
        config: A TOML file.
        preset: Names of presets; later ones win.
        settings: Any dotted configuration keys, as in ``{"parameters.warm_start.scale": 5}``.
        out: The run folder to write; without one, everything stays in memory.
        progress: Whether to show progress.
        **shortcuts: The command line's shortcuts: algorithm, partition, overlap, alpha, devices,
            sessions, pilot, rounds, seeds, methods, window.
    """
    layers = Layers()
    if config is not None:
        layers.add_file(Path(config))
    for name in as_list(preset) if isinstance(preset, str) else preset:
        layers.add_preset(name)
    loaded = _loaded(dataset)
    if loaded is not None:
        shortcuts["dataset"] = loaded.name
    elif dataset is not None:
        shortcuts["dataset"] = str(dataset)
    for name, value in shortcuts.items():
        if name not in SHORTCUTS:
            raise unknown(name, SHORTCUTS, "argument", "ebbflow.compare")
        layers.add_key(SHORTCUTS[name], value, f"argument {name}")
    for key, value in (settings or {}).items():
        layers.add_key(key, value, "argument settings")
    resolved = layers.config()
    for note in layers.notes:
        warnings.warn(note, FutureWarning, stacklevel=2)
    with closing(progress_display(resolved)) as display:
        callbacks = [display] if progress else []
        folder = None if out is None else Path(out)
        return experiment.run(resolved, folder, dataset=loaded, callbacks=callbacks)


def run(dataset: Data | None = None, *, method: str = "warm_start", **arguments: Any) -> Records:
    """Run one method; everything else is as in `compare`."""
    return compare(dataset, methods=[method], **arguments)


def resume(folder: Path | str, *, dataset: Data | None = None, progress: bool = False) -> Records:
    """Resume a run from its last checkpoint and return all of its records.

    ``dataset`` is only needed if the run was started with data from Python.
    """
    loaded = _loaded(dataset)
    with closing(progress_display(read_config(Path(folder)))) as display:
        callbacks = [display] if progress else []
        return experiment.resume(Path(folder), dataset=loaded, callbacks=callbacks)


def _loaded(dataset: Data | None) -> Dataset | None:
    if dataset is None or isinstance(dataset, str | Path):
        return None
    if isinstance(dataset, Dataset):
        return dataset
    return datasets.from_torch(*dataset)
