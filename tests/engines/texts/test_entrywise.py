"""An engine finds out by itself which hooks treat every entry of a vector by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Upload, weighted_upload
from ebbflow.core.local import Lane, Recipe
from ebbflow.core.types import State
from ebbflow.engines.texts.entrywise import Entrywise, NotElementwiseError, check_elementwise
from tests.engines.rounds import EVERYBODY
from tests.engines.text_rounds import start

Function = Callable[[Any, Any], Any]
HALF = torch.tensor(0.5, dtype=torch.float64)
WEIGHTS = torch.linspace(0, 1, 12, dtype=torch.float64)

ENTRYWISE: dict[str, Function] = {
    "sum": lambda a, b: 2 * a - b / 3 + 1,
    "from a number": lambda a, b: 1 - a + (1 / (2 + b.abs())),
    "single tensors": lambda a, b: HALF * a + b * torch.tensor([0.5], dtype=torch.float64),
    "sign": lambda a, b: torch.sign(a) + b.sign(),
    "clip": lambda a, b: a.clamp(-0.1, 0.1) + torch.clip(b, max=HALF),
    "clip by a vector": lambda a, b: torch.minimum(a.clamp(min=b), b + 1),
    "where": lambda a, b: torch.where(a > b, a, torch.zeros_like(b)),
    "mask": lambda a, b: a * (a.abs() > 0.1) * ~(b <= 0),
    "powers": lambda a, b: a**2 + 2**b + torch.sqrt(b.abs()) * torch.tanh(a),
    "in place": lambda a, b: a.clone().add_(b, alpha=2).mul_(3).clamp_(min=0),
    "functions": lambda a, b: torch.lerp(a, b, 0.3) + torch.addcmul(a, a, b, value=0.1),
    "from nn": lambda a, b: functional.relu(a) + functional.softplus(b),
    "types": lambda a, b: (a.float() + b.to(torch.float32)).double(),
    "new": lambda a, b: torch.full_like(a, 0.5) + a.new_zeros(()) + b.new_tensor(2.0),
    "nothing": lambda a, b: a,
}
MIXING: dict[str, Function] = {
    "norm": lambda a, b: a / (1 + a.norm()),
    "linalg norm": lambda a, b: a / (1 + torch.linalg.vector_norm(a)),
    "max": lambda a, b: a / a.abs().max(),
    "largest": lambda a, b: a * (a == torch.amax(a)),
    "mean": lambda a, b: a - a.mean(),
    "sum of entries": lambda a, b: a - torch.sum(a),
    "product of vectors": lambda a, b: a * (a @ b),
    "dot": lambda a, b: a * torch.dot(a, b),
    "sort": lambda a, b: a.sort().values,
    "topk": lambda a, b: torch.topk(a, 3).values,
    "cumulated": lambda a, b: a.cumsum(0),
    "softmax": lambda a, b: functional.softmax(a, 0),
    "normalised": lambda a, b: functional.normalize(a, dim=0),
    "turned round": lambda a, b: a.flip(0),
    "moved on": lambda a, b: torch.roll(a, 1),
    "branch": lambda a, b: a if a.sum() > 0 else 2 * a,
    "branch on an entry": lambda a, b: a if a[0] > 0 else 2 * a,
    "branch on a vector": lambda a, b: a if a > 0 else 2 * a,
    "any": lambda a, b: a if (a > 0).any() else 2 * a,
    "length": lambda a, b: a / len(a),
    "shape": lambda a, b: a / a.shape[0],
    "numel": lambda a, b: a / a.numel(),
    "range": lambda a, b: a * torch.arange(a.numel()),
    "slice": lambda a, b: a[:3],
    "set": lambda a, b: a.__setitem__(0, 1.0),
    "entries": lambda a, b: torch.stack(list(a)),
    "read": lambda a, b: a * float(a),
    "item": lambda a, b: a * a.item(),
    "numpy": lambda a, b: np.sign(a),
    "another vector": lambda a, b: a * WEIGHTS,
    "drawn": lambda a, b: a + torch.randn_like(a),
    "drawn in place": lambda a, b: a.clone().normal_(),
    "places": lambda a, b: torch.where(a > 0)[0],
    "given room": lambda a, b: torch.add(a, b, out=torch.empty(12)),
    "quantile": lambda a, b: a.clamp(max=torch.quantile(a, 0.9)),
    "isinstance": lambda a, b: a if isinstance(a, Tensor) else a.unknown,
}


def stand_ins() -> tuple[Entrywise, Entrywise]:
    return tuple(Entrywise(torch.zeros((), dtype=torch.float64)) for _ in range(2))  # type: ignore[return-value]  # two


def vectors() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    a, b = torch.randn(2, 12, generator=draw, dtype=torch.float64)
    return a, b


@pytest.mark.parametrize("name", ENTRYWISE)
def test_what_is_allowed_treats_every_entry_by_itself(name: str) -> None:
    """And the stand-in has the type of the real result."""
    function, (a, b) = ENTRYWISE[name], vectors()
    traced = function(*stand_ins())
    assert isinstance(traced, Entrywise)
    whole = function(a.clone(), b.clone())
    assert traced.dtype == whole.dtype
    for some in (torch.tensor([0, 3, 4, 9]), torch.tensor([11]), torch.arange(5, 12)):
        assert torch.equal(function(a[some], b[some]), whole[some])


@pytest.mark.parametrize("name", MIXING)
def test_what_may_mix_entries_is_refused(name: str) -> None:
    with pytest.raises((NotElementwiseError, TypeError)):
        MIXING[name](*stand_ins())


def lane_of(algorithm: Algorithm) -> Lane:
    theta, buffers = start()
    sent, extras = algorithm.broadcast(theta, algorithm.init_server(theta, EVERYBODY))
    return Lane(algorithm, Broadcast(sent, buffers, extras), 0.3, {})


def check(algorithm: Algorithm, steps: int = 3, samples: int = 7) -> None:
    check_elementwise(lane_of(algorithm), Recipe(0.9), steps, samples)


@pytest.mark.parametrize("name", ENTRYWISE)
def test_directions_that_treat_every_entry_by_itself_are_recognised(name: str) -> None:
    check(Algorithm(name, direction=lambda g, theta, *_: ENTRYWISE[name](g, theta)))


@pytest.mark.parametrize("name", MIXING)
def test_directions_that_do_not_are_named(name: str) -> None:
    mixing = Algorithm(name, direction=lambda g, theta, *_: MIXING[name](g, theta))
    with pytest.raises(NotElementwiseError, match=f"^direction of {name} does not treat every"):
        check(mixing)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_of_ours_without_device_states_is_recognised(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    if not algorithm.init_client(lane_of(algorithm).shared):
        check(algorithm)


def uploading(
    function: Callable[[Upload, LocalRun], Upload], after: State | None = None
) -> Algorithm:
    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        return function(weighted_upload(shared, client, run)[0], run), after or {}

    return Algorithm("sending", upload=upload)


def test_uploads_are_checked_too() -> None:
    check(uploading(lambda sent, run: sent._replace(delta=torch.sign(sent.delta))))
    check(uploading(lambda sent, run: sent._replace(extras={"n": run.samples, "v": run.theta})))
    with pytest.raises(NotElementwiseError, match=r"^upload of sending does not treat every entry"):
        check(uploading(lambda sent, run: sent._replace(delta=sent.delta / sent.delta.norm())))
    with pytest.raises(NotElementwiseError, match=r"upload sends a tensor \[3\] \(n\)"):
        check(uploading(lambda sent, run: sent._replace(extras={"n": torch.ones(3)})))
    with pytest.raises(NotElementwiseError, match="upload sends no vector"):
        check(uploading(lambda sent, run: sent._replace(delta=torch.zeros(448))))
    with pytest.raises(NotElementwiseError, match="devices remember something"):
        check(uploading(lambda sent, run: sent, {"old": torch.zeros(1)}))
    with pytest.raises(NotElementwiseError, match="direction returns no vector"):
        check(Algorithm("none", direction=lambda g, *_: cast(Tensor, 0.0)))


def test_a_check_holds_for_its_number_of_steps_and_samples() -> None:
    def upload(shared: Broadcast, client: State, run: LocalRun) -> tuple[Upload, State]:
        sent, _ = weighted_upload(shared, client, run)
        if run.steps > 5 or run.samples > 100:
            sent = sent._replace(delta=sent.delta / sent.delta.norm())
        return sent, client

    algorithm = Algorithm("sometimes", upload=upload)
    check(algorithm)
    for steps, samples in ((6, 7), (3, 101)):
        with pytest.raises(NotElementwiseError, match="norm"):
            check(algorithm, steps, samples)


def test_a_bug_of_a_hook_is_no_reason() -> None:
    with pytest.raises(KeyError):
        check(Algorithm("bug", direction=lambda g, theta, shared, client: client["none"]))
