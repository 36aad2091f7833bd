"""The engine of many machines has the bits of the local one, whoever computes and is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.cluster import dispatch
from ebbflow.cluster.engine import RayEngine, RemoteError
from ebbflow.config.resolved import Config
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.errors import EbbflowError, HookError, TrainingError
from ebbflow.core.local import Engine
from ebbflow.core.types import Dataset
from ebbflow.data import datasets
from ebbflow.experiment import engine_of
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionFinished
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.rounds import lanes_of
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.tracks import Track, new_tracks
from ebbflow.simulation.world import World, draw_round
from tests.cluster.stand_ins import LocalWorkers
from tests.configs import with_keys
from tests.simulation import test_text_runs

SMALL = {
    "dataset": "digits",
    "data.limit_train": 600,
    "data.limit_test": 200,
    "sessions": 3,
    "rounds": 2,
    "pilot.sessions": 1,
    "pilot.rounds": 1,
    "partition.devices": 9,
    "participation.share": 7,
    "local.steps": [1, 3],
    "methods": ["previous", "average"],
    "algorithm": ["fedavg", "scaffold", "moon"],
    "model.kind": "mlp",
    "seeds": [3],
}


def digits(config: Config) -> Dataset:
    return datasets.configured("digits", config.data)


class Told(Callback):
    """Keeps all that a run tells: scores, costs, and the models at the ends of sessions."""

    def __init__(self) -> None:
        self.rounds: list[Any] = []
        self.events: list[Any] = []
        self.models: list[Tensor] = []

    def round_finished(self, event: RoundFinished) -> None:
        self.rounds += event.results

    def session_finished(self, event: SessionFinished) -> None:
        self.events += event.recorded
        for track in event.tracks:
            self.models += [track.model.theta.clone(), *_states(track)]


def _states(track: Track) -> list[Tensor]:
    return [v for _, state in sorted(track.clients.items()) for _, v in sorted(state.items())]


def told(world: World, engine: Engine) -> Told:
    kept = Told()
    with closing(engine):
        simulate(world, new_tracks(world, methods_of(world)), engine, [kept])
    return kept


def compared(config: Config, data: Dataset, workers: int = 2, **chosen: Any) -> LocalWorkers:
    """Run with the local engine and with workers, and compare everything; return the workers."""
    here = told(world := build_world(config, data, config.seeds[0]), engine_of(world))
    with closing(LocalWorkers(data, workers, **chosen)) as elsewhere:
        world = build_world(config, data, config.seeds[0])
        there = told(world, RayEngine(world, elsewhere))
    assert there.rounds == here.rounds
    assert there.events == here.events
    assert len(there.models) == len(here.models)
    assert all(torch.equal(a, b) for a, b in zip(there.models, here.models, strict=True))
    return elsewhere


MODELS: dict[str, Mapping[str, Any]] = {
    "mlp": {"model.kind": "mlp"},
    "cnn": {"model.kind": "cnn", "algorithm": ["scaffold"], "methods": ["previous"]},
    "softmax": {"model.kind": "softmax", "algorithm": ["fedavg", "scaffold", "moon", "feddyn"]},
}


@pytest.mark.parametrize("name", MODELS)
def test_rounds_costs_scores_and_states_are_those_of_the_local_engine(name: str) -> None:
    config = with_keys(SMALL, MODELS[name])
    compared(config, digits(config))


def test_texts_are_those_of_the_local_engine() -> None:
    algorithms = {"algorithm": ["fedavg", "scaffold", "moon"], "partition.devices": 20}
    compared(test_text_runs.configured(**algorithms), test_text_runs.DATA)


OTHERS: dict[str, Mapping[str, Any]] = {
    "devices are drawn by size": {
        "participation.weighting": "weighted",
        "algorithm": ["fedavg"],
    },
    "some labels are wrong": {"faults.labels.devices": 0.5, "algorithm": ["fedavg"]},
    "updates are lost and spoilt": {
        "faults.dropout.rate": 0.2,
        "faults.flipped.rate": 0.2,
        "algorithm": ["scaffold"],
    },
    "the server compares with data of its own": {
        "aggregation.rule": "trust",
        "algorithm": ["fedavg"],
        "methods": ["previous"],
    },
    "a start probes, and one adapts the algorithm": {
        "methods": ["warm_start", "continuous"],
        "algorithm": ["moon"],
    },
    "states are kept over sessions": {"boundary.state": "keep", "algorithm": ["scaffold"]},
    "samples come from a pool": {
        "partition.kind": "pool",
        "partition.samples": 40,
        "algorithm": ["fedavg"],
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_happens_in_a_round_happens_there_as_well(name: str) -> None:
    config = with_keys(SMALL, {"model.kind": "softmax"}, OTHERS[name])
    compared(config, digits(config))


@settings(deadline=None, max_examples=5)
@given(workers=st.integers(1, 5), lost=st.sets(st.integers(1, 40), max_size=8))
def test_lost_workers_do_not_show(workers: int, lost: set[int]) -> None:
    softmax = {"model.kind": "softmax", "algorithm": ["scaffold"]}
    config = with_keys(SMALL, softmax)
    there = compared(config, digits(config), workers, loses=lost.__contains__, joins=8)
    assert there.losses <= len(lost)


def test_what_a_worker_cannot_fetch_is_computed_elsewhere() -> None:
    """It was taken for a failure of training, which the reference engine does not have."""
    config = with_keys(SMALL, {"model.kind": "softmax", "algorithm": ["scaffold"]})
    missed = {2, 5, 9, 17}
    there = compared(config, digits(config), cut_off=missed.__contains__, joins=8)
    assert there.losses == len(missed)


def test_only_so_much_is_under_way_as_keeps_workers_busy() -> None:
    more = {"partition.devices": 90, "participation.share": None, "algorithm": ["fedavg"]}
    config = with_keys(SMALL, {"model.kind": "softmax"}, more)
    there = compared(config, digits(config), workers=1)
    assert there.most_given <= dispatch.DEPTH


def test_without_a_worker_a_run_ends_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PATIENCE", 0.0)
    monkeypatch.setattr(dispatch, "POLL", 0.0)
    config = with_keys(SMALL, {"algorithm": ["fedavg"]})
    with pytest.raises(EbbflowError, match=r"no worker for 0 s \(all were lost\).*--engine vector"):
        compared(config, digits(config), workers=2, loses=lambda _: True)


# --- failures ------------------------------------------------------------------------------------


def failing(change: Callable[[Algorithm], Algorithm], engine: str) -> Exception:
    """Return the error of one round of a changed algorithm."""
    mapped = {"model.kind": "softmax", "engine.fused": False}
    config = with_keys(SMALL, mapped, {"algorithm": ["fedavg"], "methods": ["previous"]})
    data = digits(config)
    world = build_world(config, data, 3)
    (track,) = new_tracks(world, methods_of(world))
    track.algorithm = change(track.method.algorithm)
    track.model = world.initial
    elsewhere = LocalWorkers(data)
    made = RayEngine(world, elsewhere) if engine == "there" else engine_of(world)
    with closing(elsewhere), closing(made), pytest.raises(Exception) as caught:
        made(lanes_of([track], [0.1]), draw_round(world, world.sessions[0], 1))
    return caught.value


def test_a_hook_that_fails_is_named_as_by_the_local_engine() -> None:
    def broken(*_: object) -> Tensor:
        raise ZeroDivisionError("a bug of the user's")

    here, there = (
        failing(lambda a: a._replace(direction=broken), where) for where in ("here", "there")
    )
    assert isinstance(there, HookError)
    assert str(there) == str(here)
    assert isinstance(there.__cause__, ZeroDivisionError)


def test_what_only_vmap_cannot_do_is_told_with_a_remedy() -> None:
    def branch(g: Tensor, *_: object) -> Tensor:
        return g if g.sum() > 0 else 2 * g

    here, there = (
        failing(lambda a: a._replace(direction=branch), where) for where in ("here", "there")
    )
    assert type(there) is type(here) is TrainingError
    assert str(there) == str(here)


def test_a_failure_that_only_workers_have_keeps_their_traceback() -> None:
    place = {"here": True}

    class Elsewhere:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Elsewhere, ())

        def __call__(self, g: Tensor, *_: object) -> Tensor:
            if not place["here"]:
                raise KeyError("only there")
            return g

    config = with_keys(SMALL, {"algorithm": ["fedavg"], "methods": ["previous"]})
    data = digits(config)
    world = build_world(config, data, 3)
    elsewhere = LocalWorkers(data)
    engine = RayEngine(world, elsewhere)
    real = elsewhere.result

    def result(handle: int) -> Any:
        place["here"] = False
        try:
            return real(handle)
        finally:
            place["here"] = True

    elsewhere.result = result  # type: ignore[method-assign]
    (track,) = new_tracks(world, methods_of(world))
    track.algorithm, track.model = (
        track.method.algorithm._replace(direction=Elsewhere()),
        world.initial,
    )
    with closing(elsewhere), closing(engine), pytest.raises(KeyError, match="only there") as caught:
        engine(lanes_of([track], [0.1]), draw_round(world, world.sessions[0], 1))
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "in __call__" in str(caught.value.__cause__)


def test_a_model_that_fails_in_an_evaluation_is_a_bug_with_a_place() -> None:
    config = with_keys(SMALL, {"algorithm": ["fedavg"], "methods": ["previous"]})
    data = digits(config)
    world = build_world(config, data, 3)
    elsewhere = LocalWorkers(data)
    engine = RayEngine(world, elsewhere)
    short = world.initial._replace(theta=world.initial.theta[:-1])
    with closing(elsewhere), closing(engine), pytest.raises(HookError, match="evaluation"):
        engine.evaluate([short], data.test)()
