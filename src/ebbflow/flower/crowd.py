"""The nodes of a federation: who is here, what they are asked, and who answers in time.

Flower says little about nodes that fail: an error may come from the SuperLink instead of the node,
and a reply that is late is never heard of again, while its job still blocks the node. So a crowd
remembers which node each message went to, polls by itself until a deadline, and does not ask a node
again that still has work to do.
"""

from __future__ import annotations

import hashlib
import math
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from logging import DEBUG
from typing import NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore import log

POLL = 0.2
"""Seconds between two looks for the reply of a node, where few are asked."""
SHARE = 0.1
"""Seconds between two looks for any reply: of 50 nodes, each is looked after every five seconds."""
LATE_POLL = 2.0
"""Seconds between two looks for a reply that is late."""
OUTAGE = 5.0
"""If the SuperLink takes longer than so many seconds to answer, it was away; the deadline moves by
as long, because no node could answer meanwhile."""
PING = 1.0
"""Seconds between two questions whether the SuperLink is there."""
LINGER = 60.0
"""Seconds after the deadline, beside another deadline's time, during which a late reply is still
accepted by the SuperLink, so that a node is known to be free again."""


class Present(NamedTuple):
    """A node that is here: its number for good, what Flower calls it, and when it last came."""

    device: int
    node_id: int
    came: str = ""


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
class DeviceNumbers:
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


class _Waiting(threading.Thread):
    """Waits for the reply of one node, for as long as it may take.

    A node announces its reply before it sends it. If it dies in between, whoever pulls the reply
    waits for minutes; so nobody else's reply is pulled with it.
    """

    def __init__(
        self, grid: Grid, message: str, node: int, arrived: queue.Queue[_Arrived], every: float
    ) -> None:
        super().__init__(name=f"reply of node {node}", daemon=True)
        self._grid, self._message, self._arrived = grid, message, arrived
        self.node, self.every = node, every
        self.until = math.inf
        self.answered = False
        self.over = threading.Event()

    def run(self) -> None:
        """Look for the reply again and again."""
        while not self.over.is_set() and time.monotonic() < self.until:
            try:
                replies = list(self._grid.pull_messages([self._message]))
            except Exception as error:  # the SuperLink is away, or refuses; it may be back soon
                log(DEBUG, "no reply of node %s yet: %s", self.node, error)
                replies = []
            if replies:
                self._arrived.put((self.node, replies[0]))
                self.answered = True
                break
            self.over.wait(self.every)
        self.over.set()


_Arrived = tuple[int, Message]


class Crowd:
    """The nodes behind a grid, asked with a deadline."""

    def __init__(self, grid: Grid, devices: DeviceNumbers) -> None:
        self.grid, self.devices = grid, devices
        self._late: dict[int, _Waiting] = {}  # by node: what it has not answered in time
        self.heard: set[int] = set()  # the nodes that have answered too late

    def present(self) -> dict[int, Present]:
        """Return the nodes with a recent heartbeat, by the numbers of their devices."""
        now = time.time()
        nodes = sorted(self.grid.get_nodes(), key=lambda node: node.node_id)
        # A node whose lease is over is gone, even where the list still has it.
        online = [n for n in nodes if not n.HasField("online_until") or n.online_until > now]
        found = [
            Present(
                self.devices.number(key_of(node.public_key, node.node_id)),
                node.node_id,
                node.last_activated_at,
            )
            for node in online
        ]
        return {one.device: one for one in sorted(found)}

    def busy(self) -> frozenset[int]:
        """Return the ids of the nodes that still work on something they were asked before.

        Whatever a late reply says, and if only that the message has expired: the node is free.
        """
        over = {n: one for n, one in self._late.items() if one.over.is_set()}
        self.heard |= {n for n, one in over.items() if one.answered}
        self._late = {n: one for n, one in self._late.items() if n not in over}
        return frozenset(self._late)

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
        if not messages:
            return Answers({}, {}, ())
        for message in messages:
            message.metadata.ttl = 2 * deadline + LINGER
        began = time.monotonic()
        keys = list(self.grid.push_messages(messages))
        pushed = time.monotonic()
        # Sending counts, too, unless the SuperLink was away and no node could have answered.
        until = deadline + (began if pushed - began <= OUTAGE else pushed)
        arrived: queue.Queue[_Arrived] = queue.Queue()
        every = max(POLL, SHARE * len(messages))
        nodes = [message.metadata.dst_node_id for message in messages]
        waiting = {
            node: _Waiting(self.grid, key, node, arrived, every)
            for key, node in zip(keys, nodes, strict=True)
            if key
        }
        failed = {
            numbers[node]: "the SuperLink refused the message"
            for node in nodes
            if node not in waiting
        }
        replies: dict[int, Message] = {}
        for one in waiting.values():
            one.start()
        for node, reply in self._arriving(arrived, len(waiting), until):
            del waiting[node]
            if reply.has_error():
                failed[numbers[node]] = reason_of(reply)
            else:
                replies[numbers[node]] = reply
        for one in waiting.values():
            one.every, one.until = LATE_POLL, time.monotonic() + deadline + LINGER
        self._late |= waiting
        late = tuple(sorted(numbers[node] for node in waiting))
        return Answers(dict(sorted(replies.items())), dict(sorted(failed.items())), late)

    def _arriving(
        self, arrived: queue.Queue[_Arrived], count: int, until: float
    ) -> Iterator[_Arrived]:
        """Yield replies as they come, until all are there or the time is over."""
        asked = time.monotonic()
        while count:
            try:
                yield arrived.get(timeout=min(POLL, max(0.001, until - time.monotonic())))
                count -= 1
                continue
            except queue.Empty:
                now = time.monotonic()
            if now - asked > PING:
                self.grid.get_node_ids()  # is the SuperLink there?
                asked = time.monotonic()
                until += asked - now if asked - now > OUTAGE else 0.0
            if time.monotonic() >= until:
                return


def reason_of(reply: Message) -> str:
    """Return why there is no answer, on one line."""
    return one_line(f"error {reply.error.code}: {reply.error.reason or 'no reason given'}")


def one_line(said: str) -> str:
    """Return what a node has a part in on one line, which is not too long for a log."""
    return " ".join(said.split())[:300]
