"""A grid whose messages a test sees before they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from flwr.app import Message

from ebbflow.flower.local import LocalGrid, Node


class WatchedGrid(LocalGrid):
    """Calls ``before_push`` with every list of messages."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        super().__init__(nodes)
        self.before_push: Callable[[list[Message]], None] | None = None

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        if self.before_push is not None:
            self.before_push(messages)
        return super().push_messages(messages)
