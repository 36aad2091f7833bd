"""ebbflow from Python: the same experiments as on the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from ebbflow import experiment
from ebbflow.algorithms import ALGORITHMS, register_algorithm
from ebbflow.config.merge import Layers
from ebbflow.config.resolved import Config
from ebbflow.config.schema import SHORTCUTS, DataSettings, as_list, engine_kind
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import unknown
from ebbflow.core.judging import TaskName
from ebbflow.core.start import Start
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.data.own.python_data import from_python
from ebbflow.models.own import OWN, OwnModel, handed_over
from ebbflow.outcomes.one_run import Records
from ebbflow.plugins import load_configured, load_recorded, trust_recorded
from ebbflow.report.progress import progress_display
from ebbflow.runs.configuration import read_config
from ebbflow.runs.extending import with_seeds
from ebbflow.simulation.callbacks import Callback, checked_callbacks
from ebbflow.starts import STARTS, register_start

Data = str | Path | Dataset | object
"""A data set's name, the path of a file or folder, a loaded data set, or what `dataset` takes."""


OwnAlgorithm = Algorithm | Callable[..., Algorithm]
"""An algorithm, or a function that returns one and whose name is its name."""
OwnStart = Callable[..., Start]
"""A function that returns a start; the function's name is the method's."""


class Shortcuts(TypedDict, total=False):
    """Settings that have arguments of their own; see `ebbflow.config.schema.SHORTCUTS`."""

    label: str
    device_column: str
    test_split: float
    task: TaskName
    metrics: str | Sequence[str]
    algorithm: str | OwnAlgorithm | Sequence[str | OwnAlgorithm]
    methods: str | OwnStart | Sequence[str | OwnStart]
    partition: str
    overlap: float
    alpha: float
    devices: int
    sessions: int
    pilot: int
    rounds: int
    seeds: int | Sequence[int]
    window: int | Sequence[int]


def compare(
    dataset: Data | None = None,
    *,
    config: Path | str | None = None,
    preset: str | Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    plugins: Sequence[Path | str] = (),
    model: OwnModel | None = None,
    out: Path | str | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    **shortcuts: Unpack[Shortcuts],
) -> Records:
    """Compare ways to start a session and return the records.

    Args:
        dataset: The data; by default those of ``config`` or a preset, or else the digits.
        config: A TOML file.
        preset: Names of presets; later ones win.
        settings: Any dotted configuration keys, as in ``{"parameters.warm_start.scale": 5}``.
        plugins: Python files that register algorithms, starts and more.
        model: An ``nn.Module``, which every seed starts from as it is, a function without arguments
            that makes one, called anew for every seed, or a `Model`.
        out: The run folder to write; without one, everything stays in memory.
        progress: Whether to show progress.
        callbacks: Told of all that happens, such as `ebbflow.tracker` or a `Callback` of your own.
        **shortcuts: The command line's shortcuts: label, device_column, test_split, task, metrics,
            algorithm, methods, partition, overlap, alpha, devices, sessions, pilot, rounds, seeds,
            window. Algorithms and methods may be your own: an `Algorithm`, or a function that
            returns an `Algorithm` or a `Start` and whose arguments are its parameters.
    """
    followers = checked_callbacks(callbacks, "callbacks")
    with ExitStack() as stack:
        given: dict[str, Any] = dict(shortcuts)
        for key, lend in (("algorithm", _lent_algorithm), ("methods", _lent_start)):
            if key in given:
                named = as_list(given[key]) if _is_one(given[key]) else list(given[key])
                given[key] = [stack.enter_context(lend(each)) for each in named]
        layers = _layers(dataset, config, preset, settings, given)
        if model is not None:
            layers.add_key("model.kind", OWN, "argument model")
        load_configured(layers, plugins)
        resolved = layers.config()
        for note in layers.notes:
            warnings.warn(note, FutureWarning, stacklevel=2)
        loaded = _loaded(dataset, resolved)
        display = stack.enter_context(closing(progress_display(resolved)))
        stack.enter_context(handed_over(model, resolved.task))
        if progress:
            followers.insert(0, display)
        folder = None if out is None else Path(out)
        if folder is not None:
            trust_recorded(resolved.plugins)
        done = experiment.run(resolved, folder, dataset=loaded, callbacks=followers)
        return Records.of(done)


def _is_one(value: Any) -> bool:
    # An Algorithm is a tuple, too.
    return isinstance(value, str | Algorithm) or callable(value)


@contextmanager
def _lent_algorithm(value: str | OwnAlgorithm) -> Iterator[str]:
    """Give an algorithm of the caller's own a name for as long as a run lasts."""
    if isinstance(value, str):
        yield value
        return
    if isinstance(value, Algorithm):
        given = value
        name, factory = value.name, cast("Callable[..., Algorithm]", lambda: given)
    else:
        name, factory = value.__name__, value
    register_algorithm(name, factory)
    try:
        yield name
    finally:
        ALGORITHMS.unregister(name)


@contextmanager
def _lent_start(value: str | OwnStart) -> Iterator[str]:
    """Give a start of the caller's own a name for as long as a run lasts."""
    if isinstance(value, str):
        yield value
        return
    register_start(value.__name__, value, keeps=("pilot", "models", "starts", "signatures"))
    try:
        yield value.__name__
    finally:
        STARTS.unregister(value.__name__)


