"""A gate in a thread, and a stand-in for the SuperLink behind it that remembers what reached it."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from ebbflow.flower.gate.command import Address, GateServer, GateSettings
from ebbflow.flower.gate.rules import Limits
from ebbflow.flower.launch.identities import make_authority, make_server_certificate


@dataclass(frozen=True)
class Arrived:
    """A request that reached the stand-in."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length: int
    digest: str

    def header(self, name: str) -> list[str]:
        return [
            value.decode("latin-1")
            for key, value in self.headers
            if key.decode("latin-1").lower() == name
        ]


@dataclass
class StandIn:
    """An ASGI application that answers everything, and remembers what it was asked."""

    arrived: list[Arrived] = field(default_factory=list)
    status: int = 200
    answer: bytes = b"answer"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    delay: float = 0.0
    pieces: int = 1
    together: int = 0
    most_together: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.together += 1
        self.most_together = max(self.most_together, self.together)
        try:
            await self._answer(scope, receive, send)
        finally:
            self.together -= 1

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        digest, length, more = hashlib.sha256(), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # a request that never became whole
            digest.update(message["body"])
            length += len(message["body"])
            more = message["more_body"]
        self.arrived.append(
            Arrived(
                scope["method"],
                scope["raw_path"],
                scope["query_string"],
                tuple((bytes(name), bytes(value)) for name, value in scope["headers"]),
                length,
                digest.hexdigest(),
            )
        )
        await asyncio.sleep(self.delay)
        headers = [(b"content-type", b"application/protobuf"), (b"x-secret", b"x"), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        for _ in range(self.pieces):
            await send({"type": "http.response.body", "body": self.answer, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@dataclass(frozen=True)
class Certificates:
    """The files of a federation's authority and server."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


def make_certificates(folder: Path) -> Certificates:
    make_authority(folder)
    make_server_certificate(folder)
    return Certificates(folder)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait_for(condition: Any, seconds: float = 10.0) -> None:
    """Wait until a condition holds, and fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class _HastyLoop(asyncio.SelectorEventLoop):
    """An event loop that does not wait half a minute for clients to confirm the end of TLS."""

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("ssl") is not None:
            kwargs["ssl_shutdown_timeout"] = 0.2
        return await super().create_server(*args, **kwargs)


@contextmanager
def standing(app: Any, certificates: Certificates | None = None, port: int = 0) -> Iterator[int]:
    """Run an ASGI application in a thread as Flower runs its own, and yield its port."""
    listening = socket.create_server(("127.0.0.1", port))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        timeout_graceful_shutdown=5,
        ssl_certfile=None if certificates is None else certificates.certificate,
        ssl_keyfile=None if certificates is None else certificates.key,
    )
    server = uvicorn.Server(config)

    def run() -> None:
        with asyncio.Runner(loop_factory=_HastyLoop) as runner:
            runner.run(server.serve([listening]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def gate(
    to: int,
    certificates: Certificates | None = None,
    limits: Limits | None = None,
    keys: Path | None = None,
) -> Iterator[int]:
    """Run a gate in front of a port in a thread, with TLS on both sides or none, yield its port."""
    settings = GateSettings(
        listen=Address("127.0.0.1", 0),
        to=Address("127.0.0.1", to),
        certificate=None if certificates is None else certificates.certificate,
        key=None if certificates is None else certificates.key,
        root_certificates=None if certificates is None else certificates.authority,
        keys=keys,
        limits=Limits() if limits is None else limits,
    )
    server, ready = GateServer(settings), threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    try:
        assert ready.wait(10)
        yield server.address.port
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive(), "the gate did not end"


def post(
    port: int,
    path: str = "/v1/fleet/get-run",
    content: bytes = b"body",
    certificates: Certificates | None = None,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    """Ask a port on loopback as a node would."""
    scheme = "http" if certificates is None else "https"
    verify = False if certificates is None else certificates.trusted
    with httpx.Client(verify=verify, trust_env=False, timeout=20) as client:
        sent = {"content-type": "application/protobuf", **(headers or {})}
        return client.post(f"{scheme}://127.0.0.1:{port}{path}", content=content, headers=sent)


def is_open(port: int) -> bool:
    """Whether a node gets an answer."""
    try:
        return post(port).status_code == 200
    except httpx.TransportError:
        return False


def raw(port: int, *parts: bytes, seconds: float = 10.0, pause: float = 0.0) -> bytes:
    """Send bytes as they are, and return what comes back until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        received = bytearray()
        try:
            for k, part in enumerate(parts):
                if k:
                    time.sleep(pause)
                connection.sendall(part)
            while piece := connection.recv(65536):
                received += piece
        except ConnectionError:
            pass
        return bytes(received)
