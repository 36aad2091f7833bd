"""Parts of the engine of many machines: cuts, arrays that travel, facts that must agree."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.cluster import agreement, connection, wire
from ebbflow.cluster.chunks import chunk_of, cut, leaves_in_a_chunk
from ebbflow.cluster.dispatch import FetchError
from ebbflow.cluster.worker import _sendable
from ebbflow.core.algorithm import Upload
from ebbflow.core.counters import CountedBatches
from ebbflow.core.errors import EbbflowError, TrainingError
from ebbflow.core.types import Examples
from ebbflow.simulation.building import build_world
from ebbflow.simulation.faults import with_wrong_labels
from ebbflow.simulation.server_data import server_cohort
from ebbflow.simulation.world import draw_round
from tests.cluster.test_engine import SMALL, digits
from tests.configs import with_keys

counts = st.integers(1, 400)


@given(devices=counts, leaf=st.sampled_from([4, 16]), size=st.integers(1, 9))
def test_chunks_are_whole_leaves_in_order(devices: int, leaf: int, size: int) -> None:
    chunks = list(cut(devices, leaf, size))
    assert [place for places in chunks for place in places] == list(range(devices))
    assert all(places.start % leaf == 0 for places in chunks)


@given(counts, st.sampled_from([4, 16]), st.integers(1, 300), st.integers(1, 64), counts)
def test_a_chunk_keeps_workers_busy_and_none_idle(
    leaves: int, leaf: int, workers: int, threads: int, megabytes: int
) -> None:
    size = leaves_in_a_chunk(leaves, leaf, workers, threads, megabytes * 2**20)
    assert size >= 1
    # No worker is without a chunk because others have two leaves' worth that would do with one.
    assert -(-leaves // size) >= min(workers, leaves) or size == -(-leaves // workers)


@given(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16]))
def test_tensors_of_any_type_travel(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).view(2, 3).to(dtype)
    record = {"a": [Upload(tensor, tensor[0], tensor[0, 0], tensor[0, 0], {"x": tensor.T})]}
    back = wire.unpacked(pickle.loads(pickle.dumps(wire.packed(record))))["a"][0]
    assert back.delta.dtype == dtype
    assert torch.equal(back.delta, tensor)
    assert torch.equal(back.extras["x"], tensor.T)


def test_records_of_other_kinds_travel_as_they_are() -> None:
    examples = Examples(torch.zeros(2, 1), torch.tensor([0, 1]))
    packed = wire.packed(examples)
    assert type(packed.x).__name__ == "Array"
    assert torch.equal(wire.unpacked(packed).y, examples.y)


def test_what_arrives_may_be_written_to_unless_it_is_shared() -> None:
    arrived = wire.packed(torch.zeros(3))
    arrived.values.flags.writeable = False  # type: ignore[attr-defined]
    wire.unpacked(arrived).add_(1)
    assert wire.unpacked(arrived, copied=False).data_ptr() == arrived.values.ctypes.data  # type: ignore[attr-defined]


# --- mini-batches are drawn where they are used --------------------------------------------------


def test_a_chunk_of_drawn_batches_carries_no_rows() -> None:
    config = with_keys(SMALL)
    world = build_world(config, digits(config), 3)
    cohort = draw_round(world, world.sessions[0], 1)
    counted = CountedBatches(cohort.batches)
    chunk = chunk_of(cohort._replace(batches=counted), range(2, 5))
    assert chunk.rows is None
    assert chunk.devices == cohort.devices[2:5]
    assert counted.steps == 0  # nothing was drawn here
    assert cohort.only([1, 2]).draws == cohort.draws


def test_a_cohort_says_whether_labels_are_wrong_and_the_server_draws_for_itself() -> None:
    config = with_keys(SMALL, {"faults.labels.devices": 0.5, "aggregation.rule": "trust"})
    world = build_world(config, digits(config), 3)
    cohort = draw_round(world, world.sessions[0], 1)
    wrong = with_wrong_labels(world, cohort)
    assert wrong.draws is not None
    assert wrong.draws.wrong_labels
    own = server_cohort(world, wrong)
    assert own.draws is None
    assert own.counted is None
    rows = chunk_of(own, range(1)).rows
    assert rows is not None
    assert all(np.array_equal(a, b) for a, b in zip(rows.batches[0], own.batches[0], strict=True))


# --- agreement -----------------------------------------------------------------------------------


COMPARED = ["torch", "numpy", "ebbflow", "instructions", "maker", "kernel", "data"]


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask MKL for what ebbflow asks it for, whatever the tests are run with."""
    monkeypatch.setenv("MKL_CBWR", "AVX2,STRICT")