def _layers(
    dataset: Data | None,
    config: Path | str | None,
    preset: str | Sequence[str],
    settings: Mapping[str, Any] | None,
    shortcuts: dict[str, Any],
) -> Layers:
    """Return what the arguments of `compare` say, in the order in which later ones win."""
    layers = Layers()
    if config is not None:
        layers.add_file(Path(config))
    for name in as_list(preset) if isinstance(preset, str) else preset:
        layers.add_preset(name)
    if dataset is not None:
        shortcuts["dataset"] = _name_of(dataset)
    for name, value in shortcuts.items():
        if name not in SHORTCUTS:
            raise unknown(name, SHORTCUTS, "argument", "ebbflow.compare")
        layers.add_key(SHORTCUTS[name], value, f"argument {name}")
    for key, value in (settings or {}).items():
        layers.add_key(key, value, "argument settings")
    return layers


def run(dataset: Data | None = None, *, method: str = "warm_start", **arguments: Any) -> Records:
    """Run one method; everything else is as in `compare`."""
    return compare(dataset, methods=[method], **arguments)


def resume(
    folder: Path | str,
    *,
    dataset: Data | None = None,
    plugins: Sequence[Path | str] = (),
    model: OwnModel | None = None,
    engine: str | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Records:
    """Resume a run from its last checkpoint and return all of its records.

    ``dataset`` and ``model`` are only needed if the run was started with them from Python, and
    ``plugins`` if it needs some that were never run on this account, or that have changed.
    ``engine`` is another one to go on with, which gives the same bits: "vectorised" or "ray".
    ``callbacks`` are told of what is still to do, and trackers among them first read what is done.
    """
    followers = checked_callbacks(callbacks, "callbacks")
    config = read_config(Path(folder))
    kind = engine_kind(engine, "engine")
    load_recorded(config.plugins, plugins)
    loaded = _loaded(dataset, config)
    with closing(progress_display(config)) as display, handed_over(model, config.task):
        if progress:
            followers.insert(0, display)
        done = experiment.resume(Path(folder), dataset=loaded, callbacks=followers, engine=kind)
        return Records.of(done)


def extend(
    folder: Path | str,
    seeds: int | Iterable[int],
    *,
    dataset: Data | None = None,
    plugins: Sequence[Path | str] = (),
    model: OwnModel | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Records:
    """Add seeds to a run, finished or not, compute them, and return all of its records.

    The outcome is, bit by bit, that of a run with all seeds from the start. If it is interrupted,
    `resume` goes on. Everything but ``seeds`` is as in `resume`.
    """
    followers = checked_callbacks(callbacks, "callbacks")
    new = [seeds] if isinstance(seeds, int) else list(seeds)
    config = with_seeds(Path(folder), new)
    load_recorded(config.plugins, plugins)
    loaded = _loaded(dataset, config)
    with closing(progress_display(config)) as display, handed_over(model, config.task):
        if progress:
            followers.insert(0, display)
        done = experiment.extend(Path(folder), new, dataset=loaded, callbacks=followers)
        return Records.of(done)


def dataset(
    data: Data,
    *,
    test: object = None,
    column: str | None = None,
    name: str = "custom",
    task: TaskName = "classes",
    **choices: Any,
) -> Dataset:
    """Return a data set from data of your own, for `compare` and to look at (``notes``).

    Args:
        data: A path, a data frame, ``(X, y)``, ``(X, y, device)``, ``((X, y), (X_test, y_test))``,
            torch's ``(train, test)``, a ``DatasetDict`` or a ``FederatedDataset``.
        test: The test samples, if ``data`` does not hold them, in the same form.
        column: The column or key that holds the inputs, if its name does not tell.
        name: What messages and records call the data set.
        task: What is to be predicted, as the key of a configuration.
        **choices: Keys of ``[data]`` in a configuration, such as label, device and test_split.

    >>> import numpy as np
    >>> dataset((np.eye(4), ["no", "yes", "no", "yes"]), test_split=0.5).labels
    ('no', 'yes')
    """
    layers = Layers()
    for key, value in choices.items():
        if key not in DataSettings.model_fields:
            raise unknown(key, DataSettings.model_fields, "argument", "ebbflow.dataset")
        layers.add_key(f"data.{key}", list(value) if isinstance(value, tuple) else value, key)
    settings = layers.config().data
    if isinstance(data, str | Path):
        return datasets.configured(str(data), settings, task=task)
    if isinstance(data, Dataset):
        return data
    chosen = datasets.chosen(settings, task=task)
    return from_python(data, chosen, test=test, column=column, name=name)


def _name_of(data: Data) -> str:
    if isinstance(data, str | Path):
        return str(data)
    return data.name if isinstance(data, Dataset) else "custom"


def _loaded(data: Data | None, config: Config) -> Dataset | None:
    """Return data from Python; a name or a path is loaded with the experiment."""
    if data is None or isinstance(data, str | Path):
        return None
    if isinstance(data, Dataset):
        return data
    return from_python(data, datasets.chosen(config.data, task=config.task))
