"""Devices that come and go in any order, sessions that begin and end, and servers that restart.

Hypothesis makes up the order of events; after every one of them, what must always be true is. In
`make test` there are a thousand steps, in `make test-all` ten thousand.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ebbflow.algorithms.fedavg import fedavg
from ebbflow.core.algorithm import Broadcast
from ebbflow.core.local import Cohort, Lane, Recipe
from ebbflow.core.rng import generator
from ebbflow.core.start import DevicesPresent
from ebbflow.core.types import Examples, Indices, ModelState
from ebbflow.engines.sequential import Sequential
from ebbflow.models.softmax import softmax
from ebbflow.runs.history import Store
from ebbflow.runs.retention import keep_last
from ebbflow.sessions.memory import Memory, SessionRules, begin, finish
from ebbflow.starts import STARTS

FEATURES, CLASSES, ROWS, KEPT = 6, 3, 60, 4
DRAW = np.random.default_rng(5)
DATA = Examples(
    torch.from_numpy(DRAW.normal(size=(ROWS, FEATURES)).astype(np.float32)),
    torch.from_numpy(DRAW.integers(CLASSES, size=ROWS)),
)
MODEL = softmax((FEATURES,), CLASSES)
INITIAL = MODEL.initial(torch.Generator().manual_seed(1))
RULES = SessionRules(pilot_sessions=2, retention=keep_last(KEPT))


class Federation(RuleBasedStateMachine):
    """A server that knows nothing but what `sessions.memory` tells it, and its devices."""

    @initialize(start=st.sampled_from(["previous", "average", "warm_start"]))
    def set_up(self, start: str) -> None:
        self.start = STARTS[start].build({})
        self.engine = Sequential(MODEL, DATA, Recipe())
        self.memory = Memory(INITIAL)
        self.folder = Path(tempfile.mkdtemp())
        self.store = Store(self.folder, MODEL.layout, MODEL.buffer_layout)
        self.present: set[int] = {0}
        self.gone: set[int] = set()
        self.session, self.round, self.under_way = 0, 0, False
        self.members: tuple[int, ...] = ()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    # --- devices ---------------------------------------------------------------------------------

    @rule()
    def a_new_device_joins(self) -> None:
        self.present.add(len(self.present) + len(self.gone))

    @precondition(lambda self: len(self.present) > 1)
    @rule(pick=st.integers(0, 10**6))
    def one_leaves(self, pick: int) -> None:
        device = sorted(self.present)[pick % len(self.present)]
        self.present.remove(device)
        self.gone.add(device)

    @precondition(lambda self: self.gone)
    @rule(pick=st.integers(0, 10**6))
    def one_comes_back(self, pick: int) -> None:
        device = sorted(self.gone)[pick % len(self.gone)]
        self.gone.remove(device)
        self.present.add(device)

    def shard(self, device: int) -> Indices:
        draw = generator("shard", device)
        return draw.permutation(ROWS)[: 1 + device % 7]

    # --- sessions --------------------------------------------------------------------------------

    def cohort(self, devices: tuple[int, ...]) -> Cohort:
        shards = [self.shard(device) for device in devices]
        sizes = tuple(map(len, shards))
        batches = [[shard, shard] for shard in shards]
        return Cohort(self.session, self.round, devices, batches, sizes)

    def lane(self, model: ModelState) -> Lane:
        return Lane(fedavg(), Broadcast(model.theta, model.buffers, {}), 0.1, {})

    def probe(self, model: ModelState) -> ModelState:
        ((total, _),) = self.engine([self.lane(model)], self.cohort(self.members))
        return model._replace(theta=model.theta + total.delta / total.samples)

    @precondition(lambda self: not self.under_way)
    @rule()
    def a_session_begins(self) -> None:
        self.session, self.round, self.under_way = self.session + 1, 0, True
        self.members = tuple(sorted(self.present))
        carried = self.memory.model
        point = begin(
            self.memory,
            self.session,
            self.start,
            RULES,
            initial=INITIAL,
            layout=MODEL.layout,
            present=DevicesPresent(self.probe, numbers=self.members),
        )
        if RULES.is_pilot(self.session):
            assert torch.equal(point.model.theta, carried.theta)
        if point.weights:
            assert sum(point.weights.values()) == pytest.approx(1.0, abs=1e-12)
            assert set(point.weights) <= {past.number for past in self.memory.past}

    @precondition(lambda self: self.under_way)
    @rule(asked=st.integers(1, 5), lost=st.sets(st.integers(0, 4)))
    def a_round_is_trained(self, asked: int, lost: set[int]) -> None:
        self.round += 1
        # Devices of the session that have left meanwhile do not answer either.
        drawn = generator("draw", self.session, self.round).permutation(self.members)[:asked]
        arrived = [d for i, d in enumerate(sorted(drawn)) if i not in lost and d in self.present]
        if not arrived:
            return
        cohort = self.cohort(tuple(map(int, arrived)))
        before = self.memory.model
        ((total, _),) = self.engine([self.lane(before)], cohort)
        weights = [n / float(total.samples) for n in cohort.samples]
        assert sum(weights) == pytest.approx(1.0, abs=1e-12)
        alone = [
            self.engine([self.lane(before)], cohort.only([place]))[0][0]
            for place in range(len(arrived))
        ]
        models = torch.stack([before.theta + one.delta / one.samples for one in alone])
        theta = before.theta + total.delta / total.samples
        mean = torch.tensor(weights) @ models
        torch.testing.assert_close(theta, mean, rtol=1e-4, atol=1e-5)
        self.memory.model = before._replace(theta=theta)

    @precondition(lambda self: self.under_way)
    @rule()
    def the_session_ends(self) -> None:
        final = self.memory.model
        finish(self.memory, self.session, RULES)
        self.under_way = False
        if not RULES.is_pilot(self.session):
            assert torch.equal(self.memory.past[-1].model.theta, final.theta)
            self.memory.past = [
                self.store.write(past) if past.number == self.session else past
                for past in self.memory.past
            ]
            self.store.keep({past.number for past in self.memory.past})

    @precondition(lambda self: not self.under_way and self.memory.past)
    @rule()
    def the_server_restarts(self) -> None:
        known = [(past.number, past.model.theta, past.signature) for past in self.memory.past]
        self.store = Store(self.folder, MODEL.layout, MODEL.buffer_layout)
        self.memory.past = [self.store.read(number) for number, _, _ in known]
        for (number, theta, signature), past in zip(known, self.memory.past, strict=True):
            assert past.number == number and torch.equal(past.model.theta, theta)
            again = past.signature
            assert (signature is None) == (again is None)
            assert signature is None or again is None or torch.equal(signature, again)

    # --- what is always true ---------------------------------------------------------------------

    @invariant()
    def the_past_is_in_order_and_no_longer_than_allowed(self) -> None:
        if not hasattr(self, "memory"):
            return
        numbers = [past.number for past in self.memory.past]
        assert numbers == sorted(set(numbers))
        assert len(numbers) <= KEPT
        done = self.session - self.under_way - RULES.pilot_sessions
        assert len(numbers) == min(KEPT, max(0, done))
        assert (self.memory.pilot is not None) == (done >= 0)

    @invariant()
    def nothing_is_infinite_and_nobody_is_in_two_places(self) -> None:
        if not hasattr(self, "memory"):
            return
        assert bool(torch.isfinite(self.memory.model.theta).all())
        assert not self.present & self.gone


def run(examples: int) -> None:
    run_state_machine_as_test(
        Federation,
        settings=settings(max_examples=examples, stateful_step_count=50, deadline=None),
    )


def test_a_thousand_steps_of_churn() -> None:
    run(20)


@pytest.mark.slow
def test_ten_thousand_steps_of_churn() -> None:
    run(200)
