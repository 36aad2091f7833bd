"""Runs an experiment: a configuration in, records out, with or without a run folder."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ebbflow.aggregation import AGGREGATIONS
from ebbflow.algorithms import ALGORITHMS
from ebbflow.config.resolved import NATURAL, Config
from ebbflow.config.schema import EngineKind
from ebbflow.core.errors import EbbflowError, TrainingError, unknown
from ebbflow.core.local import Engine
from ebbflow.core.malloc import kept_memory
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.engines import engine_for
from ebbflow.engines.failures import memory_lack_named
from ebbflow.models import MODELS
from ebbflow.recording import Recorder, Saved, StopOnceTold, restore, rewind, without_ended
from ebbflow.runs import records
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import check_data, note_environment, other_instructions
from ebbflow.runs.extending import check_intact, with_seeds, write_seeds
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.records import Round, RunRecords
from ebbflow.runs.summary import setting_of, summary_rows, without_broken_sessions
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import (
    Callback,
    MethodEnded,
    ResumePoint,
    RoundFinished,
    RunStarted,
    SessionFinished,
    SessionStarted,
    announced,
)
from ebbflow.simulation.ceilings import refuse_too_large
from ebbflow.simulation.estimate import Estimate, estimate
from ebbflow.simulation.events import ENDED, TESTED
from ebbflow.simulation.faults import examples_with_wrong_labels
from ebbflow.simulation.methods import check_parameters, methods_of
from ebbflow.simulation.roster import KINDS, build_sessions
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.timing import measured_seconds
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World
from ebbflow.starts import STARTS


def run(
    config: Config,
    out: Path | None = None,
    *,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
    claimed: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> RunRecords:
    """Run an experiment and return its records.

    Args:
        config: A resolved configuration.
        out: The run folder to write; without one, everything stays in memory.
        dataset: A loaded data set, instead of the one that the configuration names.
        callbacks: Told of all that happens, such as a progress display.
        claimed: Whether `claim_folder` has already created ``out`` for this run.
        stop: Asked after every round of a run in a folder; if true, the run is saved, and ends with
            `ebbflow.core.errors.RunStoppedError`.
    """
    kind = config.engine.kind
    if out is None:
        data = _planned(config, dataset, None)
        with _workers(config, data, kind):
            return _run_in_memory(config, data, callbacks)
    if not claimed:
        records.claim_folder(out, config.model_dump())
    folder = RunFolder.open(out)
    with contextlib.ExitStack() as stack:
        try:
            data = _planned(config, dataset, out)
            stack.enter_context(_workers(config, data, kind))
        except BaseException:  # including an interrupt: nothing has been computed yet
            folder.discard()
            raise
        return _run_in_folder(config, folder, data, callbacks, stop, kind)


def resume(
    path: Path,
    *,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = lambda: False,
    engine: EngineKind | None = None,
) -> RunRecords:
    """Resume a run from its last checkpoint; a finished run is only read.

    Of a finished run, callbacks hear that it starts and that it is finished. ``engine`` computes
    what is left with another engine than the one that the run was started with.
    """
    config = read_config(path)
    kind = _engine_to_go_on_with(config, engine)
    if _is_finished(path, config):
        check_data(path, prepared(config, dataset))
        found = records.read_records(path)
        done = [ResumePoint(last.seed, last.session) for last in found.rounds[-1:]]
        started = RunStarted(config=config, folder=path, resumed=done[0] if done else None)
        with announced(callbacks, started) as rows:
            rows.extend(found.rows)
        return found
    data = _planned(config, dataset, path)
    with _workers(config, data, kind):
        return _run_in_folder(config, RunFolder.open(path), data, callbacks, stop, kind)


def _engine_to_go_on_with(config: Config, asked: EngineKind | None) -> EngineKind:
    """Return the kind of engine, or raise an error if it would change the bits of a run."""
    kind: EngineKind = config.engine.kind
    if asked is not None and asked != kind and "sequential" in (asked, kind):
        raise EbbflowError(
            f'the run was started with engine.kind = "{kind}", and "{asked}" rounds otherwise: '
            'resume it as it is (only "vectorised" and "ray" can stand for each other)'
        )
    return asked or kind


def extend(
    path: Path,
    seeds: Sequence[int],
    *,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = lambda: False,
) -> RunRecords:
    """Add seeds to a run, finished or not, and go on from its last checkpoint.

    The outcome is that of a run with all seeds. Nothing is written before everything is checked.
    """
    folder = RunFolder.open(path)
    try:
        config = with_seeds(path, seeds)
        check_intact(path)
        data = _planned(config, dataset, path)
        if (path / records.ENVIRONMENT).exists():
            check_data(path, data)
        write_seeds(folder, config)
    except BaseException:
        folder.close()
        raise
    kind = config.engine.kind
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_workers(config, data, kind))
        except BaseException:
            folder.close()
            raise
        return _run_in_folder(config, folder, data, callbacks, stop, kind)


def dry_run(config: Config, out: Path, within: float = math.inf) -> tuple[Estimate, float]:
    """Return what a run in a folder would take, and how many seconds, without running it.

    A run that needs more bytes of memory than ``within`` is not tried: its time is not a number.
    """
    began = time.perf_counter()
    with _undisturbed():
        world = _first_world(config, None)
        methods = methods_of(world)
        planned, ready = estimate(world, methods), time.perf_counter() - began
        if sum(planned.memory.values()) > within:
            return planned, math.nan
        engine = engine_of(world)
        try:
            return planned, ready + measured_seconds(world, methods, engine, out, planned.disk)
        finally:
            engine.close()


def _is_finished(path: Path, config: Config) -> bool:
    """Whether a run has nothing left to do, so that its folder need not be written to."""
    try:
        check_complete(path)
        summary = records.read_sealed(path / records.SUMMARY)
    except EbbflowError:
        return False
    noted = (path / records.ENVIRONMENT).exists()
    return noted and summary.get("config") == config.model_dump(mode="json")


class _InMemory(Callback):
    """Keeps all rounds and events in lists."""

    def __init__(self) -> None:
        self.rounds: list[Round] = []
        self.events: list[dict[str, Any]] = []

    def session_started(self, event: SessionStarted) -> None:
        self.events += event.recorded

    def round_finished(self, event: RoundFinished) -> None:
        self.rounds += event.results
        self.events += event.recorded

    def method_ended(self, event: MethodEnded) -> None:
        self.events += event.recorded

    def session_finished(self, event: SessionFinished) -> None:
        self.events += event.recorded


def _run_in_memory(config: Config, data: Dataset, callbacks: Sequence[Callback]) -> RunRecords:
    kept = _InMemory()
    with _undisturbed(), announced(callbacks, RunStarted(config=config)) as rows:
        for seed in config.seeds:
            world = build_world(config, data, seed)
            _simulate(world, new_tracks(world, methods_of(world)), [kept, *callbacks])
        rows.extend(_rows(config, kept.rounds, kept.events))
    return RunRecords(config.model_dump(mode="json"), kept.rounds, rows, kept.events)


def _run_in_folder(
    config: Config,
    folder: RunFolder,
    data: Dataset,
    callbacks: Sequence[Callback],
    stop: Callable[[], bool],
    kind: EngineKind,
) -> RunRecords:
    try:
        with _undisturbed():
            warning = other_instructions(folder.path)
            note_environment(folder.path, data)
            saved = rewind(folder, config)
            warnings = [*(saved.damaged if saved else ()), *([warning] if warning else [])]
            folder.append(records.EVENTS, [{"event": "warning", "text": w} for w in warnings])
            started = RunStarted(config=config, folder=folder.path, resumed=_resume_point(saved))
            with announced(callbacks, started) as rows:
                rows.extend(_computed_in_folder(config, folder, data, callbacks, stop, saved, kind))
    finally:
        folder.close()
    return records.read_records(folder.path)


def _resume_point(saved: Saved | None) -> ResumePoint | None:
    if saved is None:
        return None
    checkpoint = saved.checkpoint
    return ResumePoint(checkpoint.seed, checkpoint.session, checkpoint.round or None)


def _computed_in_folder(
    config: Config,
    folder: RunFolder,
    data: Dataset,
    callbacks: Sequence[Callback],
    stop: Callable[[], bool],
    saved: Saved | None,
    kind: EngineKind,
) -> list[dict[str, Any]]:
    """Compute what is left of a run, write its summary, and return the summary's rows."""
    recorder = Recorder(folder, stop)
    followers = [recorder, *callbacks, StopOnceTold(recorder)]
    for seed in config.seeds[_seeds_done(config, saved) :]:
        world = build_world(config, data, seed)
        tracks = new_tracks(world, methods_of(world))
        after = (0, 0)
        if saved and saved.checkpoint.seed == seed:
            tracks = without_ended(folder, seed, tracks)
            lost = restore(folder, saved, world, tracks)
            folder.append(records.EVENTS, lost)
            recorder.resumed(world, tracks)
            after = (saved.checkpoint.session, saved.checkpoint.round)
        _simulate(world, tracks, followers, after, kind)
    recorder.finish()
    rounds, events = records.read_rounds(folder.path), records.read_events(folder.path)
    rows = _rows(config, rounds, events)
    summary = {"config": config.model_dump(mode="json"), "rows": rows}
    if ended := [event for event in events if event["event"] == ENDED]:
        summary["ended"] = ended
    records.write_sealed(folder.path / records.SUMMARY, summary, indent=1)
    return rows


