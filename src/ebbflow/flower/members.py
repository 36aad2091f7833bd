"""The members of a session, as strategies see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from ebbflow.core.algorithm import Population
from ebbflow.flower.wire import Form


class Opening(NamedTuple):
    """What is known when a session opens: its number, members and model.

    ``members`` maps the numbers of devices to their numbers of samples; it is what a function that
    makes strategies may use, for example as ``num_sampled_clients``.
    """

    session: int
    members: Mapping[int, int]
    form: Form
    seed: int

    @property
    def population(self) -> Population:
        """How many devices and samples the session has."""
        return Population(len(self.members), sum(self.members.values()))


@dataclass
class MembersGrid(Grid):
    """A grid that shows a strategy the free members of a session, and nobody else.

    A strategy only draws nodes from it. Sending is the crowd's business, so that deadlines and
    checks cannot be passed by.
    """

    outer: Grid
    devices: dict[int, int] = field(default_factory=dict)  # by node id

    @property
    def node_of(self) -> dict[int, int]:
        """The node of each device that can be asked."""
        return {device: node for node, device in self.devices.items()}

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that can be asked, in the order of their devices' numbers."""
        return sorted(self.devices, key=self.devices.__getitem__)

    def get_nodes(self) -> Iterable[Any]:
        """Return what Flower knows about them."""
        return [node for node in self.outer.get_nodes() if node.node_id in self.devices]

    @property
    def run(self) -> Any:
        """The Flower run."""
        return self.outer.run

    def set_run(self, run: Any) -> None:
        """Set the Flower run."""
        self.outer.set_run(run)

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

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: only the crowd sends."""
        raise NotImplementedError(_CLOSED)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse: only the crowd receives."""
        raise NotImplementedError(_CLOSED)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Refuse: only the crowd sends."""
        raise NotImplementedError(_CLOSED)


_CLOSED = (
    "a strategy within Sessions cannot send messages by itself: return them from configure_train "
    "or configure_evaluate"
)
