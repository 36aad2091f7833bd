"""Whether a node speaks for itself: what Flower does not check of the messages that nodes push.

Flower makes sure that the node a request names is the one whose key has signed. The messages in the
request name their sender once more, and that it believes: a node that knows another's number and
the name of a message to it could answer in its place, and one that names the SuperLink as the
sender could give other nodes instructions. The gate lets through replies of the node itself.
"""

from __future__ import annotations

from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError


def objection_to(body: bytes) -> str | None:
    """Return why pushed messages must not pass, or None if all are the node's own replies.

    >>> objection_to(PushMessagesRequest().SerializeToString())
    >>> objection_to(b"nonsense")
    'it holds no messages that can be read'
    """
    request = PushMessagesRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        return "it holds no messages that can be read"
    for message in request.messages_list:
        if message.metadata.src_node_id != request.node.node_id:
            return (
                f"node {request.node.node_id} has sent a message in the name of "
                f"{message.metadata.src_node_id}"
            )
        if not message.metadata.reply_to_message_id:
            return f"node {request.node.node_id} has sent a message that is no reply"
    return None
