"""Stock Flower strategies and a stock Flower app in sessions: members, deadlines, resuming."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import strategy as stock
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedTrimmedAvg,
    FedYogi,
    Strategy,
)

from ebbflow.core.errors import EbbflowError
from ebbflow.flower import (
    AskingTerms,
    Checks,
    Local,
    Opening,
    Probe,
    Sessions,
    Starting,
    Training,
    after_rounds,
    any_of,
    crowd,
    membership_changes,
    newcomers,
    running,
)
from ebbflow.flower.local import Node
from ebbflow.flower.running import Place
from ebbflow.flower.saving import EVENTS, ROUNDS, HistoryFolder
from ebbflow.flower.wire import form_of
from tests.flower.stock import initial, stock_app, stock_grid

QUICK = ("FedAvg", "FedAdam")
STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": FedAvg,
    "FedAdam": FedAdam,
    "FedYogi": FedYogi,
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9),
    "FedTrimmedAvg": FedTrimmedAvg,
}


def sessions(folder: Path, strategy: Any = FedAvg, **named: Any) -> Sessions:
    terms: dict[str, Any] = {"deadline": 0.3}
    terms |= {key: named.pop(key) for key in ("deadline", "quorum", "gather") if key in named}
    return Sessions(
        strategy,
        folder / "history",
        **{
            "trigger": after_rounds(3),
            "start": "previous",
            "sessions": 3,
            "seed": 1,
            "terms": AskingTerms(**terms),
            "tell": lambda sentence: None,
            **named,
        },
    )


def lines(folder: Path, name: str = ROUNDS) -> list[dict[str, Any]]:
    history = HistoryFolder(folder / "history")
    try:
        return history.lines(name)
    finally:
        history.close()


def numbers(arrays: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().astype(float).reshape(-1) for array in arrays.values()])


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_session_is_what_the_strategy_does_by_itself(tmp_path: Path, name: str) -> None:
    mine = sessions(tmp_path, STRATEGIES[name], sessions=1).run(stock_grid(), initial())
    alone = STRATEGIES[name]().start(stock_grid(), initial(), num_rounds=3)
    for key, array in mine.arrays.items():
        if not key.endswith("num_batches_tracked"):  # which Flower averages, and we keep out
            # Replies are added in another order.
            np.testing.assert_allclose(
                array.numpy(), alone.arrays[key].numpy(), rtol=2e-4, atol=1e-6
            )
    assert mine.arrays["layers.1.num_batches_tracked"].numpy() == 0


@pytest.mark.parametrize("start", ["previous", "average", "warm_start", "learned"])
def test_every_start_works_with_a_stock_app(tmp_path: Path, start: str) -> None:
    grid = stock_grid()

    def gather(session: int, devices: frozenset[int]) -> bool:
        for device in range(5):
            grid.nodes[100 + device].online = device < 3 if session % 2 else device >= 2
        return len(devices) == 3

    told: list[str] = []
    here = sessions(tmp_path, start=start, sessions=4, gather=gather, tell=told.append)
    result = here.run(grid, initial())
    assert np.isfinite(numbers(result.arrays)).all()
    assert not [line for line in told if "survey" in line or "probe failed" in line], told
    firsts = {line["session"]: line["evaluate"] for line in lines(tmp_path) if line["round"] == 1}
    assert set(firsts) == {1, 2, 3, 4}
    assert all("eval_acc" in evaluated for evaluated in firsts.values())
    if start == "learned":
        mixed = [line for line in lines(tmp_path, EVENTS) if line["event"] == "start"]
        assert any(line["mixture"] for line in mixed)


def test_a_probe_may_have_several_rounds(tmp_path: Path) -> None:
    start = Starting("warm_start", probe_rounds=3)
    sessions(tmp_path, start=start, sessions=2).run(stock_grid(), initial())
    assert not [line for line in lines(tmp_path, EVENTS) if line["event"] == "warning"]


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in STRATEGIES],
)
def test_a_killed_server_goes_on_after_any_round(tmp_path: Path, name: str) -> None:
    whole = sessions(tmp_path / "whole", STRATEGIES[name]).run(stock_grid(), initial())

    class Killed(BaseException):
        pass

    deaths = 0
    while True:
        pushes = 0

        def dying(messages: list[Any]) -> None:
            nonlocal pushes
            pushes += 1
            if pushes > 3:  # dies again and again, each time a little later
                raise Killed

        grid = stock_grid()
        grid.before_push = dying
        try:
            result = sessions(tmp_path / "parts", STRATEGIES[name]).run(grid, initial())
        except Killed:
            deaths += 1
            continue
        break
    assert deaths > 3
    assert (numbers(result.arrays) == numbers(whole.arrays)).all()
    assert result.train_metrics_clientapp.keys() == whole.train_metrics_clientapp.keys()
    again = sessions(tmp_path / "parts", STRATEGIES[name]).run(stock_grid(), initial())
    assert (numbers(again.arrays) == numbers(whole.arrays)).all()


def test_a_finished_federation_goes_on_when_more_sessions_are_asked_for(tmp_path: Path) -> None:
    whole = sessions(tmp_path / "whole").run(stock_grid(), initial())
    sessions(tmp_path / "parts", sessions=1).run(stock_grid(), initial())
    result = sessions(tmp_path / "parts", sessions=3).run(stock_grid(), initial())
    assert (numbers(result.arrays) == numbers(whole.arrays)).all()


def test_a_killed_federation_ends_when_fewer_sessions_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Finished):  # in the second round of session 3
        sessions(tmp_path, sessions=4).run(stock_grid(), initial(), evaluate_fn=finishing(8))
    told: list[str] = []
    sessions(tmp_path, sessions=2, tell=told.append).run(stock_grid(), initial())
    assert "all is over" in told
    assert [(line["session"], line["round"]) for line in lines(tmp_path)][-1] == (3, 1)


def test_a_checkpoint_that_says_whether_all_is_over_can_be_read() -> None:
    saved = {**Place(session=3, rounds=6).facts(), "finished": True}
    assert Place.of(saved) == Place(session=3, rounds=6)


class Recording(FedAvg):
    """Keeps the names and types of all arrays that a strategy is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, str]] = []

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def _see(self, arrays: ArrayRecord) -> None:
        self.seen.append({name: array.dtype for name, array in arrays.items()})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any
    ) -> Any:
        self._see(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: Any, grid: Any
    ) -> Any:
        self._see(arrays)
        return super().configure_evaluate(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        for reply in replies:
            for arrays in reply.content.array_records.values():
                self._see(arrays)
        return super().aggregate_train(server_round, replies)


def test_strategies_are_given_no_counters_and_nodes_are(tmp_path: Path) -> None:
    everything = {name: array.dtype for name, array in initial().items()}
    with_a_mean = {name: kind for name, kind in everything.items() if kind == "float32"}
    assert len(with_a_mean) == len(everything) - 1
    strategy, grid = Recording(), stock_grid()
    sent: list[dict[str, str]] = []

    def sending(messages: list[Any]) -> None:
        for message in messages:
            (arrays,) = message.content.array_records.values()
            sent.append({name: array.dtype for name, array in arrays.items()})
            assert arrays["layers.1.num_batches_tracked"].numpy() == 0

    grid.before_push = sending
    sessions(tmp_path, lambda: strategy, sessions=1).run(grid, initial())
    assert len(strategy.seen) == 3 * (1 + 5 + 1)
    assert len(sent) == 5 + 3 * (5 + 5)
    # In the same order, too.
    assert all(list(seen.items()) == list(with_a_mean.items()) for seen in strategy.seen)
    assert all(list(each.items()) == list(everything.items()) for each in sent)


def unnoised() -> Strategy:
    return DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=0.0, clipping_norm=1.0, num_sampled_clients=5
    )


