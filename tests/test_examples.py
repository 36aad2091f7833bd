"""The naive twin of the simulator: the paper's loop in plain torch comes to the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ebbflow.config.merge import Layers
from ebbflow.data import datasets
from ebbflow.engines import Vectorised
from ebbflow.simulation.building import build_world
from ebbflow.simulation.callbacks import Callback, RoundFinished, SessionStarted
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.simulate import simulate
from ebbflow.simulation.tracks import new_tracks
from examples.algorithm1 import Outcome, algorithm1

METHODS = ("warm_start", "previous")


class Notes(Callback):
    """Keeps accuracies and weights of every method."""

    def __init__(self) -> None:
        self.accuracies: dict[str, dict[int, list[float]]] = {name: {} for name in METHODS}
        self.weights: dict[str, dict[int, dict[int, float]]] = {name: {} for name in METHODS}

    def session_started(self, event: SessionStarted) -> None:
        for line in event.recorded:
            if line["event"] == "start" and line["weights"]:
                weights = {int(z): weight for z, weight in line["weights"].items()}
                self.weights[line["method"]][event.session.index] = weights

    def round_finished(self, event: RoundFinished) -> None:
        for r in event.results:
            self.accuracies[r.method].setdefault(r.session, []).append(r.accuracy)


def library(*settings: str) -> dict[str, Outcome]:
    """Run the demo setting with ebbflow and tell it as the example does."""
    layers = Layers()
    layers.add_preset("demo")
    for setting in ("seeds=100", f"methods={list(METHODS)}", *settings):
        layers.add_setting(setting)
    config = layers.config()
    world = build_world(config, datasets.load("digits"), config.seeds[0])
    tracks = new_tracks(world, methods_of(world))
    notes = Notes()
    engine = Vectorised(world.model, world.dataset.train, world.recipe, workers=1)
    try:
        simulate(world, tracks, engine, [notes])
    finally:
        engine.close()
    return {
        track.method.name: Outcome(
            list(notes.accuracies[track.method.name].values()),
            notes.weights[track.method.name],
            {"theta": track.model.theta},
        )
        for track in tracks
    }


def assert_same(plain: Outcome, ours: Outcome) -> None:
    one_sample = 100 / int((datasets.load("digits").test.y < 5).sum())
    assert len(plain.accuracies) == len(ours.accuracies)
    for mine, theirs in zip(plain.accuracies, ours.accuracies, strict=True):
        assert mine == pytest.approx(theirs, abs=one_sample)
    final = torch.cat([plain.model["weight"].flatten(), plain.model["bias"]])
    torch.testing.assert_close(final, ours.model["theta"], rtol=0, atol=1e-5)


def assert_same_weights(plain: Outcome, ours: Outcome) -> None:
    assert plain.mu.keys() == ours.mu.keys()
    for s, mu in plain.mu.items():
        assert mu == pytest.approx(ours.mu[s], abs=1e-6)


@pytest.fixture(scope="module")
def demo() -> dict[str, Outcome]:
    return library()


@pytest.mark.parametrize("method", METHODS)
def test_plain_torch_gives_the_numbers_of_the_library(
    method: str, demo: dict[str, Outcome]
) -> None:
    plain = algorithm1(seed=100, method=method)
    assert_same(plain, demo[method])
    if method == "warm_start":
        assert_same_weights(plain, demo[method])


def test_so_it_does_with_other_pilots_probes_and_sensitivity() -> None:
    plain = algorithm1(seed=7, sessions=5, pilots=2, rounds=3, probes=2, scale=1.5)
    settings = ("seeds=7", "sessions=5", "pilot.sessions=2", "rounds=3", "probe.rounds=2")
    ours = library(*settings, "parameters.warm_start.scale=1.5")["warm_start"]
    assert_same(plain, ours)
    assert_same_weights(plain, ours)
    assert min(plain.mu[5].values()) > 0.01  # the weights are those of a real mixture


@pytest.mark.slow
def test_the_example_runs_as_a_script(demo: dict[str, Outcome]) -> None:
    script = Path(__file__).parent.parent / "examples" / "algorithm1.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    header, *lines = done.stdout.splitlines()
    assert header.split() == ["session", "warm_start", "previous", "mu"]
    assert len(lines) == 7
    last = sum(demo["warm_start"].accuracies[6][:10]) / 10
    assert float(lines[6].split()[1]) == pytest.approx(last, abs=0.1)
