"""Linear algebra on vectors that nobody has laid out.

A model of averaged word vectors moves, in local training, only within the span of a few vectors:
those that were broadcast, those that the device remembers, and the rows of its texts. A hook that
is linear in its vectors (every one of ours is) need not see their entries to say what it makes of
them: it is run on `Combination`s, scalar multiples of *named* vectors, and what comes out is a
recipe that an engine follows on coefficients. A hook that asks for more than linear algebra gets
`NotLinearError`, and its algorithm is trained on whole vectors.

A device's state is kept in the same terms, as plain tensors (so that checkpoints hold it):

- ``NAME/rows [n]``, ``NAME/coefficients [n, width]``, ``NAME/tail``: the table's part of the vector
  is A^T coefficients, with A the texts of these rows of the training set (a `Span`);
- ``NAME/rows [n]``, ``NAME/features [n, width]``, ``NAME/tail``: of a model that is only ever asked
  for its outputs on the device's own texts, these outputs are kept (a `Seen`);
- any other entry of a state is under its own name.

`laid_out` turns the first form back into whole vectors, for engines that need them; the second
cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ebbflow.core.algorithm import Broadcast, LocalRun, Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.local import Cohort, Lane, Recipe, step_sum
from ebbflow.core.types import Bags, Examples, Model, Output, State
from ebbflow.engines.texts.combination import Combination, combined, multiples_of
from ebbflow.engines.texts.sparse import texts_of

SENT, ITERATE, GRADIENT, OWN, START = "theta", "iterate", "gradient", "own", "start"
SHARED, CLIENT = "shared/", "client/"

# --- vectors that are known by less than their entries -------------------------------------------


class Span(NamedTuple):
    """A vector whose table is A^T coefficients, with A the texts of these rows."""

    rows: Tensor
    coefficients: Tensor
    tail: Tensor


class Seen(NamedTuple):
    """A model by its features of the texts of these rows, and its tail."""

    rows: Tensor
    features: Tensor
    tail: Tensor


Vector = Tensor | Span | Seen
"""A vector that has a name: laid out, or known by less."""


def packed(memory: Mapping[str, Vector]) -> State:
    """Return a device's memory as plain tensors, under the names of the module's text."""
    state: State = {}
    for name, value in memory.items():
        if isinstance(value, Tensor):
            state[name] = value
        else:
            state |= {f"{name}/{part}": tensor for part, tensor in value._asdict().items()}
    return state


def unpacked(state: State) -> dict[str, Vector]:
    """Return a device's memory from its tensors; the inverse of `packed`."""
    memory: dict[str, Vector] = {}
    for key, value in state.items():
        name, _, part = key.rpartition("/")
        if part == "coefficients" and name:
            memory[name] = Span(state[f"{name}/rows"], value, state[f"{name}/tail"])
        elif part == "features" and name:
            memory[name] = Seen(state[f"{name}/rows"], value, state[f"{name}/tail"])
        elif not name or part not in ("rows", "tail"):
            memory[key] = value
    return memory


def is_packed(state: State) -> bool:
    """Return whether a state holds vectors that are not laid out."""
    return any(key.endswith(("/coefficients", "/features")) for key in state)


def laid_out(state: State, model: Model, examples: Examples) -> State:
    """Return a state with whole vectors, or refuse in a sentence."""
    if model.bags is None or not is_packed(state):
        return state
    dense: State = {}
    for name, value in unpacked(state).items():
        if isinstance(value, Seen):
            raise EbbflowError(
                f"devices remember the features of their texts instead of a whole model ({name}), "
                "which only the engine that trains texts in the sample space can use: go on with "
                'engine.kind = "vectorised" and device = "cpu"'
            )
        dense[name] = value if isinstance(value, Tensor) else whole(value, model.bags, examples)
    return dense


def whole(span: Span, bags: Bags, examples: Examples) -> Tensor:
    """Return all entries of a vector."""
    texts = texts_of(bags, examples.x[span.rows], span.coefficients.dtype)
    table = texts.transposed().product(span.coefficients)
    return torch.cat([table.view(-1), span.tail])


def with_whole_states(
    lanes: Sequence[Lane], cohort: Cohort, model: Model, examples: Examples
) -> Sequence[Lane]:
    """Return the lanes with their participants' states laid out, for engines that need that."""
    if model.bags is None:
        return lanes
    return [
        lane._replace(
            clients={
                device: laid_out(lane.clients[device], model, examples)
                for device in cohort.devices
                if device in lane.clients
            }
        )
        for lane in lanes
    ]


# --- an algorithm's hooks, run on names ----------------------------------------------------------


