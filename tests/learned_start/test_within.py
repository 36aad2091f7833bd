"""Learned steps within a session: what they leave alone, and how they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from chang2025.cells import Cell
from ebbflow import experiment
from ebbflow.core.types import ModelState, Session
from ebbflow.simulation.building import build_world
from ebbflow.simulation.world import World
from learned_start import within as module
from learned_start.within import (
    WithinRow,
    at_equal_bytes,
    read_within,
    run_within,
    setting,
    step_bill,
    within,
    within_digest,
)

ROUNDS = 9
TWO = ("fedavg", "fedavgm")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rounds of four devices with digits, and a step after every third."""

    def smaller(algorithm: str, seed: int) -> Cell:
        return setting(algorithm, seed).with_settings({"dataset": "digits", "partition.devices": 4})

    monkeypatch.setattr(module, "setting", smaller)
    monkeypatch.setattr(module, "ROUNDS", ROUNDS)
    monkeypatch.setattr(module, "EVERY", 3)
    monkeypatch.setattr(module, "RECENT", 2)
    monkeypatch.setattr(module, "ALGORITHMS", TWO)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("algorithm", TWO)
def test_without_steps_it_is_an_ordinary_run_and_with_steps_it_is_one_until_the_first(
    algorithm: str,
) -> None:
    records = experiment.run(module.setting(algorithm, 7).config)
    ordinary = tuple(each.accuracy for each in records.rounds)
    plain, stepped = (within(algorithm, 7, learned) for learned in (False, True))
    assert plain[:4] == (algorithm, False, 7, ordinary)
    assert stepped[:3] == (algorithm, True, 7)
    assert len(stepped.accuracy) == ROUNDS
    assert stepped.accuracy[:2] == ordinary[:2]
    assert stepped.accuracy != ordinary
    assert np.isfinite([*plain.accuracy, *stepped.accuracy]).all()


def mixed(monkeypatch: pytest.MonkeyPatch) -> list[list[ModelState]]:
    """Run a session whose steps choose the newest model, and return what they chose from."""
    seen: list[list[ModelState]] = []

    def newest(world: World, session: Session, models: Sequence[ModelState]) -> ModelState:
        seen.append([ModelState(model.theta.clone(), model.buffers) for model in models])
        return models[0]

    monkeypatch.setattr(module, "_stepped", newest)
    within("fedavg", 7, learned=True)
    return seen


@pytest.mark.usefixtures("small")
def test_a_step_that_changes_nothing_leaves_the_run_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = within("fedavg", 7, learned=False)
    monkeypatch.setattr(module, "_stepped", lambda world, session, models: models[0])
    assert within("fedavg", 7, learned=True).accuracy == plain.accuracy


@pytest.mark.usefixtures("small")
def test_the_initial_model_is_mixed_beside_the_recent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    config = module.setting("fedavg", 7).config
    initial = build_world(config, experiment.prepared(config, None), 7).initial
    seen = mixed(monkeypatch)
    assert [len(models) for models in seen] == [3, 3, 3]
    assert all(torch.equal(models[-1].theta, initial.theta) for models in seen)


def test_the_session_is_long_and_all_labels_are_there() -> None:
    config = setting("scaffold", 100).config
    assert (config.sessions, config.rounds, config.pilot.rounds) == (1, 60, 60)
    assert config.algorithm == ["scaffold"]
    assert config.partition.overlap == 1.0


# --- keeping -------------------------------------------------------------------------------------


def test_what_is_kept_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[tuple[str, int, bool]] = []

    def pretend(algorithm: str, seed: int, learned: bool) -> WithinRow:
        if len(run) == 3:
            run.append(("", 0, False))
            raise KeyboardInterrupt
        run.append((algorithm, seed, learned))
        return WithinRow(algorithm, learned, seed, (seed / 3, 50.0), within_digest(algorithm, seed))

    monkeypatch.setattr(module, "within", pretend)
    monkeypatch.setattr(module, "ALGORITHMS", TWO)
    results = tmp_path / "new"
    assert read_within(results) == []
    with pytest.raises(KeyboardInterrupt):
        run_within([100, 200], results, print)
    assert run[:3] == [("fedavg", 100, False), ("fedavg", 100, True), ("fedavgm", 100, False)]
    assert [row[:3] for row in read_within(results)] == [(a, steps, s) for a, s, steps in run[:3]]
    said: list[str] = []
    run_within([100, 200], results, said.append)
    assert said == [
        "fedavgm, with learned steps, seed 100",
        "fedavg, without learned steps, seed 200",
        "fedavg, with learned steps, seed 200",
        "fedavgm, without learned steps, seed 200",
        "fedavgm, with learned steps, seed 200",
    ]
    rows = read_within(results)
    assert rows[0][:4] == ("fedavg", False, 100, (33.33, 50.0))
    assert len({row[:3] for row in rows}) == len(rows) == 8
    before = (results / module.FILE).read_bytes()
    run_within([100, 200], results, said.append)
    assert len(said) == 5 and (results / module.FILE).read_bytes() == before


@pytest.mark.usefixtures("small")
def test_rows_of_another_setting_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_within([7], tmp_path, print)
    assert len(read_within(tmp_path)) == 4
    monkeypatch.setattr(module, "EVERY", 4)
    assert read_within(tmp_path) == []


@pytest.mark.usefixtures("small")
def test_what_is_run_is_what_is_kept(tmp_path: Path) -> None:
    run_within([7], tmp_path, print)
    rows = read_within(tmp_path)
    assert [row[:3] for row in rows] == [(a, steps, 7) for a in TWO for steps in (False, True)]
    assert rows[1].accuracy == pytest.approx(within("fedavg", 7, True).accuracy, abs=0.005)


# --- bytes --------------------------------------------------------------------------------------


def test_a_step_moves_seven_models_at_half_the_precision() -> None:
    """To 20 of 30 devices, where a round moves the model down to 30 and up from 30."""
    assert step_bill("unicast") == pytest.approx(3.5 * 20 / 60)
    assert step_bill("multicast") == pytest.approx(3.5 / 31)


def test_at_equal_bytes_steps_are_paid_for_with_rounds() -> None:
    level = (50.0,) * 60
    plain, stepped = (WithinRow("fedavg", steps, 1, level) for steps in (False, True))
    assert at_equal_bytes(plain, "unicast") == at_equal_bytes(stepped, "unicast")
    rising = tuple(float(t) for t in range(60))
    plain, stepped = (WithinRow("fedavg", steps, 1, rising) for steps in (False, True))
    dear, cheap = (at_equal_bytes(stepped, link) for link in ("unicast", "multicast"))
    assert dear < cheap < at_equal_bytes(plain, "unicast")
