"""The server answers who knows the address, tells others nothing, and cannot be kept busy."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.report.live import server as module
from ebbflow.report.live.server import HEADERS, LARGEST_HEAD, Html, LiveServer
from tests.report.live.serving import serving

POLICY = "default-src 'none'; script-src 'sha256-abc='"


class Poster:
    """What is shown in these tests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def page(self) -> Html:
        if self.fails:
            raise ZeroDivisionError("\x1b[31mno page")
        return Html("<p>Grüße</p>", POLICY)

    def changes(self, after: str) -> bytes:
        self.asked.append(after)
        assert self.gate.wait(30)
        return b'{"cursor": "1"}'


class Reply:
    """An answer as `http.client` reads it."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.code = answer.status
        self.headers = answer.headers
        self.body = answer.read()


@pytest.fixture
def poster() -> Poster:
    return Poster()


@pytest.fixture
def server(poster: Poster) -> Iterator[LiveServer]:
    with serving(poster) as running:
        yield running


def asked(server: LiveServer, path: str, method: str = "GET", host: str | None = None) -> Reply:
    headers = {"Host": f"127.0.0.1:{server.port}" if host is None else host}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, path, headers=headers)
        return Reply(connection.getresponse())


def raw(server: LiveServer, request: bytes) -> bytes:
    """Return everything that comes back, or nothing if the connection is reset."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        try:
            connection.sendall(request)
            found = b""
            while part := connection.recv(65536):
                found += part
        except ConnectionError:
            return b""
        return found


# --- who knows the address -----------------------------------------------------------------------


def test_the_page_and_its_changes(server: LiveServer, poster: Poster) -> None:
    page = asked(server, f"/{server.token}/")
    assert (page.code, page.body.decode()) == (200, "<p>Grüße</p>")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"] == POLICY
    changes = asked(server, f"/{server.token}/changes?after=3-1-0")
    assert (changes.code, changes.body) == (200, b'{"cursor": "1"}')
    assert changes.headers["Content-Type"] == "application/json"
    assert asked(server, f"/{server.token}/changes").code == 200
    assert poster.asked == ["3-1-0", ""]


def test_every_answer_is_kept_by_the_browser_to_itself(server: LiveServer) -> None:
    for path in (f"/{server.token}/", f"/{server.token}/changes", "/", "/x"):
        headers = asked(server, path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Server" not in headers and "Date" not in headers


def test_head_has_no_body(server: LiveServer) -> None:
    head = asked(server, f"/{server.token}/", "HEAD")
    assert (head.code, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len("<p>Grüße</p>".encode()))


def test_the_token_cannot_be_guessed() -> None:
    tokens = set()
    for _ in range(3):
        with LiveServer(Poster()) as server:
            tokens.add(server.token)
            assert re.fullmatch(r"[A-Za-z0-9_-]{43}", server.token)  # 32 bytes
            assert server.url == f"http://127.0.0.1:{server.port}/{server.token}/"
    assert len(tokens) == 3


# --- who does not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/favicon.ico",
        "/changes",
        "/{token}",
        "/{token}x/",
        "/x{token}/",
        "/{short}/",
        "/{other}/",
        "//{token}/",
        "/./{token}/",
        "/{token}//",
        "/{token}/../{token}/",
        "/{token}/changes/",
        "/{token}/changes/x",
        "/{token}/Changes",
        "/{token}/%63hanges",
        "/{token}/../../etc/passwd",
        "/{token}\\",
        "/?{token}/",
        "/\xff\xfe/",
        "http://127.0.0.1:{port}/{token}/",
        "{token}/",
        "*",
    ],
)
def test_another_path_is_not_found(server: LiveServer, path: str) -> None:
    other = server.token[:-1] + ("A" if server.token[-1] != "A" else "B")
    filled = path.format(token=server.token, short=server.token[:-1], other=other, port=server.port)
    request = f"GET {filled} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    answer = raw(server, request.encode("latin-1"))
    assert answer.startswith(b"HTTP/1.0 404 ")
    assert answer.endswith(b"\r\n\r\n")  # and no word more


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "evil.example:{port}",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:{port}.evil.example",
        "user@127.0.0.1:{port}",
        "[::1]:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_a_request_for_another_host_is_refused(server: LiveServer, host: str) -> None:
    answer = asked(server, f"/{server.token}/", host=host.format(port=server.port))
    assert (answer.code, answer.body) == (403, b"")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}"])
def test_a_request_for_this_host_is_answered(server: LiveServer, host: str) -> None:
    assert asked(server, f"/{server.token}/", host=host.format(port=server.port)).code == 200


