"""The nodes of a federation: who is here, what they are asked, and who answers in time.

Flower says little about nodes that fail: an error may come from the SuperLink instead of the node,
and a reply that is late is never heard of again, while its job still blocks the node. So a crowd
remembers which node each message went to, polls by itself until a deadline, and does not ask a node
again that still has work to do.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid

POLL = 0.2
"""Seconds between two looks for replies."""
OUTAGE = 2.0
"""A look that takes longer than this many seconds has waited for a SuperLink that was away; the
deadline moves by as long, because no node could answer meanwhile."""
LINGER = 60.0
"""Seconds after the deadline, beside another deadline's time, during which a late reply is still
accepted by the SuperLink, so that a node is known to be free again."""


class Present(NamedTuple):
    """A node that is here: its number for good, and what Flower calls it at present."""

    device: int
    node_id: int


class Answers(NamedTuple):
    """What came of a question: replies by device, why others failed, and who did not answer.

    Devices are in the order of their numbers.
    """

    replies: dict[int, Message]
    failed: dict[int, str]
    late: tuple[int, ...]

    @property
    def asked(self) -> int:
        """How many were asked."""
        return len(self.replies) + len(self.failed) + len(self.late)


@dataclass
class Devices:
    """The numbers of devices, which stay: by public key, or by node id where there are no keys.

    ``keys`` may list keys from the beginning; whoever is not listed gets the next number.
    """

    keys: list[str] = field(default_factory=list)

    def number(self, key: str) -> int:
        """Return a device's number, a new one if it is new."""
        if key not in self.keys:
            self.keys.append(key)
        return self.keys.index(key)


def key_of(public_key: bytes, node_id: int) -> str:
    """Return what a device is known by."""
    if public_key:
        return hashlib.sha256(public_key.strip()).hexdigest()
    return f"node {node_id}"


class Crowd:
    """The nodes behind a grid, asked with a deadline."""

    def __init__(
        self,
        grid: Grid,
        devices: Devices,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.grid, self.devices = grid, devices
        self._clock, self._sleep = clock, sleep
        self._outstanding: dict[int, str] = {}  # by node: the message that it has not answered

    def present(self) -> dict[int, Present]:
        """Return the nodes with a recent heartbeat, by the numbers of their devices."""
        now = time.time()
        nodes = sorted(self.grid.get_nodes(), key=lambda node: node.node_id)
        # A node whose lease is over is gone, even where the list still has it.
        online = [n for n in nodes if not n.HasField("online_until") or n.online_until > now]
        found = [
            Present(self.devices.number(key_of(node.public_key, node.node_id)), node.node_id)
            for node in online
        ]
        return {one.device: one for one in sorted(found)}

    def busy(self) -> frozenset[int]:
        """Return the ids of the nodes that still work on something they were asked before."""
        if self._outstanding:
            waiting = {message: node for node, message in self._outstanding.items()}
            for reply in self.grid.pull_messages(list(waiting)):
                # Whatever it says, and if only that the message has expired: the node is free.
                self._outstanding.pop(waiting[reply.metadata.reply_to_message_id], None)
        return frozenset(self._outstanding)

    def ask(
        self, messages: Iterable[Message], numbers: Mapping[int, int], deadline: float
    ) -> Answers:
        """Send messages and wait for the replies, until the deadline in seconds.

        Args:
            messages: At most one for each node.
            numbers: The device numbers of nodes, by node id.
            deadline: The most seconds to wait.
        """
        messages = list(messages)
        for message in messages:
            message.metadata.ttl = 2 * deadline + LINGER
        began = self._clock()
        sent = zip(self.grid.push_messages(messages), messages, strict=True) if messages else ()
        waiting = {key: m.metadata.dst_node_id for key, m in sent if key}
        replies: dict[int, Message] = {}
        failed = {
            numbers[m.metadata.dst_node_id]: "the SuperLink refused the message"
            for m in messages
            if m.metadata.dst_node_id not in waiting.values()
        }
        while waiting:
            asked = self._clock()
            arrived = self.grid.pull_messages(list(waiting))
            for reply in arrived:
                node = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    failed[numbers[node]] = reason_of(reply)
                else:
                    replies[numbers[node]] = reply
            now = self._clock()
            if now - asked > OUTAGE:
                began += now - asked
            if not waiting or now - began >= deadline:
                break
            self._sleep(min(POLL, max(0.0, deadline - (now - began))))
        self._outstanding |= {node: message for message, node in waiting.items()}
        late = tuple(sorted(numbers[node] for node in waiting.values()))
        return Answers(dict(sorted(replies.items())), dict(sorted(failed.items())), late)


def reason_of(reply: Message) -> str:
    """Return why there is no answer, on one line."""
    reason = reply.error.reason or "no reason given"
    return f"error {reply.error.code}: {' '.join(reason.split())[:300]}"
