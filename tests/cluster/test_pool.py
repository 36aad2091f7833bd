"""A node without a worker is named; what a worker could not fetch is computed elsewhere."""

from __future__ import annotations

import re
import warnings
from typing import Any, cast

import pytest

from ebbflow.cluster import hosting, pool
from ebbflow.cluster.chunks import Failed, Put
from ebbflow.cluster.dispatch import FetchError, WorkerLostError
from ebbflow.cluster.pool import ATTEMPTS, RayPool
from ebbflow.core.errors import EbbflowError, EbbflowWarning
from tests.cluster.stand_ins import StandInError, StandInRay, StandInTimeoutError

OURS = {"torch": "2.9.1"}
BROKEN = StandInError("The actor died.\nModuleNotFoundError: No module named 'ebbflow.cluster'")


def opened(ray: StandInRay, monkeypatch: pytest.MonkeyPatch) -> RayPool:
    monkeypatch.setattr(pool, "time", ray)
    return RayPool(cast(Any, ray), b"data", OURS, on_gpu=False, threads=None, kernel=True)


def looked(workers: RayPool, ray: StandInRay) -> list[str]:
    """Let the pool look for new workers; return the nodes of those that it has."""
    ray.clock += 2 * pool.LOOK_SECONDS
    return [place.node for place in workers.ready()]


def test_workers_on_all_nodes_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = StandInRay({"a": OURS, "b": OURS})
    workers = opened(ray, monkeypatch)
    assert looked(workers, ray) == ["a", "b"]
    assert ray.clock < pool.OTHERS_SECONDS


def test_a_node_whose_worker_fails_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while other nodes have one: the run would begin without this one, and say nothing."""
    ray = StandInRay({"a": OURS, "b": BROKEN})
    sentence = r"^node at-b \(b\) cannot start a worker \(ModuleNotFoundError: No .*'\): install"
    with pytest.raises(EbbflowError, match=sentence):
        opened(ray, monkeypatch)
    assert ray.started.count("b") == ATTEMPTS
    assert ray.killed.count("b") == ATTEMPTS
    assert "a" in ray.killed


def test_a_node_whose_worker_comes_up_in_the_end_is_welcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = StandInRay({"a": OURS, "b": BROKEN})
    sleep = ray.sleep

    def mended(seconds: float) -> None:
        ray.answers["b"] = OURS
        sleep(seconds)

    monkeypatch.setattr(ray, "sleep", mended)
    workers = opened(ray, monkeypatch)
    assert looked(workers, ray) == ["a", "b"]
    assert workers.absence() == "no node has a core to offer"  # what once failed is forgotten


def test_a_node_that_does_not_answer_is_named_when_a_run_begins_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = StandInRay({"a": OURS, "b": None})
    sentence = r"^the run begins with 1 of 2 workers \(the one on at-b \(b\) does not start\): "
    with pytest.warns(EbbflowWarning, match=sentence):
        workers = opened(ray, monkeypatch)
    assert looked(workers, ray) == ["a"]
    ray.answers["b"] = OURS
    assert looked(workers, ray) == ["a", "b"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (BROKEN, r"^node at-b \(b\) cannot start a worker \(ModuleNotFoundError.*is left out$"),
        ({"torch": "2.9.0"}, r"^node at-b \(b\) has torch 2\.9\.0, and .*; it is left out$"),
    ],
)
def test_a_node_that_joins_later_and_is_of_no_use_is_named_once(
    answer: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = opened(ray := StandInRay({"a": OURS}), monkeypatch)
    ray.answers["b"] = answer
    with pytest.warns(EbbflowWarning, match=sentence) as told:
        for _ in range(2 * ATTEMPTS):
            assert looked(workers, ray) == ["a"]
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        looked(workers, ray)


def test_where_no_worker_ever_comes_up_the_run_ends_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for nodes, reason in (({}, "no node has a core"), ({"a": None}, r"the one on at-a \(a\) does")):
        with pytest.raises(EbbflowError, match=rf"no worker could be .*\({reason}.*: install"):
            opened(StandInRay(nodes), monkeypatch)


# --- what does not arrive ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [Failed(FetchError("the lanes did not arrive"), ""), StandInTimeoutError("not within 300 s")],
)
def test_what_does_not_arrive_is_computed_elsewhere(
    returned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = opened(StandInRay({"a": OURS}), monkeypatch)
    (place,) = workers.ready()
    with pytest.raises(WorkerLostError, match=r"did not arrive") as lost:
        workers.result(workers.start(place, returned))
    assert lost.value.crashed
    assert "did not arrive" in lost.value.blame
    assert "at-a (a)): see to the network" in lost.value.blame
    assert "memory" not in lost.value.blame


def fetched(error: str, monkeypatch: pytest.MonkeyPatch) -> Exception:
    """Return what a worker makes of an error of Ray's."""
    ray: Any = pytest.importorskip("ray")
    errors = {
        "late": ray.exceptions.GetTimeoutError("1 object was not ready."),
        "lost": ray.exceptions.ObjectFreedError("00ff", None, ""),
        "unreadable": ray.exceptions.RaySystemError(
            ModuleNotFoundError("No module named 'mine'"),
            "Traceback ...\nModuleNotFoundError: No module named 'mine'\n",
        ),
    }

    def get(reference: Any, timeout: float) -> Any:
        raise errors[error]

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(Exception, match=r".") as caught:
        hosting._fetch(Put("lanes", 7, None))
    return caught.value


@pytest.mark.parametrize("error", ["late", "lost"])
def test_a_worker_says_what_has_not_arrived(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = fetched(error, monkeypatch)
    assert type(told) is FetchError
    assert str(told).startswith("the lanes did not arrive: ")


def test_a_worker_that_lacks_a_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told = fetched("unreadable", monkeypatch)
    assert type(told) is EbbflowError
    sentence = r"^node [0-9.]+ cannot read the lanes \(ModuleNotFoundError: .*'mine'\): install the"
    assert re.search(sentence, str(told))
