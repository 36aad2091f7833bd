"""A federation computes, bit by bit, what the simulator's reference engine computes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from ebbflow.core.errors import EbbflowError
from ebbflow.flower import Training, after_rounds
from ebbflow.flower.saving import ROUNDS as ROUND_LINES
from ebbflow.flower.saving import HistoryFolder
from ebbflow.simulation.world import World
from tests.flower.worlds import Federated, digest, federated, node_of, simulated


@pytest.mark.parametrize("start", ["warm_start", "learned", "previous", "average"])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "moon", "fedadam"])
def test_the_federation_is_the_simulator_bit_by_bit(
    tmp_path: Path, algorithm: str, start: str
) -> None:
    truth = simulated(tmp_path, algorithm, start)
    here = federated(truth.world, tmp_path)
    result = here.sessions(algorithm, start).run(here.grid, here.initial)
    assert digest(here.theta(result.arrays)) == digest(truth.finals[4])


@pytest.mark.parametrize(
    "settings",
    [
        {"participation.share": 0.7},
        {"local.steps": [2, 6], "local.rule": "each_step"},
        {"local.radius": 0.5},
        {"probe.rounds": 2, "probe.share": 2, "probe.lr": "same"},
        {"boundary.state": "keep"},
    ],
    ids=["share", "steps", "radius", "probe", "keep"],
)
def test_settings_mean_the_same(tmp_path: Path, settings: dict[str, Any]) -> None:
    truth = simulated(tmp_path, "scaffold", "warm_start", **settings)
    here = federated(truth.world, tmp_path)
    result = here.sessions("scaffold", "warm_start").run(here.grid, here.initial)
    assert digest(here.theta(result.arrays)) == digest(truth.finals[4])


class Killed(BaseException):
    """The server process is gone."""


class DyingGrid:
    """Lets a server die while it sends: before nodes hear of it, or after they have answered."""

    def __init__(self, here: Federated, draw: random.Random) -> None:
        self._push, self._left = here.grid.push_messages, draw.randrange(1, 4)
        self._late = draw.random() < 0.5

    def push_messages(self, messages: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._late:
            raise Killed
        keys = self._push(messages)
        if self._left == 0:
            raise Killed
        return keys


@pytest.mark.parametrize("start", ["warm_start", "learned"])
def test_a_server_killed_anywhere_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    truth = simulated(tmp_path, "scaffold", start)
    here = federated(truth.world, tmp_path)
    draw, kills = random.Random(0), 0
    while kills < 10:
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(here.grid, "push_messages", DyingGrid(here, draw).push_messages)
            here.sessions("scaffold", start).run(here.grid, here.initial)
        kills += 1
    result = here.sessions("scaffold", start).run(here.grid, here.initial)
    assert digest(here.theta(result.arrays)) == digest(truth.finals[4])


def test_a_repeated_round_is_answered_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = simulated(tmp_path, "scaffold", "previous", 2)
    here = federated(truth.world, tmp_path)
    push, pushes = here.grid.push_messages, 0

    def dying(messages: Any) -> Any:
        nonlocal pushes
        keys, pushes = push(messages), pushes + 1
        if pushes == 3:  # the first question, round 1 and round 2 have been answered
            raise Killed
        return keys

    def on_disk() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "node0").iterdir()}

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(here.grid, "push_messages", dying)
        here.sessions("scaffold", "previous", 2).run(here.grid, here.initial)
    before = on_disk()
    assert sorted(before) == ["local-1-1.safetensors", "local-1-2.safetensors"]
    seen: list[dict[str, int]] = []
    here.grid.before_push = lambda messages: seen.append(on_disk())
    result = here.sessions("scaffold", "previous", 2).run(here.grid, here.initial)
    assert seen[:2] == [before, before]  # round 2 was asked again, and not computed again
    assert digest(here.theta(result.arrays)) == digest(truth.finals[2])


def test_a_federation_on_other_samples_is_not_answered_from_the_disk(tmp_path: Path) -> None:
    world = simulated(tmp_path, "scaffold", "previous", 2).world
    data = world.dataset
    others = replace(data.train, y=(data.train.y + 1) % data.classes)
    changed = replace(world, dataset=replace(data, train=others))

    def trained(world: World, folder: str) -> str:
        here = replace(federated(world, tmp_path / folder), folder=tmp_path / f"run{next(runs)}")
        # A node keeps its last answer and the one before: after one round, that of round 1.
        sessions = here.sessions("scaffold", "previous", 1, trigger=after_rounds(1))
        result = sessions.run(here.grid, here.initial)
        return digest(here.theta(result.arrays))

    runs = count()
    first = trained(world, "nodes")
    assert trained(world, "nodes") == first
    assert trained(changed, "nodes") == trained(changed, "new nodes") != first


def test_a_node_that_lost_its_state_says_so_and_begins_again(tmp_path: Path) -> None:
    truth = simulated(tmp_path, "scaffold", "previous", 2)
    here = federated(truth.world, tmp_path)
    pushes = 0

    def losing(messages: list[Any]) -> None:
        nonlocal pushes
        pushes += 1
        if pushes == 3:  # before round 2
            for path in (tmp_path / "node1").iterdir():
                path.unlink()

    here.grid.before_push = losing
    told: list[str] = []
    here.sessions("scaffold", "previous", 1, tell=told.append).run(here.grid, here.initial)
    assert any("device 1 failed" in line and "state after the upload 1-1" in line for line in told)
    folder = HistoryFolder(tmp_path / "history")
    lines = [line for line in folder.lines(ROUND_LINES) if line["round"]]
    folder.close()
    assert [line["used"] for line in lines] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert here.nodes[node_of(1)].asked == 4


OTHERS: list[tuple[dict[str, Any], str]] = [
    *(
        ({"algorithm": name}, f'algorithm = "scaffold", and is resumed with "{name}"')
        for name in ("fedavg", "fedadam", "feddyn", "moon")
    ),
    (
        {"parameters": {"option": 1}},
        'parameters = {"option": 2}, and is resumed with {"option": 1}',
    ),
    ({"states": "keep"}, 'states = "reset", and is resumed with "keep"'),
]


def test_a_session_does_not_go_on_with_another_algorithm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = simulated(tmp_path, "scaffold", "previous", 2)
    here = federated(truth.world, tmp_path)

    def dying(messages: Any) -> Any:
        if messages[0].content["config"].get("server-round") == 2:
            raise Killed
        return push(messages)

    push = here.grid.push_messages
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(here.grid, "push_messages", lambda messages: dying(list(messages)))
        here.sessions("scaffold", "previous", 2).run(here.grid, here.initial)
    for other, said in OTHERS:
        sessions = here.sessions("scaffold", "previous", 2)
        assert isinstance(sessions.strategy, Training)
        sessions.strategy = replace(sessions.strategy, **other)
        with pytest.raises(EbbflowError, match=re.escape(said)):
            sessions.run(here.grid, here.initial)
    # What is no more than said aloud is no change.
    sessions = here.sessions("scaffold", "previous", 2)
    assert isinstance(sessions.strategy, Training)
    sessions.strategy = replace(sessions.strategy, parameters={"option": 2})
    result = sessions.run(here.grid, here.initial)
    assert digest(here.theta(result.arrays)) == digest(truth.finals[2])


@pytest.mark.parametrize("other", ["feddyn", "moon"])
def test_states_of_another_algorithm_are_not_gone_on_from(tmp_path: Path, other: str) -> None:
    world = simulated(tmp_path, "scaffold", "previous", 2, **{"boundary.state": "keep"}).world
    here, told = federated(world, tmp_path), list[str]()
    here.sessions("scaffold", "previous", 2).run(here.grid, here.initial)
    sessions = here.sessions("scaffold", "previous", 3, tell=told.append)
    assert isinstance(sessions.strategy, Training)
    sessions.strategy = replace(sessions.strategy, algorithm=other)
    sessions.run(here.grid, here.initial)
    assert "the algorithm has changed: all devices begin with a fresh state" in told
    folder = HistoryFolder(tmp_path / "history")
    lines = [line["used"] for line in folder.lines(ROUND_LINES) if line["round"]]
    folder.close()
    assert lines == [[0, 1, 2]] * 3 + [[2, 3, 4]] * 3 + [[0, 1, 2]] * 3
