"""Nothing but what nodes ask for passes the gate, whatever is sent, and the gate stands."""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="federations need Flower: pip install 'ebbflow[flower]'")

import httpx
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.superlink.routers.fleet.router import router
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.routing import Route

from ebbflow.core.errors import EbbflowError
from ebbflow.flower.gate.command import Address, GateSettings, check_settings, main, parse_address
from ebbflow.flower.gate.journal import Journal
from ebbflow.flower.gate.keys import HEADER, Keyring, key_bytes
from ebbflow.flower.gate.messages import objection_to
from ebbflow.flower.gate.rules import KIB, LARGEST_BODIES, MIB, PUSH_MESSAGES, PUSH_OBJECT, Limits
from ebbflow.flower.launch.identities import make_node_key
from tests.flower.gates import (
    Certificates,
    StandIn,
    free_port,
    gate,
    is_open,
    make_certificates,
    post,
    raw,
    standing,
    wait_for,
)

ROUTE = "/v1/fleet/get-run"
ELSEWHERE = "/v1/control/start-run"
HEAD = b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"POST /v1/control/start-run HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
QUICK = Limits(head_seconds=0.3, idle_seconds=0.5, piece_seconds=0.3, answer_seconds=0.5)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def open_gate() -> Iterator[tuple[int, StandIn]]:
    """Open a gate without TLS, which all tests that only ask share."""
    behind = StandIn()
    with standing(behind) as to, gate(to) as port:
        yield port, behind


@pytest.fixture
def plain(open_gate: tuple[int, StandIn]) -> tuple[int, StandIn]:
    port, behind = open_gate
    behind.arrived.clear()
    return port, behind


def test_the_routes_are_those_of_flowers_fleet_api() -> None:
    theirs = set()
    for route in router.routes:
        assert isinstance(route, Route)
        theirs |= {(route.path, method) for method in route.methods or ()}
    assert theirs == {(path, "POST") for path in LARGEST_BODIES}


@pytest.mark.parametrize("path", [path for path in LARGEST_BODIES if path != PUSH_MESSAGES])
def test_every_route_of_a_node_is_open(plain: tuple[int, StandIn], path: str) -> None:
    port, behind = plain
    answer = post(port, path, b"what a node says")
    assert (answer.status_code, answer.content) == (200, b"answer")
    (arrived,) = behind.arrived
    assert (arrived.method, arrived.path, arrived.query) == ("POST", path.encode(), b"")
    assert arrived.length == len(b"what a node says")


def test_flowers_own_client_finds_no_difference(certificates: Certificates) -> None:
    behind = StandIn(answer=b"")
    private, public = generate_key_pairs()
    with (
        standing(behind, certificates) as to,
        gate(to, certificates) as port,
        FleetHttpClient.from_server_address(
            f"127.0.0.1:{port}",
            False,
            certificates.authority.read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, public),
            ],
        ) as client,
    ):
        client.PullMessages(PullMessagesRequest(node=Node(node_id=7)))
        through = behind.arrived.pop()
        with FleetHttpClient.from_server_address(
            f"127.0.0.1:{to}",
            False,
            certificates.authority.read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, public),
            ],
        ) as direct:
            direct.PullMessages(PullMessagesRequest(node=Node(node_id=7)))
    beside = behind.arrived.pop()
    assert (through.path, through.digest) == (beside.path, beside.digest)
    flowers = {name for name, _ in beside.headers if name.startswith(b"flwr-")}
    assert len(flowers) == 6
    assert flowers == {name for name, _ in through.headers if name.startswith(b"flwr-")}
    for name in ("content-type", "accept", "flwr-public-key", "flwr-package-version"):
        assert through.header(name) == beside.header(name)


