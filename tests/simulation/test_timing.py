"""How long a run will take, measured on its parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ebbflow.experiment import engine_of
from ebbflow.simulation import timing
from ebbflow.simulation.building import build_world
from ebbflow.simulation.methods import methods_of
from ebbflow.simulation.timing import Took
from ebbflow.starts import STARTS
from tests.configs import digits, with_settings

LITTLE = {"history": 0, "checkpoint": 0}
SMALL = ("seeds=[1]", "sessions=5", "rounds=2", "partition.devices=4")


@pytest.mark.parametrize("start", STARTS)
def test_every_start_can_be_timed(start: str) -> None:
    world = build_world(with_settings(*SMALL, f"methods=['{start}']"), digits(), 1)
    (method,) = methods_of(world)
    engine = engine_of(world)
    try:
        before = torch.random.get_rng_state()
        assert timing._seconds_a_start(world, method, engine, twice=True).each > 0
        assert torch.equal(torch.random.get_rng_state(), before)
    finally:
        engine.close()


def test_a_run_without_a_choice_has_no_starts_to_time(tmp_path: Path) -> None:
    settings = (*SMALL, "sessions=1", "methods=['learned']")
    world = build_world(with_settings(*settings), digits(), 1)
    engine = engine_of(world)
    try:
        assert timing._seconds_a_start(world, methods_of(world)[0], engine, twice=True) == (0, 0)
        assert timing.measured_seconds(world, methods_of(world), engine, tmp_path, LITTLE) > 0
    finally:
        engine.close()
    assert list(tmp_path.iterdir()) == []


def test_seeds_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_seconds_a_round", lambda *some: Took(0.25, 3.0))
    monkeypatch.setattr(timing, "_seconds_a_start", lambda *some: Took(10.0, 0.5))
    monkeypatch.setattr(timing, "_seconds_a_file", lambda folder: 0.0)
    told = []
    for seeds in ([1], [1, 2, 3]):
        config = with_settings(*SMALL, f"seeds={seeds}", "methods=['previous','average']")
        world = build_world(config, digits(), 1)
        methods = methods_of(world)
        told.append(timing.measured_seconds(world, methods, None, tmp_path, LITTLE))  # type: ignore[arg-type]
    # Five sessions of two rounds, and four sessions that two methods start. What the first ones
    # take more comes once.
    assert told == [4 + 2.5 + 80, 4 + 3 * (2.5 + 80)]


def test_large_files_take_as_long_as_they_have_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_seconds_a_round", lambda *some: Took(0.0))
    monkeypatch.setattr(timing, "_seconds_a_start", lambda *some: Took(0.0))
    monkeypatch.setattr(timing, "_seconds_a_file", lambda folder: 0.0)
    monkeypatch.setattr(timing, "_seconds_a_byte", lambda folder, written: 2.0**-20)
    world = build_world(with_settings(*SMALL, "seeds=[1, 2]"), digits(), 1)
    disk = {"history": 2 * 30 * 2**20, "checkpoint": 50 * 2**20}
    told = timing.measured_seconds(world, methods_of(world), None, tmp_path, disk)  # type: ignore[arg-type]
    # Two seeds of five sessions; each seed has a checkpoint after its first round as well.
    assert told == 2 * (30 + 6 * 50)


def test_how_long_a_byte_takes_is_tried_if_there_are_many(tmp_path: Path) -> None:
    assert timing._seconds_a_byte(tmp_path, timing.MUCH - 1) == 0
    assert 0 < timing._seconds_a_byte(tmp_path, timing.MUCH) < 1e-6
    assert list(tmp_path.iterdir()) == []


def test_the_past_is_as_long_as_it_is_halfway() -> None:
    for settings, expected in (
        (("sessions=41",), 20),
        (("sessions=3",), 2),
        (("sessions=41", "history.keep=last", "history.limit=8"), 4),
    ):
        world = build_world(with_settings(*SMALL, *settings), digits(), 1)
        assert timing._typical_past(world) == expected
