"""The gate's connections to the SuperLink, which are shared for a moment and then closed.

A SuperLink that is asked to end waits half a minute for connections that are open and not in use.
So none is kept longer than it takes to push a model: many requests within a second or two.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from ebbflow.flower.gate.rules import Limits, RefusedError

SHARED_SECONDS = 2.0
"""The SuperLink itself closes connections that were not used for five seconds."""
_CONNECT_SECONDS = 10.0
"""For a connection to be made, and for one to be free if all are in use."""
_UNREACHABLE = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.ReadError,
    httpx.WriteError,
    httpx.WriteTimeout,
    httpx.CloseError,
    httpx.RemoteProtocolError,
)


@dataclass
class _Shared:
    """Connections for the requests of a moment, closed when the last of these is answered."""

    client: httpx.AsyncClient
    users: int = 0
    retired: bool = False

    async def close_if_done(self) -> None:
        if self.retired and not self.users:
            await self.client.aclose()


class SuperLink:
    """The SuperLink behind a gate; without a context it is spoken to without TLS."""

    def __init__(self, url: str, context: ssl.SSLContext | None, limits: Limits) -> None:
        self.url = url
        self._context = context
        self._limits = limits
        self._shared: _Shared | None = None
        self._closing = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def asked(self, request: httpx.Request) -> AsyncIterator[httpx.Response]:
        """Send a request and yield the answer, of which only the head has arrived."""
        shared = self._current()
        shared.users += 1
        try:
            response = await shared.client.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.PoolTimeout as error:
            raise RefusedError(503, "the SuperLink is busy") from error
        except httpx.ReadTimeout as error:
            raise RefusedError(504, "the SuperLink takes too long to answer") from error
        except _UNREACHABLE as error:
            said = str(error) or type(error).__name__
            raise RefusedError(502, f"the SuperLink cannot be reached ({said})") from error
        finally:
            shared.users -= 1
            await shared.close_if_done()

    async def aclose(self) -> None:
        """Close what is open."""
        if self._shared is not None:
            self._retire(self._shared)
        await asyncio.gather(*self._closing)

    def _current(self) -> _Shared:
        if self._shared is None:
            self._shared = _Shared(self._client())
            asyncio.get_running_loop().call_later(SHARED_SECONDS, self._retire, self._shared)
        return self._shared

    def _retire(self, shared: _Shared) -> None:
        if self._shared is shared:
            self._shared = None
        shared.retired = True
        task = asyncio.ensure_future(shared.close_if_done())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            # Without it, a proxy named in the environment would get all that nodes send.
            trust_env=False,
            follow_redirects=False,
            verify=self._context if self._context is not None else False,
            timeout=httpx.Timeout(
                self._limits.answer_seconds, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS
            ),
            limits=httpx.Limits(
                max_connections=self._limits.requests,
                max_keepalive_connections=self._limits.requests,
            ),
        )
