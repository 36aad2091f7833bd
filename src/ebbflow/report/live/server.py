"""A small web server for one page, which only the user who started it can see.

It listens on 127.0.0.1. Every process of this machine can reach it there, and so can every page
that a browser on this machine shows. So the address holds a random token; a request that names
another host is refused, because its sender has pointed a name of theirs at this machine; and a
browser is told to keep the page to itself. Whatever is wrong with a request, the answer does not
say.
"""

from __future__ import annotations

import hmac
import io
import secrets
import select
import socketserver
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable

ADDRESS = "127.0.0.1"
CONNECTIONS = 100
"""At the same time; further ones are closed at once."""
LARGEST_HEAD = 16 * 1024
"""Bytes of a request."""
ASKING = 10.0
"""Seconds within which a request must have arrived."""
ANSWERING = 30.0
"""Seconds within which a browser must have taken the answer."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The policy of an answer that is no page."""


class Html(NamedTuple):
    """A page, and what it may do in a browser (its ``Content-Security-Policy``)."""

    text: str
    policy: str


class Shown(Protocol):
    """What is shown: a page, and what has changed since. Called from several threads."""

    def page(self) -> Html:
        """Return the page as of now."""

    def changes(self, after: str) -> bytes:
        """Return in JSON what has changed since a cursor."""


class LiveServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1, on the port that was asked for or on any that is free."""

    daemon_threads = True
    block_on_close = False  # somebody who reads slowly does not keep it alive
    request_queue_size = CONNECTIONS
    timeout = 0.0

    def __init__(self, shown: Shown, port: int = 0) -> None:
        self.shown = shown
        self.token = secrets.token_urlsafe(32)
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._told: set[str] = set()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", "the largest is 65535")
            raise EbbflowError(
                f"--port {port} cannot be used ({reason}): choose another, or leave it out for one "
                "that is free"
            ) from None
        names = (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")
        self.hosts = {*names, ADDRESS, "localhost"} if self.port == 80 else set(names)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page; who knows it can see the page."""
        return f"http://{ADDRESS}:{self.port}/{self.token}/"

    def server_bind(self) -> None:
        """Bind without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.port

    def serve(self, ends: Mapping[int, int]) -> None:
        """Answer requests until one of these descriptors has one of its events."""
        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLIN)
        for handle, events in ends.items():
            waiting.register(handle, events)
        while True:
            ready = {handle for handle, _ in waiting.poll()}
            if ready & ends.keys():
                return
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a bug's traceback, once; a browser that went away is no error."""
        error = sys.exception()
        text = "".join(traceback.format_exception(error))
        if isinstance(error, ConnectionError | TimeoutError) or text in self._told:
            return
        self._told.add(text)
        lines = (printable(line) for line in text.splitlines())
        with suppress(OSError):  # nobody may be listening any more
            sys.stderr.write("\n".join(lines) + "\n")


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes the connection."""

    server: LiveServer

    def handle(self) -> None:
        """Read the request's head as a whole, however slowly it comes, and answer it."""
        head = self._head()
        if head:
            self.connection.settimeout(ANSWERING)
            self.rfile = io.BytesIO(head)
            super().handle()

    def _head(self) -> bytes:
        """Return a request up to the empty line, or nothing if it is too slow or too long."""
        until, head = time.monotonic() + ASKING, b""
        while b"\r\n\r\n" not in head:
            self.connection.settimeout(max(until - time.monotonic(), 1e-3))
            try:
                part = self.connection.recv(4096)
            except OSError:
                return b""
            head += part
            if not part or len(head) > LARGEST_HEAD:
                return b""
        return head

    def do_GET(self) -> None:
        """Answer with the page or with changes."""
        host = self.headers.get_all("Host", [])
        if len(host) != 1 or host[0].lower() not in self.server.hosts:
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        # The base class has tidied up `path`; only the address as we gave it is right.
        path, _, query = self.requestline.split()[1].partition("?")
        root, _, rest = path.removeprefix("/").partition("/")
        known = hmac.compare_digest(root.encode("latin-1"), self.server.token.encode())
        if not known or path != f"/{root}/{rest}" or rest not in ("", "changes"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            kind, policy, body = self._body(rest, query)
        except Exception:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            raise
        self._send(kind, policy, body)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def _body(self, name: str, query: str) -> tuple[str, str, bytes]:
        """Return the kind of an answer, its policy and its content."""
        if name == "changes":
            after = query.removeprefix("after=") if query.startswith("after=") else ""
            return "application/json", NOTHING, self.server.shown.changes(after)
        page = self.server.shown.page()
        return "text/html; charset=utf-8", page.policy, page.text.encode()

    def _send(self, kind: str, policy: str, body: bytes, code: int = HTTPStatus.OK) -> None:
        self.send_response_only(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a bare code; a method that is not ours is not found."""
        code = HTTPStatus.NOT_FOUND if code == HTTPStatus.NOT_IMPLEMENTED else code
        self._send("text/plain", NOTHING, b"", code)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: an address holds the token."""