def test_counters_are_no_part_of_an_update_that_is_clipped(tmp_path: Path) -> None:
    """After three local steps the counter alone has moved three times as far as it may."""
    clipped = sessions(tmp_path / "clipped", unnoised, sessions=1).run(stock_grid(), initial())
    plain = sessions(tmp_path / "plain", FedAvg, sessions=1).run(stock_grid(), initial())
    np.testing.assert_allclose(numbers(clipped.arrays), numbers(plain.arrays), atol=1e-6)


BY_POSITION: dict[str, Callable[[], Strategy]] = {
    "clipping": unnoised,
    "FedAvgM": lambda: FedAvgM(server_momentum=0.9),
    "Krum": stock.Krum,
    "Bulyan": stock.Bulyan,
    "QFedAvg": lambda: stock.QFedAvg(client_learning_rate=0.1),
}
"""Strategies that compare arrays by their places, and not by their names."""


@pytest.mark.parametrize("name", BY_POSITION)
def test_a_reply_may_have_its_arrays_in_any_order(tmp_path: Path, name: str) -> None:
    usual = sessions(tmp_path / "usual", BY_POSITION[name], sessions=1)
    truth = usual.run(stock_grid(), initial())
    assert np.abs(numbers(truth.arrays) - numbers(initial())).max() > 0.01
    grid = stock_grid()
    grid.nodes[100].spoil = reversing
    told: list[str] = []
    other = sessions(tmp_path / "other", BY_POSITION[name], sessions=1, tell=told.append)
    result = other.run(grid, initial())
    assert not [line for line in told if "refused" in line], told
    assert (numbers(result.arrays) == numbers(truth.arrays)).all()