class Course(NamedTuple):
    """How a device's steps go: what the hook `direction` makes of its arguments, and where to.

    direction = slope g + pull theta_h + sum_v shift[v] v. Then theta_h = sum_v multiples[h][v] v -
    A^T M_h, whatever the data: with v the named vectors, the multiples are known beforehand, and
    M_h are coefficients on the device's texts.
    """

    slope: float
    pull: float
    shift: dict[str, float]
    multiples: list[dict[str, float]]


class Hooks:
    """An algorithm's hooks for one lane's round, run on names instead of vectors."""

    def __init__(self, lane: Lane, recipe: Recipe) -> None:
        theta, buffers, extras = lane.shared
        self.lane, self.recipe = lane, recipe
        self.algorithm = lane.algorithm
        self.like = theta.new_zeros(())
        whole_ones = {name: v for name, v in extras.items() if v.shape == theta.shape}
        named = {name: self._of(SHARED + name) for name in whole_ones}
        self.shared = Broadcast(self._of(SENT), buffers, {**extras, **named})
        self.vectors: dict[str, Vector] = {SENT: theta}
        self.vectors |= {SHARED + name: v for name, v in whole_ones.items()}
        self.fresh = lane.algorithm.init_client(self.shared)

    def _of(self, name: str) -> Tensor:
        return cast(Tensor, Combination.of(name, self.like))

    def remembered(self, state: State) -> tuple[State, dict[str, Vector]]:
        """Return a device's state for the hooks, and the vectors in it by the names they got."""
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

    def course(self, client: State, steps: int) -> Course:
        """Return how so many steps go with this state."""
        made = self.algorithm.direction(self._of(GRADIENT), self._of(ITERATE), self.shared, client)
        shift = multiples_of(made)
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
        return Course(slope, pull, shift, multiples)

    def upload(
        self, client: State, course: Course, samples: Tensor
    ) -> tuple[Upload, dict[str, Any]]:
        """Return what the device sends and remembers, with combinations in place of vectors."""
        parts = {name: (value, abs(value)) for name, value in course.multiples[-1].items()}
        theta = Combination({**parts, OWN: (-1.0, 1.0)}, self.like)
        steps = len(course.multiples) - 1
        run = LocalRun(
            cast(Tensor, theta),
            self.shared.buffers,
            steps,
            step_sum(steps, self.recipe.momentum),
            self.lane.lr,
            samples,
            self._of(START) if self.algorithm.start_gradient else None,
        )
        return self.algorithm.upload(self.shared, client, run)

    def spanned(self, bags: Bags, classes: int, shards: bool) -> bool:
        """Return whether an engine can follow these hooks without whole vectors.

        A vector that a device remembers must lie in the span of its texts, or else be asked for
        nothing but outputs on them (for which all of its texts must be known).
        """
        client = {
            name: value if combined(value) is None else self._of(CLIENT + name)
            for name, value in self.fresh.items()
        }
        used: set[str] = set()
        beyond: set[str] = set()
        for steps in (1, 3):
            course = self.course(client, steps)
            sent, after = self.upload(client, course, self.like + 2)
            if {n: combined(v) is None for n, v in after.items()} != {
                n: combined(v) is None for n, v in self.fresh.items()
            }:
                return False
            vectors = [value for value in sent.extras.values() if combined(value) is not None]
            used.update(course.shift, *map(multiples_of, [sent.delta, *vectors]))
            for name, value in after.items():
                if combined(value) is not None:
                    of = multiples_of(value).keys()
                    used |= of - {CLIENT + name}
                    if any(n == SENT or n.startswith(SHARED) for n in of):
                        beyond.add(CLIENT + name)
        self._try_objective(client, bags, classes)
        return not beyond & used and (shards or not beyond)

    def _try_objective(self, client: State, bags: Bags, classes: int) -> None:
        """Run the objective on two samples of nothing: it may ask the state for vectors, too."""
        like = self.like
        nothing = Output(like.new_zeros(2, classes), like.new_zeros(2, bags.width))
        anchors = dict.fromkeys(self.algorithm.anchors(self.shared, client), nothing)
        labels = torch.zeros(2, dtype=torch.int64, device=like.device)
        self.algorithm.objective(nothing, labels, anchors, client)


def hooks_on_names(
    lane: Lane, recipe: Recipe, bags: Bags, classes: int, shards: bool
) -> Hooks | None:
    """Return an algorithm's hooks run on names, or None if it must be trained on whole vectors."""
    if recipe.radius is not None:  # a projection needs the length of the whole vector
        return None
    try:
        hooks = Hooks(lane, recipe)
        return hooks if hooks.spanned(bags, classes, shards) else None
    except Exception:  # whatever it is: on whole vectors it comes again, or is no error there
        return None
