"""What every FL algorithm owes the engines, and FedAvg by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.algorithm import Algorithm, Broadcast, LocalRun, Population, Upload, combine
from ebbflow.core.types import State
from tests.algorithms.toys import TOYS

EVERYBODY = Population(devices=2, samples=40)
FEDAVG = ALGORITHMS["fedavg"]()
every_algorithm = pytest.mark.parametrize(
    "algorithm", [build() for build in ALGORITHMS.values()] + TOYS, ids=lambda a: a.name
)


def sent(algorithm: Algorithm, theta: Tensor, local: Tensor, samples: float) -> Upload:
    shared_theta, extras = algorithm.broadcast(theta, algorithm.init_server(theta, EVERYBODY))
    shared = Broadcast(shared_theta, torch.zeros(2), extras)
    run = LocalRun(local, torch.ones(2), 1, 1.0, 0.1, torch.tensor(samples))
    return algorithm.upload(shared, algorithm.init_client(shared), run)[0]


def step(algorithm: Algorithm, theta: Tensor, *uploads: Upload) -> Tensor:
    total = uploads[0]
    for upload in uploads[1:]:
        total = combine(torch.add, total, upload)
    return algorithm.server_step(theta, algorithm.init_server(theta, EVERYBODY), total)[0]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_called_what_the_registry_calls_it(name: str) -> None:
    assert ALGORITHMS[name]().name == name


def test_fedavg_takes_the_mean_weighted_by_samples() -> None:
    theta = torch.zeros(2)
    one = sent(FEDAVG, theta, torch.tensor([4.0, 0.0]), 10)
    other = sent(FEDAVG, theta, torch.tensor([0.0, 4.0]), 30)
    assert step(FEDAVG, theta, one, other).tolist() == [1.0, 3.0]


def test_an_upload_of_fedavg_is_weighted_by_samples() -> None:
    upload = sent(FEDAVG, torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), 3)
    assert upload.delta.tolist() == [3.0, 9.0]
    assert upload.buffers.tolist() == [3.0, 3.0]
    assert (float(upload.samples), float(upload.devices)) == (3.0, 1.0)


def test_fedavg_minimises_two_quadratics_whose_optima_it_averages() -> None:
    """Devices with loss 1/2 ||w - c_k||^2 that train to the end: w becomes the mean of the c_k."""
    theta, optima = torch.tensor([9.0]), [torch.tensor([1.0]), torch.tensor([5.0])]
    after = step(FEDAVG, theta, *(sent(FEDAVG, theta, optimum, 7) for optimum in optima))
    assert after.tolist() == [3.0]


@every_algorithm
def test_devices_that_did_not_move_leave_the_model_where_it_is(algorithm: Algorithm) -> None:
    theta = torch.tensor([1.0, -2.0, 3.0])
    still = sent(
        algorithm, theta, algorithm.broadcast(theta, algorithm.init_server(theta, EVERYBODY))[0], 5
    )
    torch.testing.assert_close(step(algorithm, theta, still, still), theta)


@every_algorithm
@settings(deadline=None)
@given(order=st.permutations(range(4)))
def test_the_order_of_devices_is_no_more_than_rounding(
    algorithm: Algorithm, order: list[int]
) -> None:
    theta = torch.tensor([1.0, -2.0, 3.0])
    uploads = [sent(algorithm, theta, theta + k * torch.ones(3), 1.0 + k) for k in range(4)]
    expected = step(algorithm, theta, *uploads)
    torch.testing.assert_close(step(algorithm, theta, *(uploads[k] for k in order)), expected)


@every_algorithm
def test_hooks_change_none_of_their_arguments(algorithm: Algorithm) -> None:
    theta, local = torch.tensor([1.0, -2.0]), torch.tensor([2.0, 2.0])
    step(algorithm, theta, sent(algorithm, theta, local, 3))
    assert theta.tolist() == [1.0, -2.0]
    assert local.tolist() == [2.0, 2.0]


SOME = torch.tensor([0, 3, 4, 9])


def assert_elementwise(algorithm: Algorithm) -> None:
    """Run the hooks on whole vectors and on four entries of them."""
    draw, whole = torch.Generator().manual_seed(5), (12,)

    def vector() -> Tensor:
        return torch.randn(whole, generator=draw, dtype=torch.float64)

    def filled(state: State) -> State:
        """Put numbers that no two entries share where a new state has zeros."""
        return {name: vector() if value.shape == whole else value for name, value in state.items()}

    def some(state: State) -> State:
        return {name: v[SOME] if v.shape == whole else v for name, v in state.items()}

    def same(found: State, expected: State) -> None:
        torch.testing.assert_close(found, some(expected), rtol=1e-14, atol=1e-14)

    theta, gradient, local, at_start = (vector() for _ in range(4))
    theta, extras = algorithm.broadcast(theta, filled(algorithm.init_server(theta, EVERYBODY)))
    shared = Broadcast(theta, torch.ones(2), extras)
    part = Broadcast(theta[SOME], torch.ones(2), some(extras))
    same(algorithm.init_client(part), algorithm.init_client(shared))
    client = filled(algorithm.init_client(shared))
    same(
        {"": algorithm.direction(gradient[SOME], local[SOME], part, some(client))},
        {"": algorithm.direction(gradient, local, shared, client)},
    )
    run = LocalRun(local, torch.ones(2), 3, 5.61, 0.1, torch.tensor(7.0), at_start)
    if not algorithm.start_gradient:
        run = run._replace(start_gradient=None)
    part_of = run._replace(theta=local[SOME])
    if run.start_gradient is not None:
        part_of = part_of._replace(start_gradient=at_start[SOME])
    sent, after = algorithm.upload(shared, client, run)
    sent_part, after_part = algorithm.upload(part, some(client), part_of)
    same(after_part, after)
    same(
        {**sent_part._asdict(), **sent_part.extras, "extras": torch.zeros(0)},
        {**sent._asdict(), **sent.extras, "extras": torch.zeros(0)},
    )
    for value in sent.extras.values():
        assert value.shape in (whole, ())


@pytest.mark.parametrize(
    "algorithm",
    [*(build() for build in ALGORITHMS.values()), ALGORITHMS["scaffold"](option=1)],
    ids=lambda a: a.name,
)
def test_ours_are_elementwise(algorithm: Algorithm) -> None:
    assert_elementwise(algorithm)


def test_a_norm_is_not_elementwise() -> None:
    with pytest.raises(AssertionError):
        assert_elementwise(Algorithm("norm", direction=lambda g, *_: g / g.norm()))


def test_combine_adds_every_field_and_every_extra() -> None:
    one, two, three, four, five = torch.arange(1.0, 6.0)
    upload = Upload(one, two, three, four, {"c": five})
    total = combine(torch.add, upload, upload)
    assert [float(field) for field in total[:4]] == [2.0, 4.0, 6.0, 8.0]
    assert float(total.extras["c"]) == 10.0