def reversing(content: Any) -> Any:
    for record in content.array_records.values():
        for name in reversed(list(record)):
            record[name] = record.pop(name)
    return content


def test_a_fresh_strategy_for_every_session(tmp_path: Path) -> None:
    made: list[Opening] = []

    def factory(opening: Opening) -> Strategy:
        made.append(opening)
        return FedAdam()

    sessions(tmp_path, factory).run(stock_grid(3), initial())
    assert [(opening.session, sorted(opening.members)) for opening in made] == [
        (session, [0, 1, 2]) for session in (1, 2, 3)
    ]


def test_members_are_those_who_answer(tmp_path: Path) -> None:
    grid = stock_grid()
    grid.nodes[101].silent = True
    sessions(tmp_path, sessions=1).run(grid, initial())
    (begun,) = (line for line in lines(tmp_path, EVENTS) if line["event"] == "session")
    # Numbers are given in the order in which nodes are first seen.
    assert begun["members"] == [0, 2, 3, 4]
    assert grid.nodes[101].asked == 1  # and is not asked again while it has not answered


def test_a_late_node_is_waited_for_once_and_not_asked_again(tmp_path: Path) -> None:
    grid = stock_grid()

    def quiet(messages: list[Any]) -> None:
        if any(m.metadata.message_type == "train" for m in messages):
            grid.nodes[103].silent = True

    grid.before_push = quiet
    sessions(tmp_path, sessions=1).run(grid, initial())
    rounds = [line for line in lines(tmp_path) if line["round"]]
    assert [line["late"] for line in rounds] == [[3], [], []]
    assert [line["busy"] for line in rounds] == [[], [3], [3]]
    assert [line["used"] for line in rounds] == [[0, 1, 2, 4]] * 3


def test_below_the_quorum_the_model_stays(tmp_path: Path) -> None:
    grid = stock_grid()

    def failing(messages: list[Any]) -> None:
        training = messages[0].metadata.message_type == "train"
        for node in (100, 101, 102):
            grid.nodes[node].silent = training

    grid.before_push = failing
    result = sessions(tmp_path, sessions=1).run(grid, initial())
    assert all("2 of 5 updates" in line["abandoned"] for line in lines(tmp_path)[:1])
    assert (numbers(result.arrays) == numbers(initial())).all()


def test_a_node_that_comes_back_is_free_again(tmp_path: Path) -> None:
    grid = stock_grid()
    rounds = 0

    def slow(messages: list[Any]) -> None:
        nonlocal rounds
        if messages[0].metadata.message_type == "train":
            rounds += 1
            grid.nodes[103].silent = rounds == 1
            if rounds == 2:  # now it answers, too late
                key = next(iter(here_keys))
                grid._replies[key] = grid._reply(grid.nodes[103], kept[key])

    kept: dict[str, Any] = {}
    here_keys: list[str] = []
    push = grid.push_messages

    def pushed(messages: Any) -> Any:
        messages = list(messages)
        keys = list(push(messages))
        for key, message in zip(keys, messages, strict=True):
            if message.metadata.dst_node_id == 103 and rounds == 1:
                kept[key] = message
                here_keys.append(key)
        return keys

    grid.before_push = slow
    grid.push_messages = pushed  # type: ignore[method-assign]
    sessions(tmp_path, sessions=1, trigger=after_rounds(4)).run(grid, initial())
    used = [line["used"] for line in lines(tmp_path) if line["round"]]
    assert used[0] == used[1] == [0, 1, 2, 4]
    assert used[3] == [0, 1, 2, 3, 4]


