"""Nodes in this process: a grid that hands every message to a real ClientApp."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Spoil = Callable[[RecordDict], RecordDict]


@dataclass
class Node:
    """A node: its app, and how it misbehaves."""

    app: ClientApp
    config: dict[str, Any]
    online: bool = True
    silent: bool = False
    spoil: Spoil | None = None
    answered: list[RecordDict] = field(default_factory=list)
    asked: int = 0


class LocalGrid(Grid):
    """Answers at once, in this process; a silent node never answers, an absent one is an error."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = 1, 1, 1
        self.nodes = nodes
        self._replies: dict[str, Message] = {}
        self.before_push: Callable[[list[Message]], None] | None = None

    def get_node_ids(self) -> Iterable[int]:
        return [node for node, one in self.nodes.items() if one.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=n, public_key=b"key %d" % n, online_until=time.time() + 30)
            for n in self.get_node_ids()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        if self.before_push is not None:
            self.before_push(messages)
        keys = []
        for message in messages:
            key = f"{len(self._replies)}-{id(message)}"
            message.metadata.__dict__["_message_id"] = key
            keys.append(key)
            node = self.nodes[message.metadata.dst_node_id]
            node.asked += 1
            if not node.silent:
                self._replies[key] = self._reply(node, message)
        return keys

    def _reply(self, node: Node, message: Message) -> Message:
        if not node.online:
            return Message(Error(code=5, reason="node unavailable"), reply_to=message)
        context = Context(
            run_id=1,
            node_id=message.metadata.dst_node_id,
            node_config=node.config,
            state=RecordDict(),
            run_config={},
        )
        try:
            reply = node.app(message, context)
        except Exception as error:
            return Message(Error(code=2, reason=str(error)), reply_to=message)
        if node.spoil is not None and message.metadata.message_type == "train":
            reply = Message(node.spoil(reply.content), reply_to=message)
        node.answered.append(reply.content)
        return reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._replies.pop(key) for key in list(message_ids) if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        """Nothing to set."""

    @property
    def run(self) -> Any:
        raise NotImplementedError