def test_only_the_headers_that_are_needed_are_passed_on(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    extra = {
        "cookie": "a=b",
        "authorization": "Bearer x",
        "x-forwarded-for": "1.2.3.4",
        "forwarded": "for=1.2.3.4",
        "flwr-task-token": "t",
        "flwr-superexec-signature": "s",
        "x-http-method-override": "GET",
        "x-original-url": ELSEWHERE,
        "connection": "keep-alive, flwr-signature",
        "te": "trailers",
        "flwr-signature": "signed",
    }
    answer = post(port, headers=extra)
    assert answer.status_code == 200
    (arrived,) = behind.arrived
    assert {name.decode().lower() for name, _ in arrived.headers} == {
        "host", "content-type", "accept", "accept-encoding", "content-length", "flwr-signature"
    }  # fmt: skip
    assert arrived.header("flwr-signature") == ["signed"]
    assert arrived.header("accept-encoding") == ["identity"]
    assert "x-secret" not in answer.headers
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [ELSEWHERE, "/v1/runtime/acquire-task", "/v1/control/register-node", "/", "/docs",
     "/openapi.json", "/health", "/v1/fleet", "/v1/fleet/", "/v1/fleet/start-run", ROUTE + "/",
     ROUTE + "?", ROUTE + "?a=b", ROUTE + "#a", ROUTE + ";a", ROUTE + "%20", ROUTE + "%00",
     "/" + ROUTE, "//v1/fleet/get-run", "/v1//fleet/get-run", "/V1/FLEET/GET-RUN",
     "/v1/fleet/Get-Run", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run",
     "/v1/fleet/..%2fcontrol/start-run", "/v1/fleet/.././fleet/get-run", "/v1/fleet/./get-run",
     "/v1/fleet/get%2drun", "/v1/fleet\\get-run", "/v1/fleet/get-run/../../control/start-run",
     "/%76%31/fleet/get-run", "v1/fleet/get-run", "*", "http://127.0.0.1/v1/fleet/get-run",
     "https://x/v1/control/start-run", "x:80"],
)  # fmt: skip
def test_any_other_path_is_refused(plain: tuple[int, StandIn], path: str) -> None:
    port, behind = plain
    rest = "Host: x\r\nConnection: close\r\nContent-Length: 0"
    answer = raw(port, f"POST {path} HTTP/1.1\r\n{rest}\r\n\r\n".encode())
    if path == ROUTE + "?":  # an empty query says nothing, and is not passed on
        assert [(a.path, a.query) for a in behind.arrived] == [(ROUTE.encode(), b"")]
        return
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"connection: close" in answer.lower()
    assert not behind.arrived