def test_a_change_of_members_begins_a_session(tmp_path: Path) -> None:
    grid = stock_grid(6)
    for node in (104, 105):
        grid.nodes[node].online = False
    asked = 0

    def changing(messages: list[Any]) -> None:
        nonlocal asked
        asked += messages[0].metadata.message_type == "train"
        if asked == 3:
            for node, one in grid.nodes.items():
                one.online = node >= 102

    grid.before_push = changing
    trigger = membership_changes(0.5)
    told: list[str] = []

    def stop(session: int, devices: frozenset[int]) -> bool:
        return len(devices) == 4

    here = sessions(tmp_path, trigger=trigger, sessions=2, gather=stop, tell=told.append)
    with pytest.raises(Finished):
        here.run(grid, initial(), evaluate_fn=finishing(9))
    begun = [line["members"] for line in lines(tmp_path, EVENTS) if line["event"] == "session"]
    assert begun == [[0, 1, 2, 3], [2, 3, 4, 5]]
    assert any("new: devices 4, 5; gone: devices 0, 1" in sentence for sentence in told)


def rounds_of(folder: Path) -> list[tuple[int, int]]:
    """Return the sessions and rounds that were trained."""
    return [(line["session"], line["round"]) for line in lines(folder) if line["round"]]


def raising(message: Any, context: Any) -> Any:
    if message.metadata.message_type == "evaluate":
        raise ValueError("no data")
    return stock_app(2)(message, context)


@pytest.mark.parametrize("trigger", [membership_changes(0.3), newcomers(0.3)])
@pytest.mark.parametrize("silent", [True, False], ids=["silent", "raising"])
def test_who_does_not_become_a_member_has_not_joined_since(
    tmp_path: Path, trigger: Any, silent: bool
) -> None:
    grid = stock_grid(4)
    grid.nodes[103].online = False
    grid.nodes[102].silent = silent
    if not silent:
        grid.nodes[102].app = raising  # type: ignore[assignment]
    trained = 0

    def joining(messages: list[Any]) -> None:
        nonlocal trained
        trained += messages[0].metadata.message_type == "train"
        grid.nodes[103].online = trained >= 3

    grid.before_push = joining
    here = sessions(tmp_path, trigger=trigger, sessions=2)
    with pytest.raises(Finished):
        here.run(grid, initial(), evaluate_fn=finishing(5))
    assert rounds_of(tmp_path) == [(1, 1), (1, 2), (1, 3), (2, 1)]
    begun = [line["members"] for line in lines(tmp_path, EVENTS) if line["event"] == "session"]
    assert begun == [[0, 1], [0, 1, 3]]


@pytest.mark.parametrize("how", ["answers", "leaves", "comes again"])
def test_who_is_heard_of_again_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(crowd, "LATE_POLL", 0.05)
    grid = stock_grid(3)
    if how == "answers":
        grid.nodes[102].silent = True
    else:
        grid.nodes[102].app = raising  # type: ignore[assignment]
    keys: list[str] = []
    asked: list[Any] = []
    trained = 0
    push, looked = grid.push_messages, grid.get_nodes

    def pushed(messages: Any) -> Any:
        nonlocal trained
        messages = list(messages)
        found = list(push(messages))
        if not keys:  # the first question
            keys.append(found[2])
            asked.append(messages[2])
        trained += messages[0].metadata.message_type == "train"
        if trained == 2:
            grid.nodes[102].silent, grid.nodes[102].app = False, stock_app(2)
            grid.nodes[102].online = how != "leaves"
            if how == "answers" and asked:
                grid._replies[keys[0]] = grid._reply(grid.nodes[102], asked.pop())
                until = time.monotonic() + 5
                while keys[0] in grid._replies and time.monotonic() < until:
                    time.sleep(0.01)
        if trained == 3:
            grid.nodes[102].online = True
        return found

    def seen() -> Any:
        for node in looked():
            if how == "comes again" and trained >= 2 and node.node_id == 102:
                node.last_activated_at = "later"
            yield node

    grid.push_messages = pushed  # type: ignore[method-assign]
    grid.get_nodes = seen  # type: ignore[method-assign]
    here = sessions(tmp_path, trigger=membership_changes(0.3), sessions=2)
    with pytest.raises(Finished):
        here.run(grid, initial(), evaluate_fn=finishing(5))
    second = 4 if how == "leaves" else 3
    assert rounds_of(tmp_path)[:second] == [*((1, t) for t in range(1, second)), (2, 1)]
    begun = [line["members"] for line in lines(tmp_path, EVENTS) if line["event"] == "session"]
    assert begun == [[0, 1], [0, 1, 2]]


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
@pytest.mark.parametrize("asked", [True, False], ids=["asked", "busy"])
def test_a_killed_server_remembers_who_has_not_answered(
    tmp_path: Path, killed: bool, asked: bool
) -> None:
    grid, trained = stock_grid(), 0
    before = 0 if asked else 4  # rounds: the node is late in the last one, and busy afterwards

    def pushing(messages: list[Any]) -> None:
        nonlocal trained
        trained += messages[0].metadata.message_type == "train"
        grid.nodes[104].silent = trained >= before
        if trained == before + 2 and killed:
            trained += 1
            raise Finished

    grid.before_push = pushing
    trigger = any_of(membership_changes(0.2), after_rounds(4))
    here = partial(sessions, tmp_path, trigger=trigger, sessions=1 if asked else 2)
    if killed:
        with pytest.raises(Finished):
            here().run(grid, initial())
    here().run(grid, initial())
    events = lines(tmp_path, EVENTS)
    over = [event["said"] for event in events if event["event"] == "over"]
    assert over == [f"session {s} is over: 4 rounds are done" for s in range(1, len(over) + 1)]
    begun = [event["members"] for event in events if event["event"] == "session"]
    assert begun == ([] if asked else [[0, 1, 2, 3, 4]]) + [[0, 1, 2, 3]]


