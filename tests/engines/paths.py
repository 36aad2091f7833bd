"""Every way in which an engine can train a lane, in one list for the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast
from ebbflow.core.local import Cohort, Engine, Lane, RoutePath, Trained
from ebbflow.core.types import Examples, Model, ModelState, State
from ebbflow.engines import RowSparse, SampleSpace, Sequential, Vectorised, WholeVectors, native
from ebbflow.engines.texts.packed_states import TextFeatures, TextSpan, entries, unpacked
from ebbflow.models import mlp, softmax
from ebbflow.starts.continuous import distilled
from tests.algorithms.toys import TOYS
from tests.engines import text_rounds
from tests.engines.rounds import (
    CLASSES,
    EVERYBODY,
    RECIPE,
    SHAPE,
    Federation,
    conv_normed,
    deep,
    examples,
    softmax_in_torch,
    visits,
)

REMEMBERING = {"scaffold", "scaffold-1", "moon", "moon-distilled", "feddyn", "anchored", "stateful"}
"""Algorithms whose devices remember something: touched rows are not enough for them."""
NO_KERNEL = {"proximal", "stateful", "by_autograd", "anchored", "scaffold-1"}
"""Algorithms that the fused kernel leaves to torch."""


@dataclass(frozen=True)
class EnginePath:
    """A path: an engine on a model and data, with rounds to train and the route that it takes.

    ``others`` are the variants that take the route ``instead``. ``within`` is how near the result
    is to the reference's, relative to the largest entry.
    """

    route: RoutePath
    model: Model
    data: Examples
    build: Callable[[Model, Examples], Engine]
    cohorts: Callable[[], list[Cohort]]
    start: ModelState
    within: float
    others: frozenset[str] = frozenset()
    instead: RoutePath | None = None

    def engine(self) -> Engine:
        """Return the path's engine."""
        return self.build(self.model, self.data)

    def reference(self) -> Engine:
        """Return the reference engine on the same model and data."""
        return Sequential(self.model, self.data, RECIPE)

    def route_of(self, variant: str) -> RoutePath:
        """Return the route that an algorithm is to take."""
        return self.instead if variant in self.others and self.instead else self.route

    def lane(self, variant: str, clients: dict[int, State] | None = None, lr: float = 0.1) -> Lane:
        """Return a lane at the path's first model."""
        algorithm = VARIANTS[variant](self.start)
        server = algorithm.init_server(self.start.theta, EVERYBODY)
        theta, extras = algorithm.broadcast(self.start.theta, server)
        return Lane(algorithm, Broadcast(theta, self.start.buffers, extras), lr, clients or {})

    def federation(self, engine: Engine, variant: str) -> Federation:
        """Return rounds of an algorithm from the path's first model."""
        return Federation(engine, VARIANTS[variant](self.start), self.start)

    def states(self, ours: State, theirs: State) -> tuple[State, State]:
        """Return two states of one device, one of them perhaps packed, in comparable terms."""
        one: State = {}
        other: State = {}
        memory = unpacked(ours)
        assert memory.keys() == theirs.keys()
        for name, value in memory.items():
            if isinstance(value, TextFeatures):  # all that is kept of a model
                x = self.data.x[value.rows]
                output, _ = self.model.forward(theirs[name], torch.zeros(0), x, None, False)
                one[name], other[name] = value.features, output.features
                tail = theirs[name][len(theirs[name]) - len(value.tail) :]
                one[f"{name}/tail"], other[f"{name}/tail"] = value.tail, tail
            else:
                one[name] = value if isinstance(value, Tensor) else self._entries(value)
                other[name] = theirs[name]
        return one, other

    def _entries(self, span: TextSpan) -> Tensor:
        assert self.model.hints.bag_of_words is not None
        return entries(span, self.model.hints.bag_of_words, self.data)


