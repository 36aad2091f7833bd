"""Device states in terms of the device's texts, as plain tensors that a checkpoint can hold.

- ``NAME/rows [n]``, ``NAME/coefficients [n, width]``, ``NAME/tail``: a vector whose table is
  A^T coefficients, with A the texts in these rows of the training set (a `TextSpan`);
- ``NAME/rows [n]``, ``NAME/features [n, width]``, ``NAME/tail``: a model of which only the outputs
  on the device's own texts are needed, by its features of them (`TextFeatures`);
- any other entry of a state is kept under its own name.

`laid_out` turns a `TextSpan` back into a whole vector, for engines that need one. The features of a
model do not determine the model, so `TextFeatures` cannot be turned back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ebbflow.core.algorithm import mean_state
from ebbflow.core.errors import EbbflowError
from ebbflow.core.lazy import LazySequence
from ebbflow.core.local import Cohort, Lane
from ebbflow.core.types import BagOfWords, Examples, State
from ebbflow.engines.texts.sparse import texts_of


class TextSpan(NamedTuple):
    """A vector whose table is A^T coefficients, with A the texts of these rows."""

    rows: Tensor
    coefficients: Tensor
    tail: Tensor


class TextFeatures(NamedTuple):
    """A model by its features of the texts of these rows, and its tail."""

    rows: Tensor
    features: Tensor
    tail: Tensor


KnownVector = Tensor | TextSpan | TextFeatures
"""A vector by all of its entries, or by what is known of it."""


def packed(memory: Mapping[str, KnownVector]) -> State:
    """Return what a device remembers as plain tensors, under the names given above."""
    state: State = {}
    for name, value in memory.items():
        if isinstance(value, Tensor):
            state[name] = value
        else:
            state |= {f"{name}/{part}": tensor for part, tensor in value._asdict().items()}
    return state


def unpacked(state: State) -> dict[str, KnownVector]:
    """Return what a device remembers from its tensors; the inverse of `packed`."""
    memory: dict[str, KnownVector] = {}
    for key, value in state.items():
        name, _, part = key.rpartition("/")
        if part == "coefficients" and name:
            memory[name] = TextSpan(state[f"{name}/rows"], value, state[f"{name}/tail"])
        elif part == "features" and name:
            memory[name] = TextFeatures(state[f"{name}/rows"], value, state[f"{name}/tail"])
        elif not name or part not in ("rows", "tail"):
            memory[key] = value
    return memory


def is_packed(state: State) -> bool:
    """Return whether a state holds vectors in terms of texts."""
    return any(key.endswith(("/coefficients", "/features")) for key in state)


def laid_out(state: State, bag_of_words: BagOfWords, examples: Examples) -> State:
    """Return a state with whole vectors, or raise a sentence that says why that is impossible."""
    if not is_packed(state):
        return state
    whole: State = {}
    for name, value in unpacked(state).items():
        if isinstance(value, TextFeatures):
            raise EbbflowError(
                f"devices remember the features of their texts instead of a whole model ({name}), "
                "which only the engine that trains texts in the sample space can use: go on with "
                'engine.kind = "vectorised" and device = "cpu"'
            )
        whole[name] = value if isinstance(value, Tensor) else entries(value, bag_of_words, examples)
    return whole


def entries(span: TextSpan, bag_of_words: BagOfWords, examples: Examples) -> Tensor:
    """Return all entries of a vector."""
    texts = texts_of(bag_of_words, examples.x[span.rows], span.coefficients.dtype)
    table = texts.transposed().product(span.coefficients)
    return torch.cat([table.view(-1), span.tail])


def with_whole_states(
    lanes: Sequence[Lane], cohort: Cohort, bag_of_words: BagOfWords, examples: Examples
) -> list[Lane]:
    """Return the lanes with the participants' states laid out."""
    return [
        lane._replace(
            clients={
                device: laid_out(lane.clients[device], bag_of_words, examples)
                for device in cohort.devices
                if device in lane.clients
            }
        )
        for lane in lanes
    ]


def mean_whole_state(
    states: Sequence[State], samples: Sequence[int], bag_of_words: BagOfWords, examples: Examples
) -> State:
    """Return the mean of device states as whole vectors, laying out one state at a time."""

    def whole(place: int) -> State:
        return laid_out(states[place], bag_of_words, examples)

    return mean_state(LazySequence(len(states), whole), samples)