def _seeds_done(config: Config, saved: Saved | None) -> int:
    if saved is None:
        return 0
    seed = saved.checkpoint.seed
    if seed not in config.seeds:
        raise EbbflowError(f"{saved.checkpoint.path} is of seed {seed}, which the run has not")
    return config.seeds.index(seed)


def _simulate(
    world: World,
    tracks: Sequence[Track],
    callbacks: Sequence[Callback],
    after: tuple[int, int] = (0, 0),
    kind: EngineKind | None = None,
) -> None:
    engine = engine_of(world, kind)
    try:
        simulate(world, tracks, engine, callbacks, after)
    finally:
        engine.close()


def engine_of(world: World, kind: EngineKind | None = None) -> Engine:
    """Return the engine that the configuration asks for, or one of this kind.

    The caller closes it.
    """
    choice = world.config.engine
    kind = kind or choice.kind
    if kind == "ray":
        from ebbflow.cluster.engine import ray_engine  # noqa: PLC0415 - only then is Ray needed

        return ray_engine(world)
    return engine_for(
        world.model,
        examples_with_wrong_labels(world),
        world.recipe,
        kind=kind,
        block=choice.block,
        workers=choice.workers,
        fused=choice.fused,
    )


def _workers(
    config: Config, data: Dataset, kind: EngineKind
) -> contextlib.AbstractContextManager[None]:
    """Keep a cluster's workers for all seeds of a run, if it computes on a cluster."""
    if kind != "ray":
        return contextlib.nullcontext()
    from ebbflow.cluster.engine import workers_for  # noqa: PLC0415 - only then is Ray needed

    return workers_for(config, data)


