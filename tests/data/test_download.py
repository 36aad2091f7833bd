"""Downloads, against a web server on this machine that can misbehave."""

from __future__ import annotations

import gzip
import hashlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pooch
import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.data import local_files as places
from ebbflow.data.download import SOURCES, RemoteFile, Source, fetch, find, verify
from tests.data.server import Server, seclude, serving

CONTENTS = {"first.gz": b"the first file" * 50, "second.gz": b"the second file" * 50}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    seclude(monkeypatch, tmp_path / "cache")
    answers = {name: gzip.compress(content, mtime=0) for name, content in CONTENTS.items()}
    with serving(answers) as running:
        files = tuple(
            RemoteFile(name, hashlib.sha256(content).hexdigest())
            for name, content in CONTENTS.items()
        )
        tiny = Source("tiny", "Tiny", "tiny-set", "none", 2, 3, 4, files, running.url)
        monkeypatch.setitem(SOURCES, "tiny", tiny)
        yield running


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
    (tmp_path / "digits.npz").write_bytes(b"not these")
    monkeypatch.setattr(places, "BUNDLED", tmp_path)
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
    for file in (*known.files, *known.subset):
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.base_url == "" or file.base_url.endswith("/")


# --- checksums of files as they are sent


@pytest.fixture
def archive(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    sent = hashlib.sha256(server.answers["first.gz"]).hexdigest()
    packed = RemoteFile("first.gz", sent, packed=True)
    monkeypatch.setitem(SOURCES, "tiny", replace(SOURCES["tiny"], files=(packed,)))
    return server


def test_a_packed_file_is_checked_as_it_is(archive: Server, tmp_path: Path) -> None:
    home = fetch("tiny", destination=tmp_path)
    assert [check.status for check in verify("tiny", tmp_path)] == ["ok"]
    (home / "first.gz").write_bytes(gzip.compress(CONTENTS["first.gz"], compresslevel=1, mtime=0))
    assert [check.status for check in verify("tiny", tmp_path)] == ["wrong checksum"]
    (home / "first.gz").rename(home / "first")
    assert find("tiny", tmp_path) is None


def test_a_packed_file_that_a_mirror_packed_anew(archive: Server, tmp_path: Path) -> None:
    archive.answers["first.gz"] = gzip.compress(CONTENTS["first.gz"], compresslevel=1, mtime=0)
    found = hashlib.sha256(archive.answers["first.gz"]).hexdigest()
    with pytest.raises(EbbflowError, match=f"content with SHA-256 {found}"):
        fetch("tiny", destination=tmp_path)


# --- files in other folders and from other addresses


def test_a_file_with_its_own_folder_and_address(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = SOURCES["tiny"].files
    with serving({"second.gz": server.answers.pop("second.gz")}) as other:
        second = replace(second, folder="shared", base_url=other.url)
        monkeypatch.setitem(SOURCES, "tiny", replace(SOURCES["tiny"], files=(first, second)))
        with pytest.raises(EbbflowError, match="404"):
            fetch("tiny", mirror=server.url, destination=tmp_path)
        home = fetch("tiny", destination=tmp_path)
    assert home == find("tiny", tmp_path) == tmp_path / "tiny-set"
    assert other.asked == ["/sets/second.gz"]
    assert names(tmp_path / "shared") == ["second.gz"]
    assert [check.path.parent.name for check in verify("tiny", tmp_path)] == ["tiny-set", "shared"]
    (tmp_path / "shared" / "second.gz").unlink()
    assert [check.status for check in verify("tiny", tmp_path)] == ["ok", "missing"]


# --- subsets


@pytest.fixture
def part(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give the data set a subset, and put its file into a data folder."""
    known = RemoteFile("part.npz", hashlib.sha256(b"a part").hexdigest(), folder="")
    monkeypatch.setitem(SOURCES, "tiny", replace(SOURCES["tiny"], subset=(known,)))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part.npz").write_bytes(b"a part")
    return tmp_path / "data"


def test_a_subset_is_found_and_verified(part: Path) -> None:
    assert find("tiny", part) == part
    assert [(check.filename, check.status) for check in verify("tiny", part)] == [
        ("part.npz", "ok")
    ]
    (part / "part.npz").write_bytes(b"another part")
    assert verify("tiny", part)[0].status == "wrong checksum"


def test_the_whole_goes_before_the_part(part: Path) -> None:
    home = fetch("tiny", destination=part)
    assert find("tiny", part) == home
    assert [check.filename for check in verify("tiny", part)] == ["first.gz", "second.gz"]
    # A file of the whole is missing: the part is all there is.
    (home / "second.gz").unlink()
    assert find("tiny", part) == part


def test_an_earlier_folder_goes_before_the_whole(part: Path) -> None:
    fetch("tiny")
    assert find("tiny", part) == part