@pytest.mark.parametrize(
    "method",
    ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PRI", "post", "Post"],
)
def test_any_other_method_is_refused(plain: tuple[int, StandIn], method: str) -> None:
    port, behind = plain
    answer = raw(
        port, f"{method} {ROUTE} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert not behind.arrived


@pytest.mark.parametrize(
    ("request_bytes", "statuses"),
    [
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (411,), id="chunked"),
        pytest.param(
            HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
            (411,), id="both, the length first",
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
            (411,), id="both, the chunks first",
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
            (400,), id="unknown encoding",
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding : chunked\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
            (400,), id="space before the colon",
        ),
        pytest.param(
            HEAD + b"Content-Length: 0\r\nContent-Length: 70\r\n\r\n" + SMUGGLED,
            (400,), id="two lengths",
        ),
        pytest.param(HEAD + b"Content-Length: +0\r\n\r\n" + SMUGGLED, (400,), id="signed length"),
        pytest.param(HEAD + b"Content-Length: 0x0\r\n\r\n" + SMUGGLED, (400,), id="hexadecimal"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n", (400,), id="negative length"),
        pytest.param(HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", (400,), id="endless"),
        pytest.param(HEAD + b"\r\n", (411,), id="no length"),
        pytest.param(HEAD + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n", (400,), id="NUL"),
        pytest.param(
            HEAD + b"Content-Length: 0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            (400,), id="websocket",
        ),
        pytest.param(
            HEAD + b"Content-Length: 0\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n",
            (400,), id="HTTP/2",
        ),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 404), id="HTTP/2 preface"),
        pytest.param(
            b"POST /v1/fleet/get-run HTTP/1.0\r\nContent-Length: 0\r\n\r\n", (404,), id="HTTP/1.0"
        ),
        pytest.param(
            HEAD + b"Flwr-Signature: a\r\nflwr-signature: b\r\nContent-Length: 0\r\n\r\n",
            (400,), id="two signatures",
        ),
        pytest.param(
            HEAD + b"X: " + b"x" * (100 * KIB) + b"\r\nContent-Length: 0\r\n\r\n",
            (400, 431), id="huge header",
        ),
        pytest.param(
            HEAD + b"X: x\r\n" * 5000 + b"Content-Length: 0\r\n\r\n", (400, 431), id="many headers"
        ),
        pytest.param(
            b"POST /v1/fleet/get-run HTTP/1.1\r\nContent-Length: 0\r\n\r\n", (400,), id="no host"
        ),
        pytest.param(
            HEAD + b"X: a\r\n Content-Length: 3\r\nContent-Length: x\r\n\r\nabc",
            (400,), id="folded header",
        ),
        pytest.param(
            b"POST /v1/fleet/get-run HTTP/1.1 HTTP/1.1\r\n\r\n", (400,), id="two versions"
        ),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400,), id="TLS"),
        pytest.param(b"nonsense\r\n\r\n", (400,), id="nonsense"),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused(
    plain: tuple[int, StandIn], request_bytes: bytes, statuses: tuple[int, ...]
) -> None:
    port, behind = plain
    answer = raw(port, request_bytes)
    assert re.match(rb"HTTP/1\.1 (\d+) ", answer), answer
    assert int(answer[9:12]) in statuses
    assert answer.count(b"HTTP/1.1 ") == 1, "what came after it was answered as well"
    assert not behind.arrived


def test_bare_line_feeds_smuggle_nothing(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    lenient = HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 0\n\n" + SMUGGLED
    assert b" 404 " in raw(port, lenient)
    assert {arrived.path for arrived in behind.arrived} <= {ROUTE.encode()}


def test_requests_one_after_another_are_judged_one_by_one(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    fine = HEAD + b"Content-Length: 2\r\n\r\nhi"
    answer = raw(port, fine + fine + SMUGGLED + fine)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"200", b"200", b"404"]
    assert [arrived.path for arrived in behind.arrived] == [ROUTE.encode()] * 2


def test_a_body_that_looks_like_a_request_is_a_body(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    answer = post(port, PUSH_OBJECT, SMUGGLED * 5)
    assert answer.status_code == 200
    assert [(a.path, a.length) for a in behind.arrived] == [
        (PUSH_OBJECT.encode(), 5 * len(SMUGGLED))
    ]


def test_large_bodies_pass_in_both_directions_unchanged(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    content = bytes(range(256)) * (20 * MIB // 256)
    behind.answer, behind.pieces = b"x" * MIB, 9
    try:
        answer = post(port, PUSH_OBJECT, content)
    finally:
        behind.answer, behind.pieces = b"answer", 1
    (arrived,) = behind.arrived
    assert arrived.digest == hashlib.sha256(content).hexdigest()
    assert answer.content == b"x" * (9 * MIB)


def test_bodies_over_the_ceiling_are_refused_so_that_the_sender_hears_it(
    plain: tuple[int, StandIn],
) -> None:
    port, behind = plain
    for path, size in ((PUSH_OBJECT, 33 * MIB), (ROUTE, 65 * KIB), (PUSH_MESSAGES, 9 * MIB)):
        assert post(port, path, bytes(size)).status_code == 413, path
    declared = HEAD + b"Content-Length: 99999999999\r\n\r\nx"
    assert raw(port, declared, seconds=10).startswith(b"HTTP/1.1 413 ")
    assert not behind.arrived


@pytest.mark.parametrize("declared", [True, False])
def test_an_answer_over_the_ceiling_is_not_passed_back(declared: bool) -> None:
    behind = StandIn(answer=bytes(MIB), pieces=3)
    if declared:
        behind.headers = ((b"content-length", str(3 * MIB).encode()),)
    with standing(behind) as to, gate(to, limits=Limits(largest_body=2 * MIB)) as port:
        if declared:
            assert post(port).status_code == 502
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                post(port)


def test_answers_are_not_held_back(plain: tuple[int, StandIn]) -> None:
    """A socket that gathers small packets would make each answer wait for 40 ms."""
    port, _ = plain
    seconds = []
    with httpx.Client(trust_env=False) as client:
        for _ in range(30):
            began = time.perf_counter()
            assert client.post(f"http://127.0.0.1:{port}{ROUTE}", content=b"x").status_code == 200
            seconds.append(time.perf_counter() - began)
    assert statistics.median(seconds) < 0.03


def test_a_failing_superlink_is_passed_back_as_it_is(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    behind.status = 401
    try:
        answer = post(port)
    finally:
        behind.status = 200
    assert (answer.status_code, answer.content) == (401, b"answer")
    assert answer.headers["content-type"] == "application/protobuf"
    assert answer.headers["connection"] == "close"


def test_redirections_are_not_followed(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    behind.status, behind.headers = 307, ((b"location", ELSEWHERE.encode()),)
    try:
        answer = post(port)
    finally:
        behind.status, behind.headers = 200, ()
    assert answer.status_code == 307
    assert "location" not in answer.headers
    assert len(behind.arrived) == 1


# ------------------------------------------------------------------------------ slow and many


def test_who_says_nothing_or_half_a_head_is_sent_away(certificates: Certificates) -> None:
    behind = StandIn()
    with standing(behind) as to, gate(to, limits=QUICK) as port:
        for said in (b"", HEAD, HEAD + b"Content-Length: 0\r\n"):
            began = time.monotonic()
            assert raw(port, said) == b""
            assert 0.2 < time.monotonic() - began < 3
        # One byte now and then does not buy time, and neither does a finished request before it.
        began = time.monotonic()
        fine = HEAD + b"Content-Length: 0\r\n\r\n"
        answer = raw(port, fine, *(bytes([byte]) for byte in HEAD), pause=0.05)
        assert answer.count(b"HTTP/1.1 ") <= 1
        assert time.monotonic() - began < len(HEAD) * 0.05
        assert post(port).status_code == 200
    with standing(behind, certificates) as to, gate(to, certificates, QUICK) as port:
        began = time.monotonic()
        assert raw(port, b"\x16\x03\x01") == b"", "TLS that is never agreed on"
        assert time.monotonic() - began < 3


@pytest.mark.slow
def test_a_slow_body_does_not_reach_the_superlink_and_may_be_sent_again() -> None:
    behind = StandIn()
    with standing(behind) as to, gate(to, limits=QUICK) as port:
        assert raw(port, HEAD + b"Content-Length: 9\r\n\r\nhalf").startswith(b"HTTP/1.1 503 ")
        large = HEAD.replace(b"get-run", b"push-object") + b"Content-Length: 999999\r\n\r\n"
        assert raw(port, large, bytes(200_000)).startswith(b"HTTP/1.1 503 ")
        assert not behind.arrived
        assert post(port).status_code == 200
    with standing(behind) as to, gate(to, limits=replace(QUICK, whole_seconds=0.5)) as port:
        drip = [bytes(10)] * 30
        answer = raw(port, large, *drip, pause=0.1)
        assert answer.startswith(b"HTTP/1.1 503 ") or answer == b""


@pytest.mark.slow
def test_who_does_not_take_the_answer_is_cut_off(certificates: Certificates) -> None:
    behind = StandIn(answer=bytes(MIB), pieces=25)
    with standing(behind, certificates) as to, gate(to, certificates, QUICK) as port:
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        with certificates.trusted.wrap_socket(plain, server_hostname="127.0.0.1") as slow:
            slow.sendall(HEAD + b"Content-Length: 0\r\n\r\n")
            time.sleep(4)  # the gate's patience, and its farewell
            received = 0
            try:
                while piece := slow.recv(MIB):
                    received += len(piece)
            except (ssl.SSLError, ConnectionError):
                pass
        assert received < 25 * MIB
        behind.pieces = 1
        assert post(port, certificates=certificates).status_code == 200


def test_a_client_that_goes_away_takes_nothing_with_it(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    for part in (HEAD, HEAD + b"Content-Length: 9\r\n\r\nhalf"):
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(part)
            connection.close()
    assert post(port).status_code == 200
    assert len(behind.arrived) == 1


def test_there_is_a_ceiling_on_connections() -> None:
    behind = StandIn()
    limits = Limits(connections=5, head_seconds=30)
    with standing(behind) as to, gate(to, limits=limits) as port:
        idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(5)]
        time.sleep(0.2)
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)):
            post(port)  # which Flower's nodes take as a reason to try again
        for connection in idle:
            connection.close()
        wait_for(lambda: is_open(port))
    assert len(behind.arrived) == 1


def test_there_is_a_ceiling_on_requests_and_uploads() -> None:
    behind = StandIn(delay=0.5)
    with standing(behind) as to, gate(to, limits=Limits(requests=3)) as port:
        with ThreadPoolExecutor(8) as pool:
            statuses = sorted(a.status_code for a in pool.map(post, [port] * 8))
        assert statuses == [200] * 3 + [503] * 5
    behind = StandIn(delay=0.1)
    with standing(behind) as to, gate(to, limits=Limits(uploads=2)) as port:
        with ThreadPoolExecutor(8) as pool:
            sent = pool.map(lambda _: post(port, PUSH_OBJECT, bytes(200_000)), range(8))
            assert [answer.status_code for answer in sent] == [200] * 8
        assert behind.most_together <= 2


# -------------------------------------------------------------------------------------- keys


def named(public: Path) -> dict[str, str]:
    """Return the header by which a node names its key."""
    return {HEADER: b64encode(key_bytes(public)).decode()}


def test_who_names_no_key_of_the_folder_is_refused_before_the_body_is_read(tmp_path: Path) -> None:
    node, stranger = (make_node_key(tmp_path / name).public for name in ("keys/a", "elsewhere/b"))
    behind = StandIn()
    with standing(behind) as to, gate(to, keys=tmp_path / "keys") as port:
        for path in LARGEST_BODIES:
            if path != PUSH_MESSAGES:
                assert post(port, path, b"x", headers=named(node)).status_code == 200
            assert post(port, path, b"x", headers=named(stranger)).status_code == 412
            assert post(port, path, b"x").status_code == 412
        refused = raw(port, HEAD + b"Content-Length: 1000\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 412 ")
    assert len(behind.arrived) == len(LARGEST_BODIES) - 1


def test_keys_that_come_later_count_and_those_that_go_do_not(tmp_path: Path) -> None:
    now, said = [0.0], list[str]()
    journal = Journal(write=said.append)
    ring = Keyring(tmp_path, journal, clock=lambda: now[0])
    first = make_node_key(tmp_path / "first").public
    value = b64encode(key_bytes(first))
    assert ring.holds(value)
    second = b64encode(key_bytes(make_node_key(tmp_path / "second").public))
    assert not ring.holds(second)  # strangers do not make it look again at every request
    now[0] = 1.0
    assert ring.holds(second) and ring.holds(value)
    first.unlink()
    (tmp_path / "third.pub").write_text("nonsense")
    now[0] = 2.0
    assert not ring.holds(value) and ring.holds(second) and not ring.holds(b"")
    assert len(said) == 1 and "third.pub is no public key" in said[0]


@contextmanager
def dripping(port: int, connections: int, headers: dict[str, str] | None = None) -> Iterator[None]:
    """Begin to push large objects and send a byte of each now and then."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()).encode()
    head = HEAD.replace(b"get-run", b"push-object") + fields + b"Content-Length: 9999999\r\n\r\n"
    slow, over = list[socket.socket](), threading.Event()

    def drip() -> None:
        while not over.wait(0.05):
            for connection in slow:
                with suppress(OSError):
                    connection.sendall(b".")

    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.sendall(head)
        slow.append(connection)
    thread = threading.Thread(target=drip)
    thread.start()
    try:
        time.sleep(0.2)
        yield
    finally:
        over.set()
        thread.join()
        for connection in slow:
            connection.close()


def test_slow_strangers_stop_no_upload(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    node, stranger = (make_node_key(tmp_path / name).public for name in ("keys/a", "elsewhere/b"))
    limits, behind = Limits(piece_seconds=5, uploads=2, uploads_each=1), StandIn()
    with standing(behind) as to, gate(to, limits=limits, keys=keys) as port:
        for headers in ({}, named(stranger)):
            with dripping(port, 4, headers):
                answer = post(port, PUSH_OBJECT, bytes(200_000), headers=named(node))
                assert answer.status_code == 200
                assert answer.elapsed.total_seconds() < 2


def test_one_slow_node_does_not_hold_all_uploads(tmp_path: Path) -> None:
    slow, node = (make_node_key(tmp_path / name).public for name in ("a", "b"))
    limits, behind = Limits(piece_seconds=5, uploads=2, uploads_each=1), StandIn()
    with (
        standing(behind) as to,
        gate(to, limits=limits, keys=tmp_path) as port,
        dripping(port, 4, named(slow)),
    ):
        answer = post(port, PUSH_OBJECT, bytes(200_000), headers=named(node))
        assert answer.status_code == 200
        assert answer.elapsed.total_seconds() < 2


def test_who_sends_next_to_nothing_is_not_waited_for_long() -> None:
    limits, behind = Limits(piece_seconds=1.0, uploads=1), StandIn()
    with standing(behind) as to, gate(to, limits=limits) as port, dripping(port, 1):
        time.sleep(0.5)  # it has used up half of its second when this one begins to wait
        assert post(port, PUSH_OBJECT, bytes(200_000)).status_code == 200


# ------------------------------------------------------------------------------ the SuperLink


def test_nodes_are_told_to_come_again_while_the_superlink_is_down(
    certificates: Certificates,
) -> None:
    behind, to = StandIn(), free_port()
    with gate(to, certificates) as port:
        answer = post(port, certificates=certificates)
        assert answer.status_code == 502
        assert b"cannot be reached" in answer.content
        for _ in range(2):  # it comes, goes, and comes back
            with standing(behind, certificates, to):
                assert post(port, certificates=certificates).status_code == 200
            assert post(port, certificates=certificates).status_code == 502
    assert len(behind.arrived) == 2


def test_a_superlink_that_ends_does_not_wait_for_the_gate(certificates: Certificates) -> None:
    """Flower's would wait for half a minute, as long as asyncio gives TLS to say farewell."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        gate(listening.getsockname()[1], certificates) as port,
        ThreadPoolExecutor() as pool,
    ):
        asked = [pool.submit(post, port, certificates=certificates)]
        with context.wrap_socket(listening.accept()[0], server_side=True) as first:
            for again in (True, False):
                while not first.recv(65536).endswith(b"body"):
                    pass
                first.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                assert asked.pop().result().status_code == 200
                if again:  # at once, and so on the same connection
                    asked.append(pool.submit(post, port, certificates=certificates))
            began = time.monotonic()
            first.settimeout(10)
            assert first.recv(65536) == b"", "the gate has closed it"
            assert time.monotonic() - began < 5


def test_a_superlink_that_takes_too_long_is_not_waited_for() -> None:
    with standing(StandIn(delay=3)) as to, gate(to, limits=QUICK) as port:
        began = time.monotonic()
        assert post(port).status_code == 504
        assert time.monotonic() - began < 2.5


def test_who_pretends_to_be_the_superlink_gets_nothing(
    certificates: Certificates, tmp_path: Path
) -> None:
    pretender, others = StandIn(), make_certificates(tmp_path)
    with standing(pretender, others) as to, gate(to, certificates) as port:
        assert post(port, certificates=certificates).status_code == 502
    with standing(pretender) as to, gate(to, certificates) as port:
        assert post(port, certificates=certificates).status_code == 502
    assert not pretender.arrived


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, behind = StandIn(), StandIn()
    with standing(proxy) as elsewhere, standing(behind) as to:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere}")
        with gate(to) as port:
            assert post(port).status_code == 200
    assert not proxy.arrived
    assert len(behind.arrived) == 1


def test_without_tls_or_with_old_tls_nobody_is_heard(certificates: Certificates) -> None:
    behind = StandIn()
    with standing(behind, certificates) as to, gate(to, certificates) as port:
        with pytest.raises(httpx.TransportError):
            post(port)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(certificates.authority)
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        with pytest.warns(DeprecationWarning):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.TransportError):
            httpx.post(f"https://127.0.0.1:{port}{ROUTE}", verify=old, trust_env=False)
        assert not behind.arrived
        assert post(port, certificates=certificates).status_code == 200


# ------------------------------------------------------------------------ in whose name


def pushed(node: int, sender: int, reply_to: str = "asked") -> bytes:
    metadata = Metadata(src_node_id=sender, dst_node_id=1, reply_to_message_id=reply_to)
    own = Metadata(src_node_id=node, dst_node_id=1, reply_to_message_id="asked")
    request = PushMessagesRequest(
        node=Node(node_id=node), messages_list=[Message(metadata=own), Message(metadata=metadata)]
    )
    return bytes(request.SerializeToString())


def test_a_node_answers_for_itself_alone(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    assert post(port, PUSH_MESSAGES, pushed(7, 7)).status_code == 200
    assert len(behind.arrived) == 1
    for body in (pushed(7, 8), pushed(7, 1, ""), pushed(7, 7, ""), b"\xff\xff\xff"):
        assert post(port, PUSH_MESSAGES, body).status_code == 400
    assert len(behind.arrived) == 1
    assert objection_to(pushed(7, 8)) == "node 7 has sent a message in the name of 8"
    assert objection_to(pushed(7, 7, "")) == "node 7 has sent a message that is no reply"
    # Two requests in one: protobuf reads them as one, of which the later node counts.
    assert objection_to(pushed(7, 7) + pushed(8, 8)) is not None


def test_many_messages_come_whole_before_they_are_judged(plain: tuple[int, StandIn]) -> None:
    port, behind = plain
    body = pushed(7, 7) * 10_000
    assert len(body) > 3 * 64 * KIB
    assert post(port, PUSH_MESSAGES, body).status_code == 200
    assert post(port, PUSH_MESSAGES, body + pushed(7, 8)).status_code == 400
    assert [arrived.length for arrived in behind.arrived] == [len(body)]


# ------------------------------------------------------------------------ journal and command


def test_the_journal_is_escaped_and_does_not_grow_with_strangers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with standing(StandIn()) as to, gate(to) as port:
        assert b" 404 " in raw(port, b"GET /%1b[31m?\x7e HTTP/1.1\r\nHost: x\r\n\r\n")
        raw(port, b"\x1b[31m\x00\r\n\r\n")
        for _ in range(200):
            raw(port, b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    said = capfd.readouterr().err
    assert "refused GET /%1b[31m?~ from 127.0.0.1: only the requests of Flower's nodes" in said
    assert "refused 127.0.0.1: what it sent is not HTTP" in said
    assert "\x1b" not in said
    assert len(said.splitlines()) < 40
    assert max(map(len, said.splitlines())) < 400
    assert re.search(r"\(1\d\d lines before this one were left out\)", said)


def test_the_journal_says_how_much_it_left_out() -> None:
    now, lines = [0.0], list[str]()
    journal = Journal(2, 1.0, lambda: now[0], lines.append, lambda: "then")
    for k in range(5):
        journal.say(f"{k}\n\x1b[0m")
    now[0] = 3.0
    journal.say("again")
    journal.say("and again")
    journal.say("too much")
    journal.close()
    assert lines == [
        "then 0\\n\\x1b[0m",
        "then 1\\n\\x1b[0m",
        "then again (3 lines before this one were left out)",
        "then and again",
        "then the end (1 line before this one was left out)",
    ]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_command_prints_one_line_and_ends_when_asked(
    certificates: Certificates, name: str
) -> None:
    behind = StandIn()
    with standing(behind, certificates) as to:
        command = [
            sys.executable, "-m", "ebbflow.flower.gate", "--listen", "127.0.0.1:0",
            "--to", f"127.0.0.1:{to}", "--certificate", str(certificates.certificate),
            "--key", str(certificates.key), "--root-certificates", str(certificates.authority),
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                found = re.fullmatch(
                    rf"gate: nodes come to https://127\.0\.0\.1:(\d+), "
                    rf"the SuperLink is at 127\.0\.0\.1:{to}\n",
                    line,
                )
                assert found is not None, line
                assert post(int(found[1]), certificates=certificates).status_code == 200
                idle = socket.create_connection(("127.0.0.1", int(found[1])))
                process.send_signal(getattr(signal, name))
                out, err = process.communicate(timeout=20)
                idle.close()
            finally:
                process.kill()
        assert (process.returncode, out, err) == (0, "", "")


def test_what_would_protect_nothing_is_refused_in_one_sentence(
    certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    taken = f"127.0.0.1:{listening.getsockname()[1]}"
    certificate, key = str(certificates.certificate), str(certificates.key)
    authority, to = str(certificates.authority), ["--to", "127.0.0.1:9"]
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other")
    cases = [
        (["--listen", "0.0.0.0:0", *to], "0.0.0.0:0 can be reached from outside"),
        (["--listen", "[::]:0", *to], "can be reached from outside"),
        (
            ["--listen", "0.0.0.0:0", *to, "--certificate", certificate, "--key", key],
            "can be reached from outside",
        ),
        (["--listen", "127.0.0.1:0", *to, "--key", key], "belong together"),
        (["--listen", "127.0.0.1:0", *to, "--keys", "/missing"], "--keys /missing is no folder"),
        (
            ["--listen", "127.0.0.1:0", "--to", "192.0.2.7:80"],
            "192.0.2.7:80 is not on this machine",
        ),
        (["--listen", "127.0.0.1", *to], "--listen '127.0.0.1' is no address"),
        (["--listen", "127.0.0.1:99999", *to], "is no address"),
        (["--listen", "::1:80", *to], "is no address"),
        (["--listen", "no.such.host.invalid:80", *to], "is not known here"),
        (["--listen", taken, *to], "cannot listen there"),
        (["--listen", "127.0.0.1:0", *to, "--largest-body", "0"], "lets nothing through"),
        (
            ["--listen", "127.0.0.1:0", *to, "--certificate", certificate, "--key", str(other.key)],
            "cannot be used",
        ),
        (
            ["--listen", "127.0.0.1:0", *to, "--certificate", "/missing", "--key", key],
            "No such file",
        ),
        (["--listen", "127.0.0.1:0", *to, "--root-certificates", key], "cannot be used"),
    ]
    for arguments, said in cases:
        assert main(arguments) == 2, arguments
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
        assert err.startswith("gate: ")
        assert err.count("\n") == 1
    listening.close()
    assert authority  # with all three files it may listen anywhere: below


def test_with_tls_it_may_listen_anywhere(certificates: Certificates) -> None:
    settings = GateSettings(
        Address("0.0.0.0", 8443),
        Address("localhost", 8000),
        certificates.certificate,
        certificates.key,
        certificates.authority,
    )
    check_settings(settings)
    with pytest.raises(EbbflowError, match=r"0\.0\.0\.0:8443 can be reached from outside"):
        check_settings(replace(settings, root_certificates=None))


def test_addresses_are_printed_as_they_are_read() -> None:
    for text in ("127.0.0.1:80", "[::1]:0", "server.example:65535"):
        assert str(parse_address(text, "--to")) == text


def test_nothing_of_the_gate_is_left(plain: tuple[int, StandIn]) -> None:
    before = threading.active_count()
    with standing(StandIn()) as to, gate(to) as port:
        post(port)
    assert threading.active_count() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
