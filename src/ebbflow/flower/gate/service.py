"""The gate's answers: a request is refused, or passed on to the SuperLink piece by piece."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, suppress
from typing import Any
from weakref import WeakValueDictionary

import httpx
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from ebbflow.flower.gate.journal import Journal
from ebbflow.flower.gate.keys import HEADER, Keyring
from ebbflow.flower.gate.messages import objection_to
from ebbflow.flower.gate.rules import (
    PASSED_BACK,
    PUSH_MESSAGES,
    Admitted,
    Limits,
    RefusedError,
    admit,
)
from ebbflow.flower.gate.superlink import SuperLink

_LINGER_SECONDS = 3.0
"""So long the rest of a refused body is read and dropped: who is still sending hears no answer."""


class _GoneError(Exception):
    """The client has closed the connection; there is nobody to answer."""


class _CutShortError(Exception):
    """An answer cannot be finished; closing the connection tells the node so."""


class Gate:
    """An ASGI application that passes the requests of Flower's nodes on to a SuperLink."""

    def __init__(
        self,
        superlink: SuperLink,
        limits: Limits,
        journal: Journal,
        keyring: Keyring | None = None,
    ) -> None:
        self._superlink = superlink
        self._limits = limits
        self._journal = journal
        self._keyring = keyring
        self._requests = 0
        self._uploads = asyncio.Semaphore(limits.uploads)
        self._uploads_of = WeakValueDictionary[str, asyncio.Semaphore]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"the gate was started for {scope['type']}, and knows HTTP alone")
        body = _Body(receive, self._limits)
        answer = _Answer(send, self._limits.piece_seconds)
        try:
            await self._judged(scope, body, answer)
        except RefusedError as refused:
            self._journal.say(f"refused {_described(scope)}: {refused.reason}")
            if answer.started:
                raise _CutShortError(refused.reason) from refused
            await body.drop_rest(self._limits.largest_body)
            refusal = PlainTextResponse(
                f"This request is refused: {refused.reason}.\n",
                refused.status,
                headers={"connection": "close"},
            )
            await refusal(scope, receive, answer.send)
        except _GoneError:
            return
        except _CutShortError:
            raise
        except Exception as error:
            self._journal.say(f"failed at {_described(scope)}: {error!r}")
            raise

    async def _judged(self, scope: Scope, body: _Body, answer: _Answer) -> None:
        admitted = admit(
            scope["method"],
            scope["raw_path"],
            scope["query_string"],
            scope["http_version"],
            scope["headers"],
            self._limits,
        )
        peer = self._peer(scope, admitted)
        if self._requests >= self._limits.requests:
            raise RefusedError(503, f"{self._requests} requests are being answered already")
        self._requests += 1
        try:
            async with asyncio.timeout(self._limits.whole_seconds):
                if admitted.length > self._limits.ahead:
                    await self._passed_on_as_upload(peer, admitted, body, answer)
                else:
                    await self._passed_on(admitted, body, answer)
        except TimeoutError as error:
            raise RefusedError(503, "it took too long") from error
        finally:
            self._requests -= 1

    def _peer(self, scope: Scope, admitted: Admitted) -> str:
        """Return who asks, and refuse strangers if it is known who is none."""
        if self._keyring is None:
            return str((scope.get("client") or ("nowhere",))[0])
        key = admitted.headers.get(HEADER, b"")
        if not self._keyring.holds(key):
            raise RefusedError(412, "its key is not among those of the nodes")
        return key.decode("ascii")

    async def _passed_on_as_upload(
        self, peer: str, admitted: Admitted, body: _Body, answer: _Answer
    ) -> None:
        own = self._uploads_of.setdefault(peer, asyncio.Semaphore(self._limits.uploads_each))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._limits.piece_seconds):
                    # Its own first: who waits for these keeps nothing from the others.
                    await held.enter_async_context(own)
                    await held.enter_async_context(self._uploads)
            except TimeoutError as error:
                raise RefusedError(503, "too many large bodies are on their way already") from error
            await self._passed_on(admitted, body, answer)

    async def _passed_on(self, admitted: Admitted, body: _Body, answer: _Answer) -> None:
        # Who sends slowly, or not at all, must not keep the SuperLink waiting.
        enough = admitted.length if admitted.path == PUSH_MESSAGES else self._limits.ahead
        begun = bytearray()
        while len(begun) < enough and (piece := await body.next()):
            begun += piece
        if admitted.path == PUSH_MESSAGES and (objection := objection_to(bytes(begun))):
            raise RefusedError(400, objection)

        async def content() -> AsyncIterator[bytes]:
            yield bytes(begun)
            while piece := await body.next():
                yield piece

        request = httpx.Request(
            "POST",
            self._superlink.url + admitted.path,
            headers=_sent_on(admitted),
            content=bytes(begun) if len(begun) == admitted.length else content(),
        )
        async with self._superlink.asked(request) as response:
            await self._pass_back(response, answer)

    async def _pass_back(self, response: httpx.Response, answer: _Answer) -> None:
        headers = [
            (name.encode("ascii"), response.headers[name].encode("latin-1"))
            for name in PASSED_BACK
            if name in response.headers
        ]
        length = response.headers.get("content-length")
        if length is not None:
            if int(length) > self._limits.largest_body:
                raise RefusedError(502, f"the SuperLink's answer has {int(length):,} bytes")
            headers.append((b"content-length", length.encode("ascii")))
        if response.is_error:
            # Whoever is not welcome does not keep a connection.
            headers.append((b"connection", b"close"))
        await answer.start(response.status_code, headers)
        sent = 0
        async for piece in response.aiter_raw():
            sent += len(piece)
            if sent > self._limits.largest_body:
                raise RefusedError(502, f"the SuperLink's answer has over {sent:,} bytes")
            await answer.piece(piece)
        await answer.end()