@pytest.mark.usefixtures("usual")
def test_a_node_that_computes_the_same_is_welcome() -> None:
    ours = agreement.facts("abc", device="cpu", kernel=True)
    assert set(COMPARED) == set(ours)
    assert agreement.disagreement("there", dict(ours), ours) == ""


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("name", COMPARED)
def test_a_node_that_differs_is_refused_by_name(name: str) -> None:
    ours = agreement.facts("abc", device="cpu", kernel=True)
    sentence = agreement.disagreement("10.0.0.7 (ab12cd)", {**ours, name: "other"}, ours)
    assert sentence.startswith("node 10.0.0.7 (ab12cd) has ")
    assert " other, and here it is " in sentence
    assert ours[name] in sentence
    assert sentence.partition(": ")[2]  # the remedy


@pytest.mark.parametrize("asked", ["AVX2,STRICT", "AVX512,STRICT", "compatible", ""])
def test_processors_of_two_makers_do_not_compute_the_same(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_CBWR", asked)
    monkeypatch.setattr("ebbflow.core.processor.maker", lambda: "AuthenticAMD")
    theirs = agreement.facts("abc", device="cpu", kernel=False)
    monkeypatch.setattr("ebbflow.core.processor.maker", lambda: "GenuineIntel")
    ours = agreement.facts("abc", device="cpu", kernel=False)
    assert agreement.disagreement("10.0.0.7", theirs, ours) == (
        "node 10.0.0.7 has a processor made by AuthenticAMD, and here it is GenuineIntel: set "
        "MKL_CBWR=COMPATIBLE for the run, which all workers follow, or take the node out of the "
        "cluster"
    )


@pytest.mark.parametrize("asked", ["COMPATIBLE", "COMPATIBLE,STRICT"])
def test_makers_do_not_matter_where_mkl_was_asked_to_be_compatible(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MKL_CBWR", asked)
    assert "maker" not in agreement.facts("abc", device="cpu", kernel=False)


def test_on_a_gpu_it_is_the_gpu_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: f"GPU of {device}")
    ours = agreement.facts("abc", device="cuda:1", kernel=True)
    assert ours["gpu"] == "GPU of cuda:1"
    assert not {"instructions", "maker", "kernel"} & set(ours)
    theirs = agreement.facts("abc", device="cuda", kernel=True)
    assert agreement.disagreement("10.0.0.7", theirs, ours).startswith(
        "node 10.0.0.7 has the GPU GPU of cuda, and here it is GPU of cuda:1: use nodes"
    )


def test_a_checkout_with_other_sources_of_the_kernels_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "native").mkdir()
    kernel, digests = tmp_path / "native" / "dense.c", set()
    monkeypatch.setattr("ebbflow.__file__", str(tmp_path / "__init__.py"))
    for source in ("int one;", "int two;"):
        kernel.write_text(source)
        digests.add(agreement._sources.__wrapped__())
    assert len(digests) == 2


# --- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port"])
def test_no_address_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(EbbflowError, match=r"engine\.address: .*HOST:PORT"):
        connection._on_loopback(address)


def test_an_address_where_nobody_listens_is_refused_at_once() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EbbflowError, match=rf"no Ray cluster at 127\.0\.0\.1:{port}: start one"):
        connection._on_loopback(f"127.0.0.1:{port}")


def test_a_cluster_of_its_own_is_started_whatever_others_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert connection.known_address("local") == ""
    assert connection.known_address("") == "10.0.0.7:6379"
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert connection.known_address(None) == ""


def test_without_ray_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(EbbflowError, match=r'pip install "ebbflow\[ray\]"'):
        connection.imported()
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_cluster_that_is_gone_is_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "ray_current_cluster"
    monkeypatch.setattr(connection, "_CURRENT", noted)
    assert connection._started_by_hand() == ""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        noted.write_text(address)
        assert connection._started_by_hand() == address
    assert connection._started_by_hand() == ""


@contextmanager
def handled(number: int) -> Iterator[None]:
    before = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_signals_stay_the_programs_own() -> None:
    with handled(signal.SIGTERM):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with connection._signals_kept():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


# --- errors --------------------------------------------------------------------------------------


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_errors_are_sent_as_they_are_if_they_can_be() -> None:
    sent = _sendable(TrainingError("session 1"))
    assert type(sent) is TrainingError
    assert str(sent) == "session 1"
    odd = _sendable(OddError(1, 2))
    assert type(odd) is RuntimeError
    assert str(odd) == "OddError: 1 and 2"
    assert isinstance(_sendable(MemoryError("none left")), MemoryError)
    assert isinstance(_sendable(FetchError("the lanes did not arrive")), FetchError)
