"""A federation in this process, to try an app and its failures before any machine is involved.

`LocalGrid` hands every message to a real ClientApp, without a SuperLink. Nodes can be made to
leave, to fall silent and to send nonsense.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

LEASE = 30.0
"""Seconds for which a node counts as online after it was last heard of."""
RAISED, UNAVAILABLE = 2, 5
"""What Flower calls the errors of an app that raises, and of a node that is gone."""


@dataclass
class Node:
    """A node: its app, its configuration, and how it misbehaves.

    Attributes:
        app: The ClientApp that it runs.
        config: Its node configuration.
        online: Whether it is there.
        silent: Whether it gets messages and never answers.
        spoil: Changes what it sends after training.
        asked: How many messages it was sent.
    """

    app: ClientApp
    config: Mapping[str, Any] = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    spoil: Callable[[RecordDict], RecordDict] | None = None
    asked: int = 0


class LocalGrid(Grid):
    """A grid whose nodes, by their ids, answer at once."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        # A message asks who sends it, which only a process that Flower started knows.
        TaskIdentity._run_id, TaskIdentity._node_id, TaskIdentity._task_id = 1, 1, 1
        self.nodes = dict(nodes)
        self._pushed = 0
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are online."""
        return [node for node, one in self.nodes.items() if one.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return what is known about them."""
        return [
            NodeInfo(node_id=n, public_key=local_key(n), online_until=time.time() + LEASE)
            for n in self.get_node_ids()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let nodes answer, for the next look."""
        keys = []
        for message in messages:
            self._pushed += 1
            key = f"message {self._pushed}"
            message.metadata.__dict__["_message_id"] = key
            keys.append(key)
            node = self.nodes[message.metadata.dst_node_id]
            node.asked += 1
            if not node.silent:
                self._replies[key] = self._reply(node, message)
        return keys

    def _reply(self, node: Node, message: Message) -> Message:
        if not node.online:
            return Message(Error(UNAVAILABLE, "the node is not online"), reply_to=message)
        context = Context(
            run_id=1,
            node_id=message.metadata.dst_node_id,
            node_config=dict(node.config),
            state=RecordDict(),
            run_config={},
        )
        try:
            reply = node.app(message, context)
        except Exception as error:  # as a SuperNode does
            return Message(Error(RAISED, str(error)), reply_to=message)
        if node.spoil is not None and message.metadata.message_type == "train":
            return Message(node.spoil(reply.content), reply_to=message)
        return reply

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers that are there."""
        return [self._replies.pop(key) for key in list(message_ids) if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return the answers to some messages."""
        return self.pull_messages(self.push_messages(messages))

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a new message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def set_run(self, run: Any) -> None:
        """Do nothing: there is no run."""

    @property
    def run(self) -> Any:
        """There is no run."""
        raise NotImplementedError("a grid in one process belongs to no Flower run")


def local_key(node_id: int) -> bytes:
    """Return what stands for a node's public key."""
    return b"key of node %d" % node_id
