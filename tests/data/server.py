"""A web server on this machine that can misbehave, and data sets that come from it."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ebbflow.data.download import SOURCES, fetch


class Server(ThreadingHTTPServer):
    """Serves ``answers``; ``cut`` breaks off every answer in the middle."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        self.cut = False
        self.encoding = ""
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/sets/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        name = self.path.removeprefix("/sets/")
        if name not in self.server.answers:
            self.send_error(404)
            return
        body = self.server.answers[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.server.encoding:
            self.send_header("Content-Encoding", self.server.encoding)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.server.cut else body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(answers: dict[str, bytes]) -> Iterator[Server]:
    with Server(answers) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


def seclude(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Leave no data to be found and no proxy in the way; the user's cache is ``cache``."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("EBBFLOW_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: cache)


def get(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    contents: dict[str, bytes],
    *,
    counts: tuple[int, int],
    classes: int | None = None,
) -> Path:
    """Publish small files as a known data set, fetch them to the cache; return their folder."""
    known = SOURCES[name]
    files = tuple(
        replace(file, sha256=hashlib.sha256(contents[file.filename]).hexdigest(), base_url="")
        for file in known.files
    )
    with serving(dict(contents)) as server:
        small = replace(known, files=files, base_url=server.url, train=counts[0], test=counts[1])
        small = replace(small, classes=classes or known.classes)
        monkeypatch.setitem(SOURCES, name, small)
        return fetch(name)
