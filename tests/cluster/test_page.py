"""The tables of docs/cluster.md are those of the kept results, which show what they must."""

from __future__ import annotations

import json

from benchmarks.cluster.model import Costs, simulated
from benchmarks.cluster.page import PAGE, RESULTS, parts
from benchmarks.cluster.scaling import predicted
from benchmarks.federation.page import filled

FREE = Costs(
    device=1.0,
    test=0.0,
    vector=4,
    bandwidth=1e12,
    latency=0.0,
    send=0.0,
    receive=0.0,
    unpack=0.0,
    pack=0.0,
    task=0.0,
)


def test_the_page_is_written_from_the_kept_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, parts()) == text
    assert "**not equal**" not in text


def test_where_nothing_but_training_takes_time_workers_share_it() -> None:
    assert round(simulated(FREE, 96, [1.0]).seconds, 6) == 96
    assert round(simulated(FREE, 96, [1.0] * 4).seconds, 6) == 24
    # 100 devices are 25 leaves: more workers find nothing to do.
    for workers in (25, 64, 256):
        assert round(simulated(FREE, 100, [1.0] * workers, threads=4).seconds, 6) == 1
    assert round(simulated(FREE, 100, [1.0] * 16, threads=4).seconds, 6) == 2


def test_a_slow_link_is_the_limit_in_the_end() -> None:
    slow = Costs(**{**vars(FREE), "vector": 100, "bandwidth": 10.0})
    found = simulated(slow, 100, [1.0] * 25, threads=4)
    assert found.seconds >= 25 * 10  # every leaf goes through it, one after another


def test_the_link_carries_both_directions_at_once() -> None:
    slow = Costs(**{**vars(FREE), "vector": 100, "bandwidth": 10.0})
    for workers in (1, 5, 25):
        found = simulated(slow, 100, [1.0] * workers, threads=4)
        assert found.sending == workers * 10  # a model for each
        assert found.receiving == 25 * 10  # a sum of each leaf
        assert found.link_busy == 250 / found.seconds <= 1


def test_what_is_kept_is_what_the_model_makes_of_the_kept_parts() -> None:
    kept = json.loads((RESULTS / "scaling.json").read_text(encoding="utf-8"))
    assert predicted(kept["parts"]) == kept["rows"]


def test_all_wait_for_the_slowest() -> None:
    even, uneven = (simulated(FREE, 16, [1.0, 1.0, 1.0, speed]) for speed in (1.0, 0.25))
    assert uneven.seconds > even.seconds
