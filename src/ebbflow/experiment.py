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
from ebbflow.core.client_states import StateFile
from ebbflow.core.errors import EbbflowError, TrainingError, unknown
from ebbflow.core.local import Engine
from ebbflow.core.malloc import kept_memory
from ebbflow.core.rng import torch_generator
from ebbflow.core.signature import DISTANCES
from ebbflow.core.types import Dataset, Model, ModelState, PastSession
from ebbflow.data import datasets
from ebbflow.data.checks import data_warnings, refuse_texts
from ebbflow.engines import engine_for
from ebbflow.engines.failures import memory_lack_named
from ebbflow.models import MODELS, OF_ONE_INPUT, at_precision, lacking_warnings, load_weights
from ebbflow.recording import Recorder, Saved, StopOnceTold, restore, rewind, without_ended
from ebbflow.runs import records, retention
from ebbflow.runs.checkpoint import check_complete
from ebbflow.runs.configuration import read_config
from ebbflow.runs.environment import check_data, note_environment, other_instructions
from ebbflow.runs.extending import check_intact, with_seeds, write_seeds
from ebbflow.runs.folder import RunFolder
from ebbflow.runs.records import Round, RunRecords
from ebbflow.runs.summary import setting_of, summary_rows, without_broken_sessions
from ebbflow.sessions.memory import SessionRules
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
from ebbflow.simulation.roster import KINDS, build_sessions, plan_sessions
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.task_choice import task_of
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
    if out is None:
        return _run_in_memory(config, _planned(config, dataset, None), callbacks)
    if not claimed:
        records.claim_folder(out, config.model_dump())
    folder = RunFolder.open(out)
    try:
        data = _planned(config, dataset, out)
    except BaseException:  # including an interrupt: nothing has been computed yet
        folder.discard()
        raise
    return _run_in_folder(config, folder, data, callbacks, stop)


def resume(
    path: Path,
    *,
    dataset: Dataset | None = None,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[], bool] = lambda: False,
) -> RunRecords:
    """Resume a run from its last checkpoint; a finished run is only read.

    Of a finished run, callbacks hear that it starts and that it is finished.
    """
    config = read_config(path)
    if _is_finished(path, config):
        check_data(path, prepared(config, dataset))
        found = records.read_records(path)
        done = [ResumePoint(last.seed, last.session) for last in found.rounds[-1:]]
        started = RunStarted(config=config, folder=path, resumed=done[0] if done else None)
        with announced(callbacks, started) as rows:
            rows.extend(found.rows)
        return found
    data = _planned(config, dataset, path)
    return _run_in_folder(config, RunFolder.open(path), data, callbacks, stop)


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
    return _run_in_folder(config, folder, data, callbacks, stop)


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
            return planned, ready + measured_seconds(world, methods, engine, out)
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
                rows.extend(_computed_in_folder(config, folder, data, callbacks, stop, saved))
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
        _simulate(world, tracks, followers, after)
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
) -> None:
    engine = engine_of(world)
    try:
        simulate(world, tracks, engine, callbacks, after)
    finally:
        engine.close()


def engine_of(world: World) -> Engine:
    """Return the engine that the configuration asks for; the caller closes it."""
    choice = world.config.engine
    return engine_for(
        world.model,
        examples_with_wrong_labels(world),
        world.recipe,
        kind=choice.kind,
        block=choice.block,
        workers=choice.workers,
        fused=choice.fused,
    )


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


def build_world(config: Config, dataset: Dataset, seed: int) -> World:
    """Return what all methods share under one seed."""
    sample_shape: Any = dataset.inputs or tuple(dataset.train.x.shape[1:])
    kind = config.model.kind
    refuse_texts(dataset, kind)
    parameters = config.parameters.get(kind, {})
    if dataset.inputs is not None and kind in OF_ONE_INPUT:
        sample_shape = (dataset.inputs.total,)  # one after another
    built = MODELS[kind].build(parameters, sample_shape, dataset.classes)
    model = replace(at_precision(built, config.precision), task=task_of(config, dataset))
    if config.privacy.clip is not None and model.buffer_layout.total:
        raise EbbflowError(
            f"privacy.clip = {config.privacy.clip:g} does not fit the model {model.name}, whose "
            "running statistics would reveal single devices: choose a model without them"
        )
    initial = model.initial(torch_generator(seed, "initial"))
    warnings = [*data_warnings(dataset, config.dataset)]
    if config.model.weights is not None:
        path = Path(config.model.weights)
        initial, lacking = load_weights(model, initial, path)
        warnings += lacking_warnings(model, path, lacking)
    initial = ModelState(initial.theta.to(config.device), initial.buffers.to(config.device))
    plan = plan_sessions(config, dataset, seed)
    states = StateFile(config.engine.state_memory * 2**20)
    rules = _rules(config, model)
    return World(
        config=config,
        seed=seed,
        dataset=dataset,
        model=model,
        initial=initial,
        sessions=plan.sessions,
        rules=rules,
        states=states,
        names=plan.names,
        warnings=(*warnings, *plan.warnings),
    )


def _rules(config: Config, model: Model) -> SessionRules:
    pilot = config.pilot
    keep = _retention(config, model)
    return SessionRules(pilot.sessions, pilot.combine, pilot.decay, pilot.carry_over, keep)


def _retention(config: Config, model: Model) -> retention.Retention:
    if config.history.keep == "last":
        return retention.keep_last(config.history.size)
    if config.history.keep == "diverse":
        if config.history.distance not in DISTANCES:
            raise unknown(config.history.distance, DISTANCES, "distance", "history.distance")
        measure = DISTANCES[config.history.distance]

        def apart(a: PastSession, b: PastSession) -> float:
            # A method that never probes has no signatures; its final models are compared instead.
            one, other = (past.signature for past in (a, b))
            if one is None or other is None:
                return measure(a.model.theta, b.model.theta, model.layout)
            return measure(one, other, model.layout)

        return retention.keep_diverse(config.history.size, apart)
    return retention.keep_all


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
