"""The same seed gives the same bits, whatever else is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from ebbflow import experiment
from ebbflow.layers import Layers

METHODS = ["warm_start", "previous", "average"]
Bits = dict[tuple[str, int], list[tuple[int, int, str, str]]]


def bits(**settings: Any) -> Bits:
    """Return session, round, accuracy and loss to the last bit, by method and seed."""
    layers = Layers()
    small = {"seeds": [1], "sessions": 5, "rounds": 3, "partition.devices": 7}
    for key, value in (small | settings).items():
        layers.add_key(key, value, "test")
    found: Bits = {}
    for r in experiment.run(layers.config()).rounds:
        line = (r.session, r.round, r.accuracy.hex(), r.loss.hex())
        found.setdefault((r.method, r.seed), []).append(line)
    return found


@pytest.fixture(scope="module")
def usual() -> Bits:
    return bits()


def test_twice_the_same(usual: Bits) -> None:
    assert bits() == usual


def test_another_seed_gives_other_numbers(usual: Bits) -> None:
    other = bits(seeds=[2])
    assert all(other[method, 2] != usual[method, 1] for method in METHODS)


@pytest.mark.parametrize("block", [1, 2, 5, 64])
def test_the_block_size_changes_no_bit(usual: Bits, block: int) -> None:
    assert bits(**{"engine.block": block}) == usual


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_number_of_workers_changes_no_bit(usual: Bits, workers: int) -> None:
    assert bits(**{"engine.workers": workers, "engine.block": 2}) == usual


@pytest.mark.parametrize("method", METHODS)
def test_a_method_alone_is_what_it_is_beside_others(usual: Bits, method: str) -> None:
    assert bits(methods=[method]) == {(method, 1): usual[method, 1]}


def test_the_order_of_methods_changes_no_bit(usual: Bits) -> None:
    assert bits(methods=METHODS[::-1]) == usual


def test_other_seeds_beside_it_change_no_bit(usual: Bits) -> None:
    more = bits(seeds=[5, 1])
    assert {key: lines for key, lines in more.items() if key[1] == 1} == usual


def test_more_sessions_change_no_bit_of_the_first(usual: Bits) -> None:
    for key, lines in bits(sessions=6).items():
        assert lines[: 5 * 3] == usual[key]


@pytest.mark.parametrize("settings", [{"model.kind": "mlp"}, {"participation.share": 0.5}])
def test_so_it_is_with_other_models_and_with_few_taking_part(settings: dict[str, Any]) -> None:
    once = bits(**settings)
    assert bits(**settings, **{"engine.block": 2, "engine.workers": 2}) == once
    alone = bits(**settings, methods=["average"])
    assert alone["average", 1] == once["average", 1]
