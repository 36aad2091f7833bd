"""Downloads, against a web server on this machine that can misbehave."""

from __future__ import annotations

import gzip
import hashlib
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.data import download
from ebbflow.data.download import SOURCES, RemoteFile, Source, fetch, find, verify

CONTENTS = {"first.gz": b"the first file" * 50, "second.gz": b"the second file" * 50}


class Server(ThreadingHTTPServer):
    """Serves ``answers``; ``cut`` breaks off every answer in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = {name: gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
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


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    # A proxy of the machine must not come between the test and its server.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("EBBFLOW_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: tmp_path / "cache")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        files = tuple(
            RemoteFile(name, hashlib.sha256(content).hexdigest())
            for name, content in CONTENTS.items()
        )
        tiny = Source("tiny", "Tiny", "tiny-set", "none", 2, 3, 4, files, running.url)
        monkeypatch.setitem(SOURCES, "tiny", tiny)
        yield running
        running.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_fetch(server: Server, tmp_path: Path) -> None:
    assert find("tiny") is None
    home = fetch("tiny", destination=tmp_path / "new" / "data")
    assert home == tmp_path / "new" / "data" / "tiny-set"
    assert names(home) == ["first.gz", "second.gz"]
    for name, content in CONTENTS.items():
        assert gzip.decompress((home / name).read_bytes()) == content
        assert (home / name).stat().st_mode & 0o777 == 0o644
    assert find("tiny", tmp_path / "new" / "data") == home
    assert server.asked == ["/sets/first.gz", "/sets/second.gz"]


def test_fetch_goes_where_loading_looks(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch("tiny") == find("tiny") == tmp_path / "cache" / "data" / "tiny-set"
    monkeypatch.setenv("EBBFLOW_DATA", str(tmp_path))
    assert fetch("tiny") == find("tiny") == tmp_path / "tiny-set"


def test_only_missing_and_damaged_files_are_fetched(server: Server, tmp_path: Path) -> None:
    home = fetch("tiny", destination=tmp_path)
    server.asked.clear()
    fetch("tiny", destination=tmp_path)
    assert server.asked == []
    (home / "first.gz").write_bytes(b"damaged")
    fetch("tiny", destination=tmp_path)
    assert server.asked == ["/sets/first.gz"]
    assert [check.status for check in verify("tiny", tmp_path)] == ["ok", "ok"]


def test_an_unpacked_file_counts(server: Server, tmp_path: Path) -> None:
    home = fetch("tiny", destination=tmp_path)
    (home / "first.gz").unlink()
    (home / "first").write_bytes(CONTENTS["first.gz"])
    server.asked.clear()
    assert fetch("tiny", destination=tmp_path) == find("tiny", tmp_path) == home
    assert server.asked == []
    assert verify("tiny", tmp_path)[0].path == home / "first"


def test_mirror_with_and_without_a_slash(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SOURCES["tiny"]
    elsewhere = Source("tiny", "Tiny", "t", "none", 2, 3, 4, known.files, "http://0.0.0.0:1/")
    monkeypatch.setitem(SOURCES, "tiny", elsewhere)
    fetch("tiny", mirror=server.url, destination=tmp_path / "a")
    fetch("tiny", mirror=server.url.rstrip("/"), destination=tmp_path / "b")
    assert server.asked == ["/sets/first.gz", "/sets/second.gz"] * 2


def test_mirror_may_compress_differently_or_unpack(server: Server, tmp_path: Path) -> None:
    server.answers["first.gz"] = gzip.compress(CONTENTS["first.gz"], compresslevel=1, mtime=0)
    server.answers["second.gz"] = CONTENTS["second.gz"]
    fetch("tiny", destination=tmp_path)
    assert [check.status for check in verify("tiny", tmp_path)] == ["ok", "ok"]


def test_server_that_calls_gzip_an_encoding(server: Server, tmp_path: Path) -> None:
    server.encoding = "gzip"
    fetch("tiny", destination=tmp_path)
    assert [check.status for check in verify("tiny", tmp_path)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (gzip.compress(b"something else", mtime=0), hashlib.sha256(b"something else").hexdigest()),
        (b"<html>", hashlib.sha256(b"<html>").hexdigest()),
        (b"", hashlib.sha256(b"").hexdigest()),
        (gzip.compress(CONTENTS["second.gz"], mtime=0)[:-9], "a gzip file that cannot be unpacked"),
    ],
    ids=["another content", "a page", "nothing", "cut short"],
)
def test_wrong_content(server: Server, tmp_path: Path, answer: bytes, found: str) -> None:
    server.answers["second.gz"] = answer
    with pytest.raises(EbbflowError, match="pass another mirror with `--from`") as error:
        fetch("tiny", destination=tmp_path)
    expected = hashlib.sha256(CONTENTS["second.gz"]).hexdigest()
    assert all(part in str(error.value) for part in (f"{server.url}second.gz", expected, found))
    # The good file stays; of the bad one nothing is left.
    assert names(tmp_path / "tiny-set") == ["first.gz"]


def test_wrong_content_leaves_the_old_file(server: Server, tmp_path: Path) -> None:
    home = fetch("tiny", destination=tmp_path)
    (home / "first.gz").write_bytes(b"old")
    server.answers["first.gz"] = b"new and wrong"
    with pytest.raises(EbbflowError, match="is expected"):
        fetch("tiny", destination=tmp_path)
    assert (home / "first.gz").read_bytes() == b"old"


def test_connection_that_breaks_off(server: Server, tmp_path: Path) -> None:
    server.cut = True
    with pytest.raises(EbbflowError, match=r"Cannot download http.*first\.gz") as error:
        fetch("tiny", destination=tmp_path)
    assert "`--from`" in str(error.value)
    assert names(tmp_path / "tiny-set") == []
    assert find("tiny", tmp_path) is None


def test_file_that_the_server_lacks(server: Server, tmp_path: Path) -> None:
    del server.answers["first.gz"]
    with pytest.raises(EbbflowError, match=r"first\.gz \(the server answered 404 Not Found\)"):
        fetch("tiny", destination=tmp_path)
    assert names(tmp_path / "tiny-set") == []


def test_refused_connection(server: Server, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(EbbflowError, match=r"\(Connection refused\).*`--from`") as error:
        fetch("tiny", mirror=url, destination=tmp_path)
    assert f"{url}/first.gz" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("mirror", ["", "mirror.example", "file:///data", "ftp://host/"])
def test_mirror_that_is_no_web_address(server: Server, tmp_path: Path, mirror: str) -> None:
    with pytest.raises(EbbflowError, match="is not a web address"):
        fetch("tiny", mirror=mirror, destination=tmp_path)


def test_destination_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EbbflowError, match=r"Cannot write to .*file"):
        fetch("tiny", destination=tmp_path / "file")


def test_progress_is_shown_only_when_asked(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fetch("tiny", destination=tmp_path / "quiet")
    assert capfd.readouterr() == ("", "")
    fetch("tiny", destination=tmp_path / "shown", progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "first.gz" in err
    assert "100%" in err


def test_the_log_level_of_pooch_is_left_alone(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooch.get_logger(), "level", logging.DEBUG)
    fetch("tiny", destination=tmp_path)
    assert pooch.get_logger().level == logging.DEBUG


def test_verify(server: Server, tmp_path: Path) -> None:
    assert [check.status for check in verify("tiny", tmp_path)] == ["missing", "missing"]
    home = tmp_path / "tiny-set"
    assert verify("tiny", tmp_path)[0].path == home / "first.gz"
    fetch("tiny", destination=tmp_path)
    (home / "first.gz").write_bytes((home / "first.gz").read_bytes()[:-9])
    (home / "second.gz").unlink()
    checks = verify("tiny", tmp_path)
    assert [(check.filename, check.status) for check in checks] == [
        ("first.gz", "wrong checksum"),
        ("second.gz", "missing"),
    ]


def test_verify_prefers_a_folder_that_was_begun(server: Server, tmp_path: Path) -> None:
    home = fetch("tiny")
    (home / "second.gz").unlink()
    empty = tmp_path / "empty"
    empty.mkdir()
    assert [check.status for check in verify("tiny", empty)] == ["ok", "missing"]


def test_digits_need_no_download() -> None:
    assert fetch("digits") == find("digits")
    assert [check.status for check in verify("digits")] == ["ok"]


def test_damaged_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(download, "_BUNDLED", tmp_path)
    with pytest.raises(EbbflowError, match="reinstall ebbflow"):
        fetch("digits")


@pytest.mark.parametrize("wrong", [fetch, verify, find])
def test_unknown_names(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(EbbflowError, match="did you mean 'mnist'"):
        wrong("mnst")


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_source_is_complete(name: str) -> None:
    known = SOURCES[name]
    assert known.name == name
    assert all((known.title, known.licence, known.files))
    assert known.bundled or known.base_url.endswith("/")
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in known.files)