class _Answer:
    """The answer to a client, who must take each piece of it in time."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self.started = False

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def piece(self, content: bytes) -> None:
        await self.send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.started = True
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError as error:
            raise _CutShortError("the client does not take its answer") from error


class _Body:
    """A request's body, each piece in time; h11 sees to it that it is as long as declared."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._received = 0
        self._waited = 0.0
        self._ended = False

    async def next(self) -> bytes:
        """Return the next piece, which is empty at the end."""
        piece = b""
        while not (piece or self._ended):
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._patience()):
                    message = await self._receive()
            except TimeoutError as error:
                self._ended = True
                raise RefusedError(503, "its body did not arrive in time") from error
            self._waited += time.monotonic() - began
            if message["type"] != "http.request":
                self._ended = True
                raise _GoneError
            self._ended = not message.get("more_body", False)
            piece = message.get("body", b"")
            self._received += len(piece)
        return piece

    def _patience(self) -> float:
        """Return for how many seconds the next piece is waited for."""
        # Time in which the SuperLink was waited for does not count against the client.
        left = self._received / self._limits.slowest - self._waited
        return self._limits.piece_seconds + min(0.0, left)

    async def drop_rest(self, most: int) -> None:
        """Read what is still to come, for a while, and forget it."""
        # Whoever does not go on sending is not waited for.
        with suppress(TimeoutError, RefusedError, _GoneError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while most > 0 and (piece := await self.next()):
                    most -= len(piece)


def _sent_on(admitted: Admitted) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode("ascii"), value) for name, value in admitted.headers.items()]
    # An answer that is packed would be measured by its packing.
    headers.append((b"accept-encoding", b"identity"))
    headers.append((b"content-length", str(admitted.length).encode("ascii")))
    return headers


def _described(scope: Scope) -> str:
    client = scope.get("client")
    query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
    return (
        f"{scope['method']} {scope['raw_path'].decode('latin-1')}{query} "
        f"from {client[0] if client else 'nowhere'}"
    )
