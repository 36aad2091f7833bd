"""The gate's connections: uvicorn, with a ceiling on their number and deadlines for slow clients.

Left to itself, uvicorn waits for ever for a client that connects and says nothing, and takes as
many of them as there are.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from ebbflow.core.signals import handled_by
from ebbflow.flower.gate.journal import Journal
from ebbflow.flower.gate.rules import Limits

_FINISHING_SECONDS = 5
"""For requests that are being answered when the gate is asked to end."""
_FAREWELL_SECONDS = 2.0
"""For a client to confirm that its connection is closed."""


class _Settings(uvicorn.Config):
    """uvicorn's settings, and the gate's beside them."""

    def __init__(
        self, app: ASGIApp, context: ssl.SSLContext | None, limits: Limits, journal: Journal
    ) -> None:
        super().__init__(
            app,
            http=_Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            # What is worth a line is said by the journal.
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=round(limits.idle_seconds),
            timeout_graceful_shutdown=_FINISHING_SECONDS,
            h11_max_incomplete_event_size=limits.largest_head,
            ssl_context_factory=None if context is None else lambda *_: context,
        )
        self.limits = limits
        self.journal = journal


class _Connection(H11Protocol):
    """One client's connection, which is closed if a request's head does not arrive in time."""

    config: _Settings

    def __init__(self, config: _Settings, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.config.limits.connections:
            self.config.journal.say(
                f"closed a connection from {self._whose()}: there are "
                f"{self.config.limits.connections} already"
            )
            transport.abort()
            return
        self._expect_head(self.config.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._answering():
            self._expect_nothing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Unless the next request had arrived before this answer was finished.
        if not (self._answering() or self.transport.is_closing()):
            self._expect_head(self.config.limits.idle_seconds)

    def send_400_response(self, msg: str) -> None:
        self.config.journal.say(f"refused {self._whose()}: what it sent is not HTTP")
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # an answer is on its way already
            self.transport.abort()

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # the connection was being given up anyway
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        self.transport.abort()

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # as long as there was no request
        return cycle is not None and not cycle.response_complete

    def _expect_head(self, seconds: float) -> None:
        self._expect_nothing()
        self._head_deadline = self.loop.call_later(seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _whose(self) -> str:
        return self.client[0] if self.client else "nowhere"


class Listener(uvicorn.Server):
    """A server on a socket that is bound already; `announce` is called when it listens."""

    def __init__(
        self,
        app: ASGIApp,
        context: ssl.SSLContext | None,
        limits: Limits,
        journal: Journal,
        announce: Callable[[], object],
    ) -> None:
        super().__init__(_Settings(app, context, limits, journal))
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the server; uvicorn would raise them again afterwards."""
        with handled_by(self.handle_exit):
            yield


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that does not wait a minute for TLS to be agreed."""

    def __init__(self, limits: Limits, journal: Journal) -> None:
        super().__init__()
        self._head_seconds = limits.head_seconds
        self.set_exception_handler(
            lambda _, context: journal.say(
                f"{context['message']}: {context.get('exception', 'no exception')!r}"
            )
        )

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        """Listen, with deadlines for the beginning and the end of TLS."""
        if kwargs.get("ssl") is not None:
            kwargs["ssl_handshake_timeout"] = self._head_seconds
            kwargs["ssl_shutdown_timeout"] = _FAREWELL_SECONDS
        return await super().create_server(*args, **kwargs)


def new_loop(limits: Limits, journal: Journal) -> asyncio.AbstractEventLoop:
    """Return an event loop for a listener."""
    return _Loop(limits, journal)