def test_a_session_without_a_member_left_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT", 0.05)
    grid, trained = stock_grid(3), 0

    def renewed(messages: list[Any]) -> None:
        nonlocal trained
        trained += messages[0].metadata.message_type == "train"
        if trained == 1 and 200 not in grid.nodes:  # without keys they would be new devices
            for node in list(grid.nodes):
                grid.nodes[node + 100] = Node(grid.nodes[node].app, {})
                grid.nodes[node].online = False

    grid.before_push = renewed
    told: list[str] = []
    sessions(tmp_path, sessions=2, tell=told.append).run(grid, initial())
    assert "session 1 is over: none of its members is left" in told
    begun = [line["members"] for line in lines(tmp_path, EVENTS) if line["event"] == "session"]
    assert begun == [[0, 1, 2], [3, 4, 5]]


def test_a_session_that_cannot_go_on_waits_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WAIT", 0.05)
    grid = stock_grid(3)
    waits = 0

    def tell(sentence: str) -> None:
        nonlocal waits
        told.append(sentence)
        if "waits before round 2" in sentence:
            waits += 1
            for node in grid.nodes.values():
                node.online = True

    def leaving(messages: list[Any]) -> None:
        if messages[0].metadata.message_type == "train":
            for node in grid.nodes.values():
                node.online = bool(waits)

    told: list[str] = []
    grid.before_push = leaving
    sessions(tmp_path, sessions=1, quorum=0.0, tell=tell).run(grid, initial())
    said = "session 1 waits before round 2: nobody could be asked; 0 of its 3 members are here"
    assert told.count(said) == 1
    assert rounds_of(tmp_path) == [(1, 1), (1, 2), (1, 3)]


class Finished(Exception):  # noqa: N818 - the end of a test
    pass


def finishing(after: int) -> Callable[[int, ArrayRecord], MetricRecord]:
    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        if number == after:
            raise Finished
        return MetricRecord({"number": number})

    return evaluate


