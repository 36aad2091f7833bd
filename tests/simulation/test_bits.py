"""The same seed gives the same bits, whatever else is asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from ebbflow import experiment
from tests.callbacks import Finals
from tests.configs import with_keys

METHODS = ["learned", "warm_start", "previous", "average"]
Bits = dict[tuple[str, int], list[tuple[int, int, str, str]]]


def bits(**settings: Any) -> Bits:
    """Return session, round, accuracy and loss to the last bit, by method and seed."""
    small = {"seeds": [1], "sessions": 5, "rounds": 3, "partition.devices": 7}
    config = with_keys(small, settings)
    found: Bits = {}
    for r in experiment.run(config).rounds:
        line = (r.session, r.round, r.accuracy.hex(), r.loss.hex())
        found.setdefault((r.method, r.seed), []).append(line)
    return found


def by_algorithm(**settings: Any) -> dict[str, list[tuple[str, int, int, str, str]]]:
    """Return the same for all methods of an algorithm."""
    small = {"seeds": [1], "sessions": 5, "partition.devices": 5, "participation.share": 3}
    config = with_keys(small, settings)
    found: dict[str, list[tuple[str, int, int, str, str]]] = {}
    for r in experiment.run(config).rounds:
        line = (r.method, r.session, r.round, r.accuracy.hex(), r.loss.hex())
        found.setdefault(r.algorithm, []).append(line)
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


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
def test_algorithms_in_lockstep_are_what_each_is_alone(kind: str) -> None:
    names = ["fedavg", "fedprox", "scaffold", "moon", "fedacg", "feddyn"]
    choice = {"model.kind": kind, "methods": ["warm_start", "continuous"], "rounds": 2}
    together = by_algorithm(algorithm=names, **choice)
    for name in names:
        assert by_algorithm(algorithm=[name], **choice) == {name: together[name]}, name


@pytest.mark.parametrize("algorithm", ["scaffold", "moon"])
def test_where_device_states_live_changes_no_bit(algorithm: str) -> None:
    settings: dict[str, Any] = {"algorithm": algorithm, "participation.share": 3}
    assert bits(**settings, **{"engine.state_memory": 0}) == bits(**settings)


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


LEARNED: dict[str, Any] = {"parameters.learned.devices": 5, "parameters.learned.samples": 8}


@pytest.mark.parametrize(
    "settings",
    [
        {"methods": ["learned"]},
        {"methods": ["average", "learned", "warm_start"]},
        {"methods": ["learned"], "engine.block": 2, "engine.workers": 2},
    ],
)
def test_a_learned_start_depends_on_nothing_beside_it(settings: dict[str, Any]) -> None:
    once = bits(**LEARNED, methods=["learned", "previous"])
    assert bits(**LEARNED, **settings)["learned", 1] == once["learned", 1]
    assert once["learned", 1] != once["previous", 1]


# --- algorithms that are FedAvg when their terms are switched off --------------------------------


class Ended(NamedTuple):
    """Every accuracy and loss to the last bit, and the final model of every session."""

    rounds: list[tuple[str, int, int, str, str]]
    models: list[Tensor]


def ended(**settings: Any) -> Ended:
    small = {"seeds": [1], "sessions": 4, "rounds": 3, "partition.devices": 5}
    common = {"participation.share": 3, "local.steps": [1, 4], "lr.initial": 0.05, "lr.floor": 0.5}
    config = with_keys(small, common, settings)
    finals = Finals()
    found = experiment.run(config, callbacks=[finals]).rounds
    lines = [(r.method, r.session, r.round, r.accuracy.hex(), r.loss.hex()) for r in found]
    models = [torch.cat([*model]) for models in finals.models for model in models]
    return Ended(lines, models)


def assert_same_end(one: Ended, other: Ended) -> None:
    assert one.rounds == other.rounds
    assert len(one.models) == len(other.models)
    assert all(torch.equal(a, b) for a, b in zip(one.models, other.models, strict=True))


OFF: dict[str, dict[str, Any]] = {
    "fedprox": {"mu": 0.0},
    "moon": {"mu": 0.0},
    "fedacg": {"momentum": 0.0, "beta": 0.0},
    "fedavgm": {"momentum": 0.0, "rate": 1.0},
}


@pytest.fixture(scope="module", params=["sequential", "vectorised"])
def plain(request: pytest.FixtureRequest) -> tuple[dict[str, Any], Ended]:
    settings = {"engine.kind": request.param, "methods": ["warm_start", "previous"]}
    return settings, ended(**settings)


@pytest.mark.parametrize("name", OFF)
def test_with_its_terms_switched_off_an_algorithm_is_fedavg(
    plain: tuple[dict[str, Any], Ended], name: str
) -> None:
    settings, fedavg = plain
    off = {f"parameters.{name}.{key}": value for key, value in OFF[name].items()}
    assert_same_end(ended(**settings, **off, algorithm=[name]), fedavg)


@pytest.mark.parametrize("name", OFF)
def test_with_its_terms_on_it_is_not(plain: tuple[dict[str, Any], Ended], name: str) -> None:
    settings, fedavg = plain
    assert not torch.equal(ended(**settings, algorithm=[name]).models[-1], fedavg.models[-1])


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
@pytest.mark.parametrize("target", ["teacher", "mixed"])
def test_without_weight_on_its_teacher_continuous_is_previous(engine: str, target: str) -> None:
    settings = {"engine.kind": engine, "parameters.continuous.target": target}
    off = ended(**settings, methods=["continuous"], **{"parameters.continuous.kl": 0.0})
    previous = ended(**settings, methods=["previous"])
    assert [line[1:] for line in off.rounds] == [line[1:] for line in previous.rounds]
    assert_same_end(off._replace(rounds=[]), previous._replace(rounds=[]))


@pytest.mark.parametrize("target", ["teacher", "mixed"])
def test_both_engines_distil_alike(target: str) -> None:
    slow, fast = (
        ended(
            **{
                "engine.kind": engine,
                "methods": ["continuous", "previous"],
                "parameters.continuous.target": target,
            }
        )
        for engine in ("sequential", "vectorised")
    )
    for a, b in zip(slow.models, fast.models, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert not torch.equal(slow.models[-1], slow.models[-2])
