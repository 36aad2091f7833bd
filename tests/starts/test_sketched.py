"""The warm start with sketches: the same weights, and only what counts is read."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow import experiment
from ebbflow.core.start import Situation, StartingPoint
from ebbflow.core.types import Layout, ModelState, PastSession
from ebbflow.simulation.callbacks import Callback, SessionFinished
from ebbflow.starts.warm_start import warm_start
from tests.configs import with_keys
from tests.starts.test_starts import Probe

DISTANCES = ("per_tensor", "raw", "normalised", "inner_product")
SCALES = (0.0, 10.0, 100.0, 800.0, math.inf)
LAYOUT = Layout(("a.weight", "a.bias", "b.weight"), ((60, 90), (60,), (7, 60)))
DATA = Path(os.environ.get("EBBFLOW_DATA", "nowhere"))


class Read(PastSession):
    """An entry that notes what is read of it."""

    def __init__(self, entry: PastSession, notes: list[str]) -> None:
        object.__setattr__(self, "number", entry.number)
        self._entry, self._notes = entry, notes

    @property
    def signed(self) -> bool:
        return self._entry.signed

    @property
    def model(self) -> ModelState:
        self._notes.append("model")
        return self._entry.model

    @property
    def signature(self) -> Tensor | None:
        self._notes.append("signature")
        return self._entry.signature


def history(
    signatures: Sequence[Tensor],
    own: Tensor,
    pilot: Tensor | None = None,
    layout: Layout = LAYOUT,
) -> Situation:
    """Return a past of small models, which are not what is looked at here."""
    draw = torch.Generator().manual_seed(1)
    past = [
        PastSession(z, ModelState(torch.randn(9, generator=draw), torch.zeros(2)), signature)
        for z, signature in enumerate(signatures, start=2)
    ]
    start = torch.zeros_like(signatures[0]) if pilot is None else pilot
    return Situation(
        session=9,
        carried=ModelState(own, torch.zeros(2)),
        goes_on=True,
        known_labels=(),
        pilot=ModelState(start, torch.zeros(2)),
        initial=ModelState(start, torch.zeros(2)),
        past=tuple(past),
        layout=layout,
        probe=Probe(own),
    )


def starts(
    distance: str, scale: float, situation: Situation
) -> tuple[StartingPoint, StartingPoint]:
    """Return where the session starts without and with sketches."""
    exact = warm_start(distance, scale).choose(situation)
    return exact, warm_start(distance, scale, "sketch").choose(situation)


def assert_alike(exact: StartingPoint, sketched: StartingPoint) -> None:
    assert list(sketched.weights) == list(exact.weights)
    for z, weight in exact.weights.items():
        assert sketched.weights[z] == pytest.approx(weight, rel=0, abs=1e-6)
    assert math.fsum(sketched.weights.values()) == pytest.approx(1, abs=1e-12)
    # What was measured was measured exactly; if that was everything, not a bit differs.
    assert sketched.distances.items() <= exact.distances.items()
    torch.testing.assert_close(sketched.model.theta, exact.model.theta, rtol=1e-6, atol=1e-7)
    if len(sketched.distances) == len(exact.distances):
        assert sketched.weights == exact.weights
        assert torch.equal(sketched.model.theta, exact.model.theta)


def mixed(seed: int, kinds: int, spread: float, count: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(kinds, LAYOUT.total, generator=draw)
    return [
        centres[i % kinds] + spread * torch.randn(LAYOUT.total, generator=draw)
        for i in range(count)
    ]


@pytest.mark.parametrize("distance", DISTANCES)
@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    kinds=st.integers(1, 4),
    spread=st.sampled_from([0.0, 0.1, 1.0]),
    count=st.integers(1, 8),
    scale=st.sampled_from(SCALES),
)
def test_weights_are_the_same_with_and_without_sketches(
    distance: str, seed: int, kinds: int, spread: float, count: int, scale: float
) -> None:
    *signatures, own = mixed(seed, kinds, spread, count + 1)
    assert_alike(*starts(distance, scale, history(signatures, own)))


@pytest.mark.parametrize("distance", DISTANCES)
def test_zero_tensors_and_zero_signatures_give_weights(distance: str) -> None:
    signatures = mixed(1, 2, 0.1, 6)
    weight = LAYOUT.slices()["a.weight"]
    signatures[0][weight] = signatures[1][weight] = 0
    signatures[2] = torch.zeros(LAYOUT.total)
    for own in (signatures[0], signatures[3], signatures[2]):
        for scale in SCALES:
            exact, sketched = starts(distance, scale, history(signatures, own))
            assert all(map(math.isfinite, sketched.weights.values()))
            assert_alike(exact, sketched)


def test_what_cannot_count_is_not_read() -> None:
    *signatures, _, _, _, own = mixed(2, 10, 0.1, 54)
    situation = history(signatures, own)
    notes: list[list[str]] = [[] for _ in signatures]
    watched = replace(situation, past=tuple(map(Read, situation.past, notes)))
    start = warm_start("per_tensor", 200.0, "sketch")
    for repeated in (False, True):
        for note in notes:
            note.clear()
        point = start.choose(watched)
        alike = {i for i in range(50) if i % 10 == 3}
        for i, note in enumerate(notes):
            # Once per history for a sketch that does not lie beside it, once for the distance.
            assert note.count("signature") == (not repeated) + (i in alike)
            assert note.count("model") == (point.weights[i + 2] > 0) == (i in alike)
        assert {z - 2 for z in point.distances} == alike
        assert len(point.weights) == 50


def test_sketches_are_off_unless_asked_for() -> None:
    signatures = mixed(2, 10, 0.1, 20)
    point = warm_start("per_tensor", 800.0).choose(history(signatures, signatures[3]))
    assert len(point.distances) == 20


# --- signatures of real data ---------------------------------------------------------------------


class Signatures(Callback):
    """A watcher that keeps every session's signature."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []
        self.layout = LAYOUT

    def session_finished(self, event: SessionFinished) -> None:
        self.layout = event.world.model.layout
        start = event.tracks[0].start
        if start is not None and start.signature is not None:
            self.found.append(start.signature)