def test_strategies_that_cannot_be_saved_are_refused_by_name(tmp_path: Path) -> None:
    class Own(FedAvg):
        pass

    for strategy in (Own, stock.FedXgbBagging):
        with pytest.raises(EbbflowError, match=r"the strategy (Own|FedXgbBagging) is not known"):
            sessions(tmp_path / "own", strategy).run(stock_grid(), initial())

    class Saving(Own):
        def state_dict(self) -> dict[str, Any]:
            return {"count": 3, "array": np.arange(3.0)}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert state["count"] == 3

    sessions(tmp_path / "saving", Saving, sessions=1).run(stock_grid(), initial())


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"start": "continuous"}, 'start = "continuous" changes how devices train'),
        ({"start": "warm_strat"}, "warm_start"),
        ({"deadline": 0}, "deadline = 0 cannot be: give seconds above 0"),
        ({"quorum": 2}, "quorum = 2 cannot be"),
        ({"sessions": 0}, "sessions = 0 cannot be"),
        *(
            ({"strategy": Training(local=Local(**local))}, said)
            for local, said in (
                ({"rounds": 0}, "local.rounds = 0 cannot be: give at least 1"),
                ({"lr": -1}, "local.lr = -1 cannot be"),
                ({"lr": float("nan")}, "local.lr = nan cannot be"),
                ({"floor": 2}, "local.floor = 2 cannot be"),
                ({"power": 0}, "local.power = 0 cannot be"),
                ({"steps": 0}, "local.steps = 0 cannot be"),
                ({"steps": (6, 2)}, r"local.steps = \(6, 2\) cannot be"),
                ({"batch": 0}, "local.batch = 0 cannot be: give at least 1"),
                ({"rule": "nonsense"}, "local.rule = nonsense cannot be"),
                ({"momentum": 1}, "local.momentum = 1 cannot be"),
                ({"radius": 0}, "local.radius = 0 cannot be"),
                ({"share": 1.5}, "local.share = 1.5 cannot be"),
                ({"share": 0}, "local.share = 0 cannot be"),
            )
        ),
        ({"strategy": Training(probing=Probe(batch=0))}, "probing.batch = 0 cannot be"),
        ({"strategy": Training(probing=Probe(lr="most"))}, "probing.lr = most cannot be"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings_are_refused_in_a_sentence(
    tmp_path: Path, named: dict[str, Any], said: str
) -> None:
    with pytest.raises(EbbflowError, match=said):
        sessions(tmp_path, **named)


@pytest.mark.parametrize(
    "local",
    [
        Local(share=1, radius=0.5, momentum=0, floor=0),
        Local(share=1.0, steps=(2, 2), rule="each_step", lr=1),
    ],
)
def test_settings_at_their_limits_are_not_refused(tmp_path: Path, local: Local) -> None:
    sessions(tmp_path, Training(local=local, probing=Probe(2, 0.5, 1, 1, 0.1)))


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"timeout": -5}, "timeout = -5 cannot be: give seconds above 0"),
        ({"timeout": 0}, "timeout = 0 cannot be"),
        ({"num_rounds": 0}, "num_rounds = 0 cannot be: give at least 1"),
    ],
)
def test_bad_arguments_of_a_run_are_refused(
    tmp_path: Path, named: dict[str, Any], said: str
) -> None:
    with pytest.raises(EbbflowError, match=said):
        sessions(tmp_path).run(stock_grid(), initial(), **named)
    assert not (tmp_path / "history").exists()


def test_keys_may_be_named_by_a_text(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('["a", "b"]')
    assert sessions(tmp_path, keys=str(path)).keys == ["a", "b"]
    assert sessions(tmp_path, keys=path).keys == ["a", "b"]


def test_another_model_or_seed_does_not_go_on(tmp_path: Path) -> None:
    sessions(tmp_path, sessions=1).run(stock_grid(), initial())
    with pytest.raises(EbbflowError, match="was begun with the seed 1, not 2"):
        sessions(tmp_path, seed=2).run(stock_grid(), initial())
    other = ArrayRecord({"w": initial()["layers.0.weight"]})
    with pytest.raises(EbbflowError, match="holds a federation of another model"):
        sessions(tmp_path).run(stock_grid(), other)


def test_integer_arrays_are_kept_out_and_come_back() -> None:
    arrays = initial()
    form = form_of(arrays)
    assert list(form.counters) == ["layers.1.num_batches_tracked"]
    assert form.buffer_layout.names == ("layers.1.running_mean", "layers.1.running_var")
    back = form.arrays(form.state(arrays))
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].numpy().dtype == array.numpy().dtype
        assert (back[name].numpy() == array.numpy()).all()


def test_a_limit_on_lengths_is_above_one() -> None:
    with pytest.raises(EbbflowError, match="norm is 1"):
        Checks(norm=1)


def test_a_strategy_may_call_the_number_of_samples_otherwise(tmp_path: Path) -> None:
    grid = stock_grid()

    def renamed(content: Any) -> Any:
        (metrics,) = content.metric_records.values()
        metrics["n"] = metrics.pop("num-examples")
        return content

    for node in grid.nodes.values():
        node.spoil = renamed
    factory = partial(FedAvg, weighted_by_key="n", fraction_evaluate=0.0)
    sessions(tmp_path, factory, sessions=1).run(grid, initial())
    assert all(line["used"] == [0, 1, 2, 3, 4] for line in lines(tmp_path) if line["round"])


def test_evaluations_that_differ_are_left_out(tmp_path: Path) -> None:
    grid = stock_grid()
    plain = grid._reply

    def odd(node: Any, message: Any) -> Any:
        reply = plain(node, message)
        if node is grid.nodes[101] and message.metadata.message_type == "evaluate":
            (metrics,) = reply.content.metric_records.values()
            metrics["more"] = 1.0
        return reply

    grid._reply = odd  # type: ignore[method-assign]
    sessions(tmp_path, sessions=1).run(grid, initial())
    assert all("eval_acc" in line["evaluate"] for line in lines(tmp_path) if line["round"])
