"""Nodes asked with a deadline: one that hangs holds up nobody, and an outage is nobody's fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

pytest.importorskip("flwr", reason='needs Flower: pip install "ebbflow[flower]"')

from flwr.app import Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.flower import crowd
from ebbflow.flower.crowd import Crowd, DeviceNumbers, key_of
from ebbflow.flower.local import LocalGrid, Node, local_key


def echo() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"a": 1})}), reply_to=message)

    return app


def grid_of(kind: type[LocalGrid], count: int = 3) -> LocalGrid:
    return kind({node: Node(echo()) for node in range(count)})


def asked(grid: LocalGrid, here: Crowd, deadline: float) -> tuple[crowd.Answers, float]:
    nodes = {one.node_id: device for device, one in here.present().items()}
    messages = [Message(RecordDict(), node, MessageType.TRAIN) for node in nodes]
    began = time.monotonic()
    answers = here.ask(messages, nodes, deadline)
    return answers, time.monotonic() - began


class HangingGrid(LocalGrid):
    """A node has announced its reply and died: who pulls it waits."""

    release = threading.Event()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        keys = list(message_ids)
        if "message 2" in keys:
            self.release.wait(20)
        return super().pull_messages(keys)


def test_a_reply_that_hangs_holds_up_no_other() -> None:
    grid = grid_of(HangingGrid)
    here = Crowd(grid, DeviceNumbers())
    try:
        answers, seconds = asked(grid, here, 0.5)
        assert list(answers.replies) == [0, 2]
        assert answers.late == (1,)
        assert seconds < 2
        assert here.busy() == {1}
    finally:
        HangingGrid.release.set()
    until = time.monotonic() + 5
    while here.busy() and time.monotonic() < until:
        time.sleep(0.01)
    assert not here.busy()  # its reply has come, too late to be used


class AwayGrid(LocalGrid):
    """A SuperLink that is away for a second from the first look on."""

    back = 0.0

    def _wait(self) -> None:
        self.back = self.back or time.monotonic() + 1.0
        time.sleep(max(0.0, self.back - time.monotonic()))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        if not self.back or time.monotonic() < self.back:
            self._wait()
            raise ConnectionError("the SuperLink is away")
        return super().pull_messages(message_ids)

    def get_node_ids(self) -> Iterable[int]:
        if self.back:
            self._wait()
        return super().get_node_ids()


def test_an_outage_moves_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "OUTAGE", 0.2)
    monkeypatch.setattr(crowd, "PING", 0.1)
    grid = grid_of(AwayGrid)
    answers, seconds = asked(grid, Crowd(grid, DeviceNumbers()), 0.6)
    assert list(answers.replies) == [0, 1, 2]
    assert seconds > 0.9


class RefusingGrid(LocalGrid):
    """A SuperLink that takes no message for one of the nodes."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[Any]:
        keys: list[str | None] = list(super().push_messages(messages))
        keys[1] = None
        return keys


def test_a_message_that_is_refused_is_a_failure() -> None:
    grid = grid_of(RefusingGrid)
    answers, _ = asked(grid, Crowd(grid, DeviceNumbers()), 1.0)
    assert list(answers.replies) == [0, 2]
    assert answers.failed == {1: "the SuperLink refused the message"}
    assert answers.asked == 3


@given(st.lists(st.sampled_from("abcdefgh"), max_size=30))
def test_numbers_stay_with_their_keys(seen: list[str]) -> None:
    numbers = DeviceNumbers(["a", "b"])
    found = {key: numbers.number(key) for key in seen}
    assert all(numbers.number(key) == number for key, number in found.items())
    assert sorted(numbers.number(key) for key in numbers.keys) == list(range(len(numbers.keys)))
    assert numbers.number("a") == 0


def test_keys_are_known_by_their_digests() -> None:
    assert key_of(local_key(1), 5) == key_of(local_key(1) + b"\n", 9) != key_of(local_key(2), 5)
    assert key_of(b"", 5) == "node 5"
