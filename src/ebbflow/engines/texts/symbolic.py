"""Runs hooks symbolically on linear combinations of named vectors.

Local training of a model that averages word vectors stays in the span of a few vectors: those that
were broadcast, those that the device remembers, and the rows of its texts. A hook that is linear in
its vectors does not need their entries. It is run on `Combination`s instead, and the multiples that
it returns tell an engine what to do with coefficients. A hook that asks for more than linear
algebra gets `NotLinearError`, and its algorithm is trained in another way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ebbflow.core.algorithm import Broadcast, LocalRun, Upload
from ebbflow.core.local import Lane, Recipe, step_sum
from ebbflow.core.types import BagOfWords, ModelState, Output, State
from ebbflow.engines.texts.combination import Combination, NotLinearError, combined, multiples_of
from ebbflow.engines.texts.packed_states import KnownVector, unpacked
from ebbflow.engines.texts.stand_ins import hook_on_stand_ins

SENT, ITERATE, GRADIENT, OWN, START = "theta", "iterate", "gradient", "own", "start"
SHARED, CLIENT = "shared/", "client/"


class Trajectory(NamedTuple):
    """A device's steps as linear combinations of named vectors.

    The hook `direction` gives slope g + pull theta_h + sum_v shift[v] v. Therefore theta_h =
    sum_v multiples[h][v] v - A^T M_h, where v are the named vectors and M_h are coefficients on the
    device's texts. The multiples do not depend on the data and are known beforehand.
    """

    slope: float
    pull: float
    shift: dict[str, float]
    multiples: list[dict[str, float]]


class SymbolicHooks:
    """An algorithm's hooks for one lane's round, run on combinations of named vectors."""

    def __init__(self, lane: Lane, recipe: Recipe) -> None:
        theta, buffers, extras = lane.shared
        self.lane, self.recipe = lane, recipe
        self.algorithm = lane.algorithm
        self.like = theta.new_zeros(())
        whole = {name: v for name, v in extras.items() if v.shape == theta.shape}
        named = {name: self._of(SHARED + name) for name in whole}
        self.shared = Broadcast(self._of(SENT), buffers, {**extras, **named})
        self.vectors: dict[str, KnownVector] = {SENT: theta}
        self.vectors |= {SHARED + name: v for name, v in whole.items()}
        with self._hook("init_client"):
            self.fresh = lane.algorithm.init_client(self.shared)

    def _of(self, name: str) -> Tensor:
        return cast(Tensor, Combination.of(name, self.like))

    def _hook(self, name: str) -> AbstractContextManager[None]:
        return hook_on_stand_ins(name, self.algorithm.name, NotLinearError)

    def remembered(self, state: State) -> tuple[State, dict[str, KnownVector]]:
        """Return a device's state for the hooks, and its vectors by the names they have there."""
        memory = unpacked(state)
        vectors = {
            CLIENT + name: value
            for name, value in memory.items()
            if not isinstance(value, Tensor) or value.shape == self.lane.shared.theta.shape
        }
        client = {
            name: self._of(CLIENT + name) if CLIENT + name in vectors else value
            for name, value in memory.items()
        }
        return cast(State, client), vectors

    def trajectory(self, client: State, steps: int) -> Trajectory:
        """Return so many steps of a device with this state."""
        with self._hook("direction"):
            shift = multiples_of(
                self.algorithm.direction(self._of(GRADIENT), self._of(ITERATE), self.shared, client)
            )
        slope, pull = shift.pop(GRADIENT, 0.0), shift.pop(ITERATE, 0.0)
        at: dict[str, float] = {SENT: 1.0}
        velocity: dict[str, float] = {}
        multiples = [dict(at)]
        for _ in range(steps):
            for name in {**at, **shift}:
                velocity[name] = (
                    self.recipe.momentum * velocity.get(name, 0.0)
                    + shift.get(name, 0.0)
                    + pull * at.get(name, 0.0)
                )
                at[name] = at.get(name, 0.0) - self.lane.lr * velocity[name]
            multiples.append({name: value for name, value in at.items() if value})
        return Trajectory(slope, pull, shift, multiples)

    def anchors(self, client: State) -> dict[str, ModelState]:
        """Return the frozen models, with combinations in place of vectors."""
        with self._hook("anchors"):
            return self.algorithm.anchors(self.shared, client)

    def upload(
        self, client: State, trajectory: Trajectory, samples: Tensor
    ) -> tuple[Upload, dict[str, Any]]:
        """Return what the device sends and remembers, with combinations in place of vectors."""
        parts = {name: (value, abs(value)) for name, value in trajectory.multiples[-1].items()}
        theta = Combination({**parts, OWN: (-1.0, 1.0)}, self.like)
        steps = len(trajectory.multiples) - 1
        run = LocalRun(
            cast(Tensor, theta),
            self.shared.buffers,
            steps,
            step_sum(steps, self.recipe.momentum),
            self.lane.lr,
            samples,
            self._of(START) if self.algorithm.start_gradient else None,
        )
        with self._hook("upload"):
            return self.algorithm.upload(self.shared, client, run)

    def check(self, bag_of_words: BagOfWords, classes: int, shards_known: bool) -> None:
        """Raise `NotLinearError` if an engine cannot follow these hooks without whole vectors.

        A vector that a device remembers must lie in the span of its texts, or must be used for
        nothing but its outputs on them (for which all of the device's texts must be known).
        """
        client = {
            name: value if combined(value) is None else self._of(CLIENT + name)
            for name, value in self.fresh.items()
        }
        used: set[str] = set()
        beyond: set[str] = set()
        for steps in (1, 3):
            trajectory = self.trajectory(client, steps)
            sent, after = self.upload(client, trajectory, self.like + 2)
            if {n: combined(v) is None for n, v in after.items()} != {
                n: combined(v) is None for n, v in self.fresh.items()
            }:
                raise NotLinearError("upload returns other vectors than init_client")
            vectors = [value for value in sent.extras.values() if combined(value) is not None]
            used.update(trajectory.shift, *map(multiples_of, [sent.delta, *vectors]))
            for name, value in after.items():
                if combined(value) is not None:
                    of = multiples_of(value).keys()
                    used |= of - {CLIENT + name}
                    if any(n == SENT or n.startswith(SHARED) for n in of):
                        beyond.add(CLIENT + name)
        self._try_objective(client, bag_of_words, classes)
        if beyond & used:
            names = ", ".join(sorted(name.removeprefix(CLIENT) for name in beyond & used))
            raise NotLinearError(f"devices remember and use a whole vector ({names})")
        if beyond and not shards_known:
            raise NotLinearError("devices remember a model, and nobody says which texts they have")

    def _try_objective(self, client: State, bag_of_words: BagOfWords, classes: int) -> None:
        """Run the objective on two samples of zeros: it may ask the state for vectors, too."""
        like = self.like
        zeros = Output(like.new_zeros(2, classes), like.new_zeros(2, bag_of_words.width))
        anchors = dict.fromkeys(self.anchors(client), zeros)
        labels = torch.zeros(2, dtype=torch.int64, device=like.device)
        with self._hook("objective"):
            self.algorithm.objective(zeros, labels, anchors, client)


def linear_hooks(
    lane: Lane, recipe: Recipe, bag_of_words: BagOfWords, classes: int, shards_known: bool
) -> SymbolicHooks:
    """Return the hooks of a lane's algorithm, or raise `NotLinearError` with the reason."""
    if recipe.radius is not None:
        raise NotLinearError("local.radius needs the length of the whole vector")
    hooks = SymbolicHooks(lane, recipe)
    hooks.check(bag_of_words, classes, shards_known)
    return hooks
