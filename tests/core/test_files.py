"""A file is the old one or the new one, never half of either."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from ebbflow.core.errors import EbbflowError
from ebbflow.core.files import sha256, write_atomically


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"\x00new\n")
    assert (tmp_path / "file").read_bytes() == b"\x00new\n"


def test_an_old_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize(("where", "what"), [(os, "fsync"), (Path, "replace")])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    what: str,
    failure: BaseException,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(where, what, fail)
        with pytest.raises(type(failure)):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_content_reaches_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(handle: int) -> None:
        events.append("sync")
        sync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_atomically(tmp_path / "file", b"new")
    assert events == ["sync", "replace", "sync"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_atomically(tmp_path / "file", b"new")
    assert oct((tmp_path / "file").stat().st_mode) == oct((tmp_path / "usual").stat().st_mode)


def test_the_digest_is_sha_256() -> None:
    assert sha256(b"") == hashlib.sha256(b"").hexdigest()
    assert sha256(b"abc").startswith("ba7816bf")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_the_bytes_that_are_needed_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    parts: list[bytes | memoryview] = [b"x" * 1000, memoryview(b"y" * 234)]
    with pytest.raises(EbbflowError, match=r"file needs 1,234 bytes.* bytes left.*resume"):
        write_atomically(tmp_path / "file", iter(parts))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_for_another_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_entries(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    usual = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_favail, f_files = usual.f_bavail, usual.f_frsize, 0, 100

    monkeypatch.setattr(Path, "open", no_entries)
    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    with pytest.raises(EbbflowError, match=r"needs 3 bytes.*no room for another file"):
        write_atomically(tmp_path / "file", b"new")