def test_no_host_or_two_are_refused(server: LiveServer) -> None:
    line, host = f"GET /{server.token}/ HTTP/1.1\r\n", f"Host: localhost:{server.port}\r\n"
    assert raw(server, f"{line}\r\n".encode()).startswith(b"HTTP/1.0 403 ")
    assert raw(server, f"{line}{host}{host}\r\n".encode()).startswith(b"HTTP/1.0 403 ")
    assert raw(server, f"{line}{host}\r\n".encode()).startswith(b"HTTP/1.0 200 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "get"])
def test_nothing_but_get_and_head_is_known(server: LiveServer, method: str) -> None:
    answer = asked(server, f"/{server.token}/", method)
    assert (answer.code, answer.body) == (404, b"")
    assert "Allow" not in answer.headers


def test_the_public_names_of_this_machine_do_not_reach_it(server: LiveServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


# --- strange requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_line",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / NONSENSE\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\x1b[31m HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",  # somebody tries TLS
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    ],
)
def test_a_strange_request_is_refused(
    server: LiveServer, request_line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert b" 200 " not in raw(server, request_line)
    assert asked(server, f"/{server.token}/").code == 200
    assert capfd.readouterr() == ("", "")  # nothing of it reaches the terminal


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /" + b"a" * LARGEST_HEAD + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nCookie: " + b"a" * LARGEST_HEAD + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * LARGEST_HEAD,
        b"a" * 10_000_000,
    ],
)
def test_a_large_request_is_not_read(server: LiveServer, request_line: bytes) -> None:
    assert b" 200 " not in raw(server, request_line)
    assert asked(server, f"/{server.token}/").code == 200


def test_a_bug_is_told_once_and_cannot_colour_the_terminal(
    server: LiveServer, poster: Poster, capfd: pytest.CaptureFixture[str]
) -> None:
    poster.fails = True
    for _ in range(2):
        answer = asked(server, f"/{server.token}/")
        assert (answer.code, answer.body) == (500, b"")
    time.sleep(0.1)  # the thread prints after its answer
    err = capfd.readouterr().err
    assert err.count("Traceback") == 1
    assert "\x1b" not in err


# --- busy ----------------------------------------------------------------------------------------


def test_fifty_browsers_at_once(server: LiveServer, poster: Poster) -> None:
    poster.gate.clear()  # nobody is answered before all have asked
    with ThreadPoolExecutor(50) as pool:
        answers = pool.map(lambda n: asked(server, f"/{server.token}/changes?after={n}"), range(50))
        until = time.monotonic() + 20
        while len(poster.asked) < 50 and time.monotonic() < until:
            time.sleep(0.01)
        poster.gate.set()
        assert [answer.code for answer in answers] == [200] * 50
    assert sorted(map(int, poster.asked)) == list(range(50))


def test_who_asks_slowly_blocks_nobody_and_is_sent_away(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKING", 1.0)
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(20)]
    try:
        for connection in slow[1:]:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert asked(server, f"/{server.token}/").code == 200
        assert time.monotonic() - began < 0.9
        # A byte now and then does not help.
        ended = began + 10
        while time.monotonic() < ended:
            try:
                slow[-1].sendall(b"a")
                time.sleep(0.1)
            except ConnectionError:
                break
        assert time.monotonic() - began < 5
        for connection in slow[:-1]:
            assert connection.recv(1) == b""
    finally:
        for connection in slow:
            connection.close()


def test_who_takes_the_answer_slowly_is_sent_away(
    server: LiveServer, poster: Poster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWERING", 0.3)
    monkeypatch.setattr(Poster, "page", lambda self: Html("x" * 50_000_000, POLICY))
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        request = f"GET /{server.token}/ HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n"
        connection.sendall(request.encode())
        time.sleep(0.6)
        taken = 0
        with pytest.raises(ConnectionError):
            while part := connection.recv(2**20):
                taken += len(part)
            raise ConnectionResetError
        assert taken < 50_000_000


def test_too_many_connections_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS", 3)
    with serving(Poster()) as server:
        held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        until = time.monotonic() + 10
        while server._free._value and time.monotonic() < until:
            time.sleep(0.01)
        assert raw(server, b"GET / HTTP/1.1\r\n\r\n") == b""
        for connection in held:
            connection.close()
        while server._free._value < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert asked(server, f"/{server.token}/").code == 200


# --- ports ---------------------------------------------------------------------------------------


def test_a_port_in_use_is_a_sentence() -> None:
    with LiveServer(Poster()) as first:
        with pytest.raises(EbbflowError, match=rf"--port {first.port} cannot be used \(Address"):
            LiveServer(Poster(), first.port)
        with LiveServer(Poster()) as second:
            assert second.port != first.port
        port = first.port
    with LiveServer(Poster(), port) as again:  # it is free again at once
        assert again.port == port


def test_no_name_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> str:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getfqdn", refused)
    monkeypatch.setattr(socket, "gethostbyaddr", refused)
    LiveServer(Poster()).server_close()
