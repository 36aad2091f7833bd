"""The fused kernel gives what torch gives, alone or in company, and is never needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Affine, Algorithm, Broadcast, cross_entropy
from ebbflow.core.errors import HookError
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.objectives import Contrast, Distillation
from ebbflow.core.types import Examples, Gradient, ModelState, Output, State, Theta
from ebbflow.engines import Sequential, Vectorised, fused, native
from ebbflow.engines.fused import Fused, why_no_kernel
from ebbflow.models import softmax
from ebbflow.starts.continuous import distilled
from tests.engines.rounds import (
    CLASSES,
    MANY,
    RECIPE,
    SHAPE,
    Federation,
    assert_agree,
    cohort,
    examples,
    lane,
    reference,
    same_bits,
    shifts,
    visits,
)

MODEL = softmax(SHAPE, CLASSES)
SHIFTS = shifts(MODEL.layout.total)
SOURCE = Path(native.__file__).with_name("softmax.c")
built = pytest.mark.skipif(native.library() is None, reason="the fused kernel was not built here")


def algorithms() -> dict[str, Algorithm]:
    """Return every algorithm that the kernel takes, distillation on top of two of them."""
    named = {name: build() for name, build in ALGORITHMS.items()}
    teacher = MODEL.initial(torch.Generator().manual_seed(9))
    for target in ("teacher", "mixed"):
        for base, kl, temperature in (("fedavg", 0.5, 2.0), ("moon", 1.5, 0.7)):
            algorithm = distilled(named[base], teacher, (0, 1, 2), kl, temperature, target)
            named[f"distilled {base}, {target}"] = algorithm
    return named


every_algorithm = pytest.mark.parametrize("name", algorithms())


def refusal(at: Lane) -> str:
    return Fused(MODEL, examples(), RECIPE).refusal(at)


@pytest.fixture
def engines() -> Iterator[tuple[Vectorised, Sequential]]:
    fast = Vectorised(MODEL, examples(), RECIPE, workers=2)
    yield fast, Sequential(MODEL, examples(), RECIPE)
    fast.close()


@built
@every_algorithm
def test_the_kernel_takes_every_algorithm_of_ours(name: str) -> None:
    assert why_no_kernel(MODEL, examples()) == ""
    assert refusal(lane(MODEL, algorithms()[name])) == ""


@built
@every_algorithm
def test_three_rounds_agree_with_the_reference(
    name: str, engines: tuple[Vectorised, Sequential]
) -> None:
    assert_rounds_agree(algorithms()[name], engines)


def assert_rounds_agree(algorithm: Algorithm, engines: tuple[Vectorised, Sequential]) -> None:
    start = MODEL.initial(torch.Generator().manual_seed(1))
    runs = [Federation(engine, algorithm, start) for engine in engines]
    for who in visits():
        for run in runs:
            run.round(who)
    fast, slow = (run.tensors() for run in runs)
    assert fast.keys() == slow.keys()
    for key in slow:
        torch.testing.assert_close(fast[key], slow[key], rtol=1e-4, atol=2e-6, msg=key)
    assert not torch.equal(slow["theta"], start.theta)


@built
@given(
    inputs=st.integers(1, 40),
    classes=st.integers(2, 13),
    sizes=st.lists(st.lists(st.integers(1, 19), max_size=4), min_size=1, max_size=9),
    momentum=st.sampled_from([0.0, 0.9]),
    radius=st.sampled_from([None, 0.5]),
    name=st.sampled_from(["fedavg", "fedprox", "scaffold", "moon"]),
)
@settings(max_examples=60, deadline=None)
def test_any_shape_agrees_with_the_reference(
    inputs: int,
    classes: int,
    sizes: list[list[int]],
    momentum: float,
    radius: float | None,
    name: str,
) -> None:
    model, data = softmax((inputs,), classes), examples((inputs,), classes)
    recipe, algorithm = Recipe(momentum, radius), ALGORITHMS[name]()
    at = lane(model, algorithm)
    who = cohort(sizes)._replace(samples=tuple(1 + sum(own) for own in sizes))
    engine = Vectorised(model, data, recipe, workers=1)
    try:
        (fast,) = engine([at], who)
        again, second = lane(model, algorithm, clients=fast[1]), cohort(sizes, seed=1)
        second = second._replace(samples=who.samples)
        (later,) = engine([again], second)
    finally:
        engine.close()
    slow = Sequential(model, data, recipe)
    assert_agree(fast, slow([at], who)[0], at, within=3e-5)
    assert_agree(later, slow([again], second)[0], again, within=3e-5)


def trained(lanes: list[Lane], who: Cohort, workers: int = 1) -> list[Trained]:
    engine = Vectorised(MODEL, examples(), RECIPE, workers=workers)
    try:
        return engine(lanes, who)
    finally:
        engine.close()


@built
def test_neither_workers_nor_company_change_a_bit() -> None:
    who = cohort(MANY)
    lanes = [lane(MODEL, algorithm) for algorithm in algorithms().values()]
    together = trained(lanes, who, workers=3)
    for at, ours in zip(lanes, together, strict=True):
        assert same_bits(trained([at], who)[0], ours), at.algorithm.name


@built
@pytest.mark.parametrize("room", [0, fused.CALL_BYTES])
def test_how_many_leaves_a_call_trains_changes_no_bit(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "CALL_BYTES", room)
    who = cohort([(9, 8), (20,)] * 35)  # 17 leaves of four, and one of two
    lanes = [lane(MODEL, algorithm) for algorithm in algorithms().values()]
    asked: list[int] = []
    train = native.Kernel.train

    def counted(self: native.Kernel, *args: Any) -> list[Tensor]:
        asked.append(len(args[2]))
        return train(self, *args)

    monkeypatch.setattr(native.Kernel, "train", counted)
    ours = trained(lanes, who, workers=1)
    assert asked == ([16] * 4 + [6] if room else [4] * 17 + [2])
    monkeypatch.setattr(fused, "CALLS", 18)  # as many calls as leaves
    for one, other in zip(ours, trained(lanes, who, workers=1), strict=True):
        assert same_bits(one, other)


@built
def test_lanes_that_the_kernel_cannot_take_run_in_torch_beside_the_others() -> None:
    def direction(g: Gradient, theta: Theta, shared: Broadcast, client: State) -> Gradient:
        return g.sign()

    own = Algorithm("sign", direction=direction)
    first_option = ALGORITHMS["scaffold"](option=1)
    lanes = [lane(MODEL, a) for a in (own, Algorithm("fedavg"), first_option, Algorithm("b"))]
    refusals = ["direction is not Affine", "", "start_gradient is asked for", ""]
    assert [refusal(at) for at in lanes] == refusals
    who = cohort(MANY)
    for at, ours, wanted in zip(
        lanes, trained(lanes, who, 2), reference(MODEL, lanes, who), strict=True
    ):
        if at.algorithm is not own:  # a sign is no continuous function of rounding
            assert_agree(ours, wanted, at)
        assert same_bits(ours, trained([at], who)[0])


class Steeper(Affine):
    """Is made of a record that the kernel knows, and computes something else."""

    def __call__(
        self, gradient: Gradient, theta: Theta, shared: Broadcast, client: State
    ) -> Gradient:
        return 2 * gradient


class Harder(Contrast):
    """Likewise."""

    def __call__(
        self, output: Output, labels: Tensor, anchors: dict[str, Output], client: State
    ) -> Tensor:
        return 2 * super().__call__(output, labels, anchors, client)


class Stricter(Distillation):
    """Likewise."""

    def __call__(
        self, output: Output, labels: Tensor, anchors: dict[str, Output], client: State
    ) -> Tensor:
        return 2 * super().__call__(output, labels, anchors, client)


def of_its_own(shared: Broadcast, client: State) -> dict[str, ModelState]:
    """Return a teacher for each device: what it had learnt before."""
    return {"teacher": ModelState(client["theta"], shared.buffers)}


def older(shared: Broadcast, client: State) -> dict[str, ModelState]:
    """Return another global model than the one that devices start from."""
    before = ModelState(client["theta"], shared.buffers)
    return {"global": ModelState(0.9 * shared.theta, shared.buffers), "previous": before}


MOON = ALGORITHMS["moon"]()
OTHERS = {
    "steeper": Algorithm("steeper", direction=Steeper()),
    "harder": MOON._replace(objective=Harder(1.0, 1.0)),
    "stricter": MOON._replace(
        objective=Stricter(cross_entropy, 1.0, 1.0, "teacher", ()), anchors=of_its_own
    ),
    "personal": MOON._replace(
        objective=Distillation(cross_entropy, 1.0, 1.0, "teacher", ()), anchors=of_its_own
    ),
    "older": MOON._replace(anchors=older),
}
"""Algorithms made of records that the kernel knows, which mean something else by them."""


@built
@pytest.mark.parametrize("name", OTHERS)
def test_records_that_mean_something_else_are_left_to_torch(
    name: str, engines: tuple[Vectorised, Sequential]
) -> None:
    assert refusal(lane(MODEL, OTHERS[name]))
    assert_rounds_agree(OTHERS[name], engines)


@built
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_a_shift_of_any_form_is_added_as_torch_adds_it(shift: Tensor) -> None:
    at = lane(MODEL, Algorithm("shifted", direction=Affine(shift=lambda shared, client: shift)))
    assert refusal(at) == ""
    assert_agree(trained([at], cohort(MANY))[0], reference(MODEL, [at], cohort(MANY))[0], at)


@built
@pytest.mark.parametrize("kind", ["length", "type"])
@pytest.mark.parametrize("name", ["previous", "teacher"])
def test_a_frozen_model_of_another_kind_is_refused(name: str, kind: str) -> None:
    theta = MODEL.initial(torch.Generator().manual_seed(9)).theta
    odd = ModelState(theta[:4] if kind == "length" else theta.double(), torch.zeros(0))
    algorithm = distilled(Algorithm("a"), odd, (0,))
    if name == "previous":

        def anchors(shared: Broadcast, client: State) -> dict[str, ModelState]:
            return {**MOON.anchors(shared, client), "previous": odd}

        algorithm = MOON._replace(anchors=anchors)
    with pytest.raises(HookError, match="session 3, round 2, device 10, step 1"):
        trained([lane(MODEL, algorithm)], cohort(MANY))


@built
def test_a_model_of_another_length_is_left_to_torch_to_refuse() -> None:
    at = lane(MODEL, Algorithm("fedavg"))
    short = at._replace(shared=at.shared._replace(theta=at.shared.theta[:-3]))
    assert refusal(short) == "the model has 647 parameters instead of 650"
    with pytest.raises(HookError, match="session 3, round 2, device 10, step 1"):
        trained([short], cohort(MANY))


@built
def test_what_is_not_finite_stays_so(engines: tuple[Vectorised, Sequential]) -> None:
    at = lane(MODEL, Algorithm("fedavg"), lr=1e38)
    ((total, _),) = engines[0]([at], cohort([(5, 5, 5), (3, 3)]))
    assert not bool(torch.isfinite(total.delta).all())


@built
def test_probabilities_survive_large_scores() -> None:
    data = replace(examples(), x=examples().x * 300)
    at, who = lane(MODEL, Algorithm("fedavg")), cohort([(20, 20)])
    engine = Vectorised(MODEL, data, RECIPE, workers=1)
    (ours,) = engine([at], who)
    engine.close()
    assert_agree(ours, reference(MODEL, [at], who, data)[0], at, within=1e-4)


@pytest.mark.parametrize(
    "data",
    [
        Examples(examples().x.double(), examples().y),
        Examples(examples().x.transpose(2, 3), examples().y),
        Examples(examples().x, examples().y + 1),
        Examples(examples().x, examples().y.int()),
        Examples(examples().x, torch.ones(len(examples()), CLASSES, dtype=torch.int64)),
        Examples(examples((1, 7, 9)).x, examples().y),
    ],
    ids=["float64", "strided", "unknown_label", "other_labels", "several_labels", "smaller"],
)
def test_data_that_the_kernel_cannot_read_go_through_torch(data: Examples) -> None:
    assert why_no_kernel(MODEL, data)


def test_without_the_kernel_everything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    assert why_no_kernel(MODEL, examples()) == "the kernel was not built for this machine"
    at, who = lane(MODEL, Algorithm("fedavg")), cohort(MANY)
    assert_agree(trained([at], who)[0], reference(MODEL, [at], who)[0], at)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_the_source_compiles_without_a_warning(tmp_path: Path) -> None:
    strict = [
        "-Wall",
        "-Wextra",
        "-Wshadow",
        "-Wno-psabi",
        "-Werror",
        "-std=gnu11",
        "-O2",
        "-fPIC",
        "-shared",
    ]
    target = tmp_path / "kernel.so"
    command = ["cc", *strict, "-o", str(target), str(SOURCE), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@built
def test_rows_beyond_the_data_are_never_asked_for() -> None:
    """The kernel trusts its rows, so they must come from the cohort alone: none is padding."""
    who = cohort([(3,), (9, 1)])
    untouched = replace(examples(), x=examples().x.clone())
    used = np.unique(np.concatenate([rows for own in who.batches for rows in own]))
    unused = np.setdiff1d(np.arange(len(untouched)), used)
    untouched.x[unused] = float("nan")
    at = lane(MODEL, Algorithm("fedavg"))
    engine = Vectorised(MODEL, untouched, RECIPE, workers=1)
    ((total, _),) = engine([at], who)
    engine.close()
    assert bool(torch.isfinite(total.delta).all())