def _rows(
    config: Config, rounds: Sequence[Round], events: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the summary's rows, or raise an error if every method has ended."""
    ended = [event for event in events if event["event"] == ENDED]
    if len(ended) == len(config.seeds) * len(config.algorithm) * len(config.methods):
        raise TrainingError(ended[0]["text"])
    rounds = without_broken_sessions(rounds, ended)
    tested = [event for event in events if event["event"] == TESTED]
    return summary_rows(
        rounds,
        tested,
        windows=config.window,
        pilot=config.pilot.sessions,
        setting=setting_of(config),
    )


# --- building ------------------------------------------------------------------------------------


def prepared(config: Config, dataset: Dataset | None) -> Dataset:
    """Check every name, load the data, and build the first world before computing anything."""
    return _first_world(config, dataset).dataset


def _planned(config: Config, dataset: Dataset | None, out: Path | None) -> Dataset:
    """Do the same, and refuse a run that would need more memory or room than there is."""
    world = _first_world(config, dataset)
    planned = estimate(world, methods_of(world), in_folder=out is not None)
    refuse_too_large(planned, out)
    return world.dataset


@memory_lack_named("preparing the run")
def _first_world(config: Config, dataset: Dataset | None) -> World:
    for name in config.algorithm:
        ALGORITHMS.find(name, "algorithm")
    for name in config.lr.algorithms:
        ALGORITHMS.find(name, "lr.algorithms")
    for name in config.methods:
        STARTS.find(name, "methods")
    MODELS.find(config.model.kind, "model.kind")
    AGGREGATIONS.find(config.aggregation.rule, "aggregation.rule")
    if config.partition.kind not in KINDS:
        raise unknown(config.partition.kind, KINDS, "partition", "partition.kind")
    check_parameters(config)
    _check_device(config.device)
    if dataset is None:
        natural = config.partition.kind == NATURAL
        dataset = datasets.configured(
            config.dataset, config.data, owners_needed=natural, task=config.task
        )
    train, test = (
        replace(split, x=split.x.to(config.device), y=split.y.to(config.device))
        for split in (dataset.train, dataset.test)
    )
    dataset = replace(dataset, train=train, test=test)
    world = build_world(config, dataset, config.seeds[0])
    methods_of(world)
    for seed in config.seeds[1:]:  # the model and the methods are the same for every seed
        build_sessions(config, dataset, seed)
    return world


def _check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise EbbflowError(f'device = "{name}" is no torch device to train on: use cpu or cuda')
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EbbflowError(f'device = "{name}": torch finds no GPU here; use device = "cpu"')


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Compute on one thread in this one, too (the engine's workers are the parallelism)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with kept_memory():
            yield
    finally:
        torch.set_num_threads(before)
