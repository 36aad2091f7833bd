"""What the gate lets through, and how much of it: the rules alone, without a network.

A request passes if it is one of the requests that Flower's nodes send, to the letter. Its path is
compared as it came, before anything is decoded: ``..``, ``%2e``, ``//``, another case, a trailing
slash, a query and a whole address in place of a path make it another path. What is sent on is put
together anew from the rules' own path, the few headers named here and the body, whose length must
have been declared; so there is nothing that the gate and the SuperLink could read differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

KIB, MIB = 1024, 1024 * 1024
_SMALL = 64 * KIB
"""Enough for keys, numbers of nodes and names of objects, which is all that most requests hold."""
_TREES = 8 * MIB
"""Enough for the list of a message's objects; the objects themselves come one by one."""

PUSH_MESSAGES = "/v1/fleet/push-messages"
PUSH_OBJECT = "/v1/fleet/push-object"
LARGEST_BODIES: Mapping[str, int | None] = MappingProxyType(
    {
        "/v1/fleet/register-node": _SMALL,
        "/v1/fleet/activate-node": _SMALL,
        "/v1/fleet/deactivate-node": _SMALL,
        "/v1/fleet/unregister-node": _SMALL,
        "/v1/fleet/send-node-heartbeat": _SMALL,
        "/v1/fleet/pull-messages": _SMALL,
        PUSH_MESSAGES: _TREES,
        "/v1/fleet/get-run": _SMALL,
        "/v1/fleet/get-fab": _SMALL,
        PUSH_OBJECT: None,
        "/v1/fleet/pull-object": _SMALL,
        "/v1/fleet/confirm-message-received": _SMALL,
    }
)
"""All routes that are open, with the largest body in bytes; None stands for the setting."""

PASSED_ON = (
    "content-type",
    "accept",
    "flwr-public-key",
    "flwr-timestamp",
    "flwr-signature",
    "flwr-package-name",
    "flwr-package-version",
    "flwr-component-name",
)
"""The headers of a request that the SuperLink gets to see: the body's type, the node's signature of
a moment, and its version of Flower. Nothing else of what a client says about itself."""
PASSED_BACK = ("content-type", "flwr-version-incompatibility-message")
"""The headers of an answer that a node gets to see, besides the answer's length."""

OPEN_ROUTES = frozenset(path.encode("ascii") for path in LARGEST_BODIES)


@dataclass(frozen=True)
class Limits:
    """How much the gate takes upon itself, in bytes, seconds and numbers."""

    largest_body: int = 32 * MIB
    """Of a pushed object, and of any answer; Flower cuts arrays into pieces of 5 MiB."""
    largest_head: int = 16 * KIB
    ahead: int = _SMALL
    """So much of a body is read before the SuperLink hears of the request."""
    connections: int = 512
    requests: int = 128
    """At the same time; further ones are told to come again."""
    uploads: int = 16
    """Of bodies larger than `ahead`, at the same time: the SuperLink holds each of them in memory
    before it looks at whose it is."""
    uploads_each: int = 4
    """Of one node, or of one address if no keys are known; Flower's nodes push two objects at a
    time."""
    slowest: int = 16 * KIB
    """Bytes in a second that a body must have on average, after its first `piece_seconds`: an
    object of Flower's could not arrive in `whole_seconds` otherwise."""
    head_seconds: float = 10.0
    """Within which the first request's head must have arrived, and before it TLS agreed."""
    idle_seconds: float = 65.0
    """Within which the next request's head must have arrived."""
    piece_seconds: float = 20.0
    """Within which the next piece of a body must have arrived, or of an answer been taken."""
    whole_seconds: float = 300.0
    """For a request and its answer."""
    answer_seconds: float = 30.0
    """Within which the SuperLink must begin to answer; nodes themselves wait no longer."""


class RefusedError(Exception):
    """A request that is not let through: the status of the answer, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class Admitted:
    """A request that may pass, as far as its head can tell."""

    path: str
    headers: dict[str, bytes]
    length: int
    """Of its body, in bytes."""


def admit(
    method: str,
    raw_path: bytes,
    query: bytes,
    version: str,
    headers: Iterable[tuple[bytes, bytes]],
    limits: Limits,
) -> Admitted:
    """Return what may be passed on of a request, by its head; raise `RefusedError` otherwise.

    Statuses are chosen by what Flower's nodes make of them: 401 would end a node, 403 would end
    its run, 412 is what the SuperLink says of a key that is not registered, and 502, 503 and 504
    let it try again.

    >>> head = [(b"content-length", b"3"), (b"cookie", b"x"), (b"accept", b"a/b")]
    >>> admit("POST", b"/v1/fleet/get-run", b"", "1.1", head, Limits())
    Admitted(path='/v1/fleet/get-run', headers={'accept': b'a/b'}, length=3)
    """
    if version != "1.1" or method != "POST" or raw_path not in OPEN_ROUTES or query:
        raise RefusedError(404, "only the requests of Flower's nodes are open here")
    path = raw_path.decode("ascii")
    fields: dict[str, list[bytes]] = {}
    size = 0
    for raw_name, value in headers:
        size += len(raw_name) + len(value) + len(": \r\n")
        fields.setdefault(raw_name.decode("latin-1").lower(), []).append(value)
    if size > limits.largest_head:
        raise RefusedError(431, f"its head is larger than {limits.largest_head:,} bytes")
    if "upgrade" in fields:
        raise RefusedError(400, "no other protocol is spoken here")
    if "transfer-encoding" in fields:
        raise RefusedError(411, "a body must come with its length, and with nothing but that")
    length = _length(fields.get("content-length", []))
    largest = LARGEST_BODIES[path]
    largest = limits.largest_body if largest is None else largest
    if length > largest:
        raise RefusedError(413, f"its body has {length:,} bytes, and may have {largest:,}")
    passed_on: dict[str, bytes] = {}
    for name in PASSED_ON:
        values = fields.get(name, [])
        if len(values) > 1:
            raise RefusedError(400, f"it has the header {name} {len(values)} times")
        if values:
            passed_on[name] = values[0]
    return Admitted(path, passed_on, length)


def _length(values: list[bytes]) -> int:
    if len(values) != 1:
        raise RefusedError(411, "a body must come with its length, once")
    # Python would also read a sign, underscores and spaces as parts of a number.
    if not values[0].isdigit() or len(values[0]) > len(str(1 << 63)):
        raise RefusedError(400, "its length is no number")
    return int(values[0])
