"""A failing hook is shown with its place and traceback, by every path; so is a lack of memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never

import numpy as np
import pytest
import torch
import typer
from torch import Tensor

from ebbflow import experiment
from ebbflow.cli.running import run_app
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.errors import EbbflowError, HookError, TrainingError
from ebbflow.core.local import Cohort, Lane, Recipe
from ebbflow.core.types import Model, Output, State
from ebbflow.engines import RowSparse, SampleSpace, native
from ebbflow.engines.failures import memory_lack_named
from ebbflow.engines.texts import combination
from tests.configs import digits, with_settings
from tests.engines import text_rounds
from tests.engines.paths import PATHS, EnginePath, every_path, train
from tests.engines.rounds import RECIPE


def lane_of(path: EnginePath, algorithm: Algorithm) -> Lane:
    theta, extras = algorithm.broadcast(path.start.theta, {})
    return Lane(algorithm, Broadcast(theta, path.start.buffers, extras), 0.1, {})


def misspelt_direction(g: Tensor, theta: Tensor, shared: Broadcast, client: State) -> Tensor:
    return g + shared.extras["nonesuch"]


def misspelt_upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    return weighted_upload(shared, client, run)[0], {"c": client["nonesuch"]}


def misspelt_objective(
    output: Output, labels: Tensor, anchors: dict[str, Output], client: State
) -> Tensor:
    return output.logits.sum(-1) * client["nonesuch"]


def misspelt_state(shared: Broadcast) -> State:
    return {"c": shared.extras["nonesuch"]}


BUGS = {
    "direction": Algorithm("buggy", direction=misspelt_direction),
    "upload": Algorithm("buggy", upload=misspelt_upload),
    "objective": Algorithm("buggy", objective=misspelt_objective),
    "init_client": Algorithm("buggy", init_client=misspelt_state),
}


@every_path
@pytest.mark.parametrize("hook", BUGS)
def test_a_bug_in_a_hook_keeps_its_traceback_and_names_the_place(
    path: EnginePath, hook: str
) -> None:
    with pytest.raises(
        HookError, match=r"^session \d, round 1, .*: KeyError: 'nonesuch'$"
    ) as caught:
        train(path, [lane_of(path, BUGS[hook])], path.cohorts()[0])
    assert not isinstance(caught.value, EbbflowError)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "misspelt_" in "".join(traceback.format_exception(caught.value))
    if not path.model.hints.bag_of_words:  # there, hooks may run before there is a device
        assert "device" in str(caught.value)


@every_path
def test_a_bug_that_shows_with_some_devices_names_the_device(path: EnginePath) -> None:
    """Hooks that are run beforehand, for no device in particular, see nothing of it."""
    who = path.cohorts()[0]
    heavy = max(who.samples)
    device = who.devices[who.samples.index(heavy)]

    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, _ = weighted_upload(shared, client, run)
        if not torch._C._functorch.is_batchedtensor(run.samples) and run.samples == heavy:
            raise ZeroDivisionError("too heavy")
        return sent, client

    algorithm = Algorithm("picky", upload=upload)
    engine = path.engine()
    if engine.route(lane_of(path, algorithm), who).path in ("mapped blocks", "fused kernel"):
        return  # vmap shows hooks no values
    with pytest.raises(HookError, match=rf"device {device}, after the last step: ZeroDivision"):
        engine([lane_of(path, algorithm)], who)
    engine.close()


LACKS = {
    "python": MemoryError(),
    "cpu": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 80000000000000 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "gpu": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
}


@every_path
@pytest.mark.parametrize("lack", LACKS)
def test_a_lack_of_memory_is_named_as_such(path: EnginePath, lack: str) -> None:
    def objective(*_: object) -> Never:
        raise LACKS[lack]

    with pytest.raises(
        EbbflowError, match=r"^session \d, round 1.*: out of memory; lower engine\.block.*smaller"
    ):
        train(path, [lane_of(path, Algorithm("large", objective=objective))], path.cohorts()[0])


def test_torch_says_so_in_these_words() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(2**60)


@pytest.mark.parametrize("name", ["sequential", "mapped", "one by one"])
def test_a_lack_of_memory_in_an_evaluation_is_named_too(name: str) -> None:
    path = PATHS[name]

    def forward(*_: object) -> Never:
        raise LACKS["cpu"]

    engine = path.build(replace(path.model, forward=forward), path.data)
    with pytest.raises(EbbflowError, match=r"^evaluation: out of memory"):
        engine.evaluate([path.start], path.data)()
    engine.close()


@pytest.mark.skipif(native.library() is None, reason="the fused kernel was not built here")
def test_a_kernel_without_memory_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    path = PATHS["fused"]

    def refuse(*_: object) -> Never:
        raise MemoryError

    monkeypatch.setattr(native.Kernel, "train", refuse)
    with pytest.raises(EbbflowError, match="session 3, round 1: out of memory"):
        train(path, [path.lane("fedavg")], path.cohorts()[0])


def test_what_only_vmap_cannot_do_is_told_with_a_remedy() -> None:
    def branch(g: Tensor, *_: object) -> Tensor:
        return g if g.sum() > 0 else 2 * g

    path = PATHS["mapped"]
    with pytest.raises(TrainingError, match=r"^session 3, round 1: .*engine\.kind = .sequential"):
        train(path, [lane_of(path, Algorithm("branch", direction=branch))], path.cohorts()[0])


def test_a_bug_of_the_engine_is_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    path = PATHS["mapped"]
    engine = path.engine()
    monkeypatch.setattr(engine, "_windows", None)
    with pytest.raises(TypeError, match="not callable"):
        engine([path.lane("fedavg")], path.cohorts()[0])
    engine.close()


@pytest.mark.parametrize("kind", [SampleSpace, RowSparse])
def test_a_bug_of_the_symbolic_hooks_is_no_slow_run(
    kind: type[RowSparse], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Never:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(combination.Combination, "sub", broken)
    monkeypatch.setattr(combination.Combination, "__sub__", broken)
    engine = kind(text_rounds.MODEL, text_rounds.DATA, RECIPE, 1)
    path = PATHS["sample space"]
    with pytest.raises((HookError, ZeroDivisionError), match="a bug of ours"):
        engine([path.lane("fedavg")], path.cohorts()[0])
    engine.close()


def sign_of_late_devices(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
    sent, _ = weighted_upload(shared, client, run)
    return (sent._replace(delta=sent.delta.norm() * sent.delta) if run.steps > 3 else sent), client


@pytest.mark.parametrize(("kind", "why"), [(SampleSpace, "is not linear"), (RowSparse, "does not")])
def test_a_hook_that_is_simple_for_some_devices_only_is_refused(
    kind: type[RowSparse], why: str
) -> None:
    path = PATHS["sample space"]
    batches = [(np.array([1, 2]),), tuple(np.array([k, k + 1]) for k in range(1, 6))]
    who = Cohort(1, 1, (1, 2), batches, (3, 3), (), [np.arange(9)] * 2)
    engine = kind(path.model, path.data, RECIPE, 1)
    with pytest.raises(EbbflowError, match=rf"device 2: upload of late {why}.*sequential"):
        engine([lane_of(path, Algorithm("late", upload=sign_of_late_devices))], who)
    engine.close()


REASONS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "clip": ("touched rows", lambda g, *_: g.clamp(-1, 1), "direction of own is not linear: clamp"),
    "norm": (
        "whole vectors",
        lambda g, *_: g / g.norm(),
        "is not linear: norm is no linear algebra; direction of own does not treat every entry by "
        "itself: a vector is asked for norm",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_route_says_why_it_is_not_the_fastest(name: str) -> None:
    path, (expected, direction, reason) = PATHS["sample space"], REASONS[name]
    engine = path.engine()
    route = engine.route(lane_of(path, Algorithm("own", direction=direction)), path.cohorts()[0])
    engine.close()
    assert route.path == expected
    assert reason in route.reason


def test_a_radius_is_a_reason() -> None:
    path, ball = PATHS["sample space"], Recipe(0.9, radius=1.0)
    for kind in (SampleSpace, RowSparse):
        engine = kind(path.model, path.data, ball, 1)
        route = engine.route(path.lane("fedavg"), path.cohorts()[0])
        engine.close()
        assert route == ("whole vectors", "local.radius needs the length of the whole vector")


def test_without_shards_moon_says_what_it_lacks() -> None:
    path = PATHS["sample space"]
    engine = path.engine()
    route = engine.route(path.lane("moon"), path.cohorts()[0]._replace(shards=()))
    engine.close()
    assert route.path == "whole vectors"
    assert route.reason.startswith(
        "devices remember a model, and nobody says which texts they have"
    )


def test_the_command_line_does_not_make_a_sentence_of_a_bug() -> None:
    app = typer.Typer()

    @app.command()
    def fail() -> None:
        raise HookError("session 1, round 1, device 3, step 2: KeyError: 'c'") from KeyError("c")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["ebbflow"])
        with pytest.raises(HookError):  # which Python shows with its traceback, and exit code 1
            run_app(app, "ebbflow")


def test_models_of_the_user_are_hooks_in_this_sense() -> None:
    path = PATHS["one by one"]

    def gradient(*_: object) -> Never:
        raise IndexError("layer 7")

    broken: Model = replace(path.model, gradient=gradient)
    engine = path.build(broken, path.data)
    with pytest.raises(HookError, match=r"device 10, step 1: IndexError: layer 7"):
        engine([path.lane("fedavg")], path.cohorts()[0])
    engine.close()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 7 bytes")])
def test_a_lack_of_memory_before_the_first_round_is_told(error: Exception) -> None:
    with (
        pytest.raises(EbbflowError, match="preparing: out of memory"),
        memory_lack_named("preparing"),
    ):
        raise error


def test_another_error_before_the_first_round_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="odd"), memory_lack_named("preparing"):
        raise RuntimeError("odd")


@pytest.mark.parametrize("of", [experiment.run, experiment.prepared])
def test_a_run_that_lacks_memory_while_it_is_prepared_says_so(
    of: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(experiment, "build_world", too_large)
    with pytest.raises(EbbflowError, match=r"preparing the run: out of memory"):
        of(with_settings("sessions=3"), dataset=digits())