def _taught(start: ModelState) -> Algorithm:
    """Return MOON that distils from a teacher as well: three frozen models and a device's state."""
    draw = torch.Generator().manual_seed(9)
    moved = 0.1 * torch.randn(start.theta.shape, generator=draw, dtype=start.theta.dtype)
    teacher = ModelState(start.theta + moved, start.buffers)
    return distilled(ALGORITHMS["moon"](), teacher, (0, 1, 2), 0.5, 2.0, "mixed")


def _always(algorithm: Algorithm) -> Callable[[ModelState], Algorithm]:
    return lambda start: algorithm


VARIANTS: dict[str, Callable[[ModelState], Algorithm]] = {
    **{name: _always(build()) for name, build in ALGORITHMS.items()},
    **{toy.name: _always(toy) for toy in TOYS},
    "scaffold-1": _always(ALGORITHMS["scaffold"](option=1)),
    "moon-distilled": _taught,
}
"""Every algorithm of the registry, those of the tests, and options that take other branches."""


def _image_path(
    route: RoutePath,
    model: Model,
    others: set[str] | None = None,
    instead: RoutePath | None = None,
    reference: bool = False,
    dense: bool = True,
    fused: bool = True,
) -> EnginePath:
    engine = Sequential if reference else partial(Vectorised, workers=2, dense=dense, fused=fused)
    return EnginePath(
        route,
        model,
        examples(),
        lambda model, data: engine(model, data, RECIPE),
        visits,
        model.initial(torch.Generator().manual_seed(1)),
        1e-5,
        frozenset(others or ()),
        instead,
    )


def _text_path(
    route: RoutePath,
    build: Callable[[Model, Examples], Engine],
    others: set[str] | None = None,
    instead: RoutePath | None = None,
) -> EnginePath:
    return EnginePath(
        route,
        text_rounds.MODEL,
        text_rounds.DATA,
        build,
        lambda: text_rounds.rounds("each_step", 3),
        text_rounds.start(),
        text_rounds.EXACT,
        frozenset(others or ()),
        instead,
    )


PATHS: dict[str, EnginePath] = {
    "sequential": _image_path("one device at a time", softmax(SHAPE, CLASSES), reference=True),
    "mapped": _image_path("mapped blocks", softmax_in_torch()),
    "mapped mlp": _image_path("mapped blocks", mlp(SHAPE, CLASSES, 12), dense=False),
    "dense mlp": _image_path("dense layers", mlp(SHAPE, CLASSES, 12)),
    "dense mlp in torch": _image_path("dense layers", mlp(SHAPE, CLASSES, 12), fused=False),
    "dense module": _image_path("dense layers", deep()),
    "one by one": _image_path("one device at a time", conv_normed()),
    "fused": _image_path("fused kernel", softmax(SHAPE, CLASSES), NO_KERNEL, "mapped blocks"),
    "sequential texts": _text_path(
        "one device at a time",
        lambda model, data: WholeVectors(
            Sequential(model, data, RECIPE), text_rounds.BAG_OF_WORDS, data
        ),
    ),
    "sample space": _text_path(
        "sample space",
        lambda model, data: SampleSpace(model, data, RECIPE, 2),
        {"stateful"},
        "whole vectors",
    ),
    "row sparse": _text_path(
        "touched rows",
        lambda model, data: RowSparse(model, data, RECIPE, 2),
        REMEMBERING,
        "whole vectors",
    ),
}

every_path = pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=name,
            marks=pytest.mark.skipif(
                name == "fused" and native.library() is None, reason="the kernel was not built here"
            ),
        )
        for name, path in PATHS.items()
    ],
)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def close_to(path: EnginePath, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Compare tensors by name, relative to the largest entry of each."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(
            ours[name], value, rtol=path.within, atol=path.within * scale, msg=name
        )


def train(path: EnginePath, lanes: Sequence[Lane], who: Cohort) -> list[Trained]:
    """Train one round by a path, with an engine of its own."""
    engine = path.engine()
    try:
        return engine(lanes, who)
    finally:
        engine.close()