@cache
def real(dataset: str) -> Signatures:
    """Run a small experiment on real data."""
    small = {
        "dataset": dataset,
        "methods": ["warm_start"],
        "seeds": [1],
        "sessions": 8,
        "rounds": 1,
        "partition.devices": 6,
        "local.batch": 16,
        "data.limit_train": 1200,
        "data.limit_test": 100,
    }
    if dataset == "agnews":
        small |= {"parameters.embedding.width": 32}  # a million parameters, for a fast test
    watcher = Signatures()
    experiment.run(with_keys(small), callbacks=[watcher])
    assert len(watcher.found) == 7
    return watcher


def needs(folder: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        not (DATA / folder).is_dir(), reason=f"EBBFLOW_DATA names no folder with {folder}/"
    )


REAL = [
    *(
        pytest.param("mnist", distance, scale, marks=needs("mnist"))
        for distance in DISTANCES
        for scale in (10.0, 50.0, 800.0, math.inf)
    ),
    *(
        # The paper's R, one at which everything counts, and one of another distance.
        pytest.param("agnews", distance, scale, marks=needs("ag_news"))
        for distance, scale in (("per_tensor", 800.0), ("per_tensor", 10.0), ("normalised", 200.0))
    ),
]


@pytest.mark.parametrize(("dataset", "distance", "scale"), REAL)
def test_real_sessions_weigh_the_same_with_and_without_sketches(
    dataset: str, distance: str, scale: float
) -> None:
    found = real(dataset)
    *signatures, own = found.found
    decisive = scale >= 200
    if distance == "raw":  # whose scale is that of the rates
        scale /= float(np.mean([float(g.double().norm()) for g in found.found]))
    exact, sketched = starts(distance, scale, history(signatures, own, layout=found.layout))
    assert_alike(exact, sketched)
    # The other group of devices is far away: at a large R its sessions need not be measured.
    if decisive:
        assert len(sketched.distances) <= 3 < len(exact.distances)
