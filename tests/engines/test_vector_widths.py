"""The kernels for 256-bit and for 512-bit vectors give the same bits."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm
from ebbflow.core.evaluate import Score
from ebbflow.core.local import Cohort, Lane, Recipe, Trained
from ebbflow.core.types import Examples, Model, ModelState
from ebbflow.engines import Vectorised, native
from ebbflow.engines.native import dense, loading
from ebbflow.models import from_module, softmax
from ebbflow.starts.continuous import distilled
from tests.engines.rounds import cohort, examples, lane, same_bits

WIDER = torch.backends.cpu.get_cpu_capability() == "AVX512"
NATIVE = Path(native.__file__).parent
wide = pytest.mark.skipif(
    native.library() is None or not WIDER,
    reason="there are no kernels here, or no 512-bit vectors",
)


@contextmanager
def vectors_of(capability: str) -> Iterator[None]:
    """Let torch say what the processor can, and look for the kernels anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
        for module in (native, dense):
            patch.setattr(module, "_loaded", module._loaded.__wrapped__)
        yield


def trained(model: Model, data: Examples, recipe: Recipe, lanes: list[Lane], who: Cohort,
            capability: str) -> list[Trained]:  # fmt: skip
    with vectors_of(capability):
        engine = Vectorised(model, data, recipe, workers=1)
        try:
            return engine(lanes, who)
        finally:
            engine.close()


def scored(model: Model, data: Examples, state: ModelState, capability: str) -> list[Score]:
    with vectors_of(capability):
        engine = Vectorised(model, data, Recipe(), workers=1)
        try:
            return engine.evaluate([state], data)()
        finally:
            engine.close()


def assert_same(
    model: Model, data: Examples, recipe: Recipe, named: list[Algorithm], who: Cohort
) -> None:
    lanes = [lane(model, algorithm) for algorithm in named]
    narrow = trained(model, data, recipe, lanes, who, "AVX2")
    wider = trained(model, data, recipe, lanes, who, "AVX512")
    for at, one, other in zip(lanes, narrow, wider, strict=True):
        assert same_bits(one, other), at.algorithm.name
    again = [
        lane(model, algorithm, clients=after)
        for algorithm, (_, after) in zip(named, narrow, strict=True)
    ]  # with what devices remember, which MOON compares with
    narrow = trained(model, data, recipe, again, who, "AVX2")
    wider = trained(model, data, recipe, again, who, "AVX512")
    assert all(map(same_bits, narrow, wider))


@wide
def test_each_width_has_its_own_function() -> None:
    found = {}
    for capability in ("AVX2", "AVX512"):
        with vectors_of(capability):
            kernel = loading.loaded("ebbflow_softmax")
            assert not isinstance(kernel, str)
            found[capability] = kernel.ebbflow_softmax.__name__
    assert found == {"AVX2": "ebbflow_softmax", "AVX512": "ebbflow_softmax_avx512"}


sizes = st.lists(st.lists(st.integers(1, 19), max_size=4), min_size=1, max_size=5)
recipes = st.builds(Recipe, st.sampled_from([0.0, 0.9]), st.sampled_from([None, 0.5]))
names = st.lists(
    st.sampled_from(["fedavg", "fedprox", "scaffold", "moon", "distilled"]), min_size=1, max_size=3
)


def algorithms(model: Model, chosen: list[str]) -> list[Algorithm]:
    teacher = model.initial(torch.Generator().manual_seed(9))
    return [
        distilled(ALGORITHMS["moon"](), teacher, (0, 1), 0.5, 2.0, "mixed")
        if name == "distilled"
        else ALGORITHMS[name]()
        for name in chosen
    ]


@wide
@given(st.integers(1, 70), st.integers(2, 23), sizes, recipes, names)
@settings(max_examples=40, deadline=None)
def test_softmax_regression(
    inputs: int, classes: int, steps: list[list[int]], recipe: Recipe, chosen: list[str]
) -> None:
    model = softmax((inputs,), classes)
    data = examples((inputs,), classes)
    assert_same(model, data, recipe, algorithms(model, chosen), cohort(steps))


@wide
@given(
    st.integers(1, 70), st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(2, 19),
    sizes, recipes, names,
    st.sampled_from([nn.ReLU, nn.Tanh]), st.sampled_from([0.0, 0.4]), st.booleans(),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_dense_networks(
    inputs: int,
    hidden: list[int],
    classes: int,
    steps: list[list[int]],
    recipe: Recipe,
    chosen: list[str],
    activation: type[nn.Module],
    drop: float,
    norm: bool,
) -> None:
    if norm:  # a single sample has no variance
        steps = [[max(2, samples) for samples in own] for own in steps]

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        before = inputs
        for width in hidden:
            layers += [nn.Linear(before, width), *[nn.BatchNorm1d(width)] * norm, activation()]
            layers += [nn.Dropout(drop)] * bool(drop)
            before = width
        return nn.Sequential(*layers, nn.Linear(before, classes))

    model = from_module(build, "layered")
    data = examples((inputs,), classes)
    assert_same(model, data, recipe, algorithms(model, chosen), cohort(steps))
    state = model.initial(torch.Generator().manual_seed(1))
    narrow, wider = (scored(model, data, state, width) for width in ("AVX2", "AVX512"))
    assert narrow == wider


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="there is no C compiler for 512-bit vectors here",
)
@pytest.mark.parametrize("name", ["softmax.c", "dense.c"])
def test_the_wide_form_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    strict = ["-Wall", "-Wextra", "-Wshadow", "-Wno-psabi", "-Werror", "-std=gnu11", "-O2"]
    instructions = ["-march=x86-64-v3", "-mavx512f", "-mavx512dq"]
    command = ["cc", *strict, *instructions, "-c", str(NATIVE / name), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
