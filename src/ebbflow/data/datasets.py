"""Loading data sets: known ones by name, your own from a file or a folder.

digits         1,437 + 360 images, 8x8, comes with ebbflow
mnist          60,000 + 10,000 images, 28x28, `ebbflow data get mnist`
fmnist         60,000 + 10,000 images, 28x28, `ebbflow data get fmnist`
svhn           73,257 + 26,032 images, 32x32, `ebbflow data get svhn`
cifar10        50,000 + 10,000 images, 32x32, `ebbflow data get cifar10`
cifar100       50,000 + 10,000 images, 32x32, `ebbflow data get cifar100`
tinyimagenet   100,000 + 10,000 images, 64x64, `ebbflow data get tinyimagenet`
agnews         120,000 + 7,600 texts, 64 tokens, `ebbflow data get agnews`

Digits and the two MNISTs are normalised float32; coloured images stay uint8 and are normalised on
use; texts are token numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import TaskName
from ebbflow.core.registry import Registered, Registry
from ebbflow.core.rng import generator
from ebbflow.core.types import Dataset, Examples
from ebbflow.data import idx, images, text
from ebbflow.data.local_files import LocalFiles, required
from ebbflow.data.names import ALIASES
from ebbflow.data.own import own_files
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.custom import from_npz, from_torch
from ebbflow.data.sources import SOURCES, Source, source

if TYPE_CHECKING:
    from ebbflow.config.schema import DataSettings

__all__ = ["DATASETS", "configured", "from_npz", "from_torch", "load", "register_dataset"]

DATASETS: Registry[Registered[Dataset]] = Registry("data set")
"""Your own data sets, by the names you registered them under."""


def register_dataset(name: str, loader: Callable[[], Dataset]) -> None:
    """Register your own data set under a name for ``dataset`` and --dataset."""
    DATASETS.register(Registered(name, loader))


def load(
    name: str,
    *,
    limit_train: int | None = None,
    limit_test: int | None = None,
    folder: Path | None = None,
    choices: Choices | None = None,
) -> Dataset:
    """Load a data set by its name, or from the path of a file or folder of your own.

    ``limit_train`` and ``limit_test`` keep only that many samples, from the beginning. Files are
    searched for in ``folder``, then where ``EBBFLOW_DATA`` points, then in the user's cache; if a
    folder has only a subset of a data set, the subset is loaded. ``choices`` say how data of your
    own are read.

    >>> digits = load("digits", limit_train=100)
    >>> tuple(digits.train.x.shape), len(digits.test), digits.classes
    ((100, 1, 8, 8), 360, 10)
    """
    choices = choices or Choices()
    if name in DATASETS:
        choices.refuse_unused(set(), f"the data set {name!r}, which has been loaded by a program")
        dataset = DATASETS[name]()
    elif name not in {*SOURCES, *ALIASES} and own_files.is_own(name):
        dataset = own_files.from_path(name, choices)
    else:
        wanted = source(name)
        choices.refuse_unused(set(), f"the data set {name!r}, which is known")
        dataset = _READERS[wanted.name](wanted, required(wanted, folder))
    return replace(
        dataset,
        train=_first(dataset.train, limit_train, "data.limit_train", dataset.name),
        test=_first(dataset.test, limit_test, "data.limit_test", dataset.name),
    )


def chosen(
    settings: DataSettings, owners_needed: bool = False, task: TaskName = "classes"
) -> Choices:
    """Return how a configuration wants a user's own data to be read."""
    return Choices(
        label=settings.label,
        device=settings.device,
        test=settings.test,
        test_split=settings.test_split,
        ignore=tuple(settings.ignore),
        inputs=settings.inputs,
        size=None if settings.size is None else (settings.size[0], settings.size[1]),
        vocabulary=settings.vocabulary,
        owners_needed=owners_needed,
        task=task,
    )


def configured(
    name: str,
    settings: DataSettings,
    *,
    owners_needed: bool = False,
    task: TaskName = "classes",
) -> Dataset:
    """Load a data set as a configuration says."""
    return load(
        name,
        limit_train=settings.limit_train,
        limit_test=settings.limit_test,
        choices=chosen(settings, owners_needed, task),
    )


def _first(examples: Examples, limit: int | None, setting: str, name: str) -> Examples:
    if limit is None:
        return examples
    if not 1 <= limit <= len(examples):
        raise EbbflowError(
            f"{setting} = {limit} does not fit the {len(examples)} samples of {name!r}; "
            f"choose 1 to {len(examples)}, or leave it out to keep them all."
        )
    # Copies, so that the samples that are not kept leave memory.
    owners = None if examples.device is None else examples.device[:limit].clone()
    return Examples(examples.x[:limit].clone(), examples.y[:limit].clone(), examples.pixels, owners)


def _digits(wanted: Source, files: LocalFiles) -> Dataset:
    with np.load(files.paths[0], allow_pickle=False) as archive:
        x = torch.from_numpy(archive["x"].astype(np.float32) / np.float32(16)).unsqueeze(1)
        y = torch.from_numpy(archive["y"].astype(np.int64))
    order = torch.from_numpy(generator(0, "digits-split").permutation(len(y)))
    train, test = order[: wanted.train], order[wanted.train :]
    return Dataset(
        wanted.name, Examples(x[train], y[train]), Examples(x[test], y[test]), wanted.classes
    )


_READERS: dict[str, Callable[[Source, LocalFiles], Dataset]] = {
    "digits": _digits,
    "mnist": idx.mnist,
    "fmnist": idx.mnist,
    "svhn": images.svhn,
    "cifar10": images.cifar,
    "cifar100": images.cifar,
    "tinyimagenet": images.tinyimagenet,
    "agnews": text.agnews,
}
