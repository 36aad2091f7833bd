"""Where the files of known data sets are on this machine, and whether they are intact."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

import platformdirs

from ebbflow.core.errors import EbbflowError
from ebbflow.data.sources import RemoteFile, Source, source

Status = Literal["ok", "missing", "wrong checksum"]
"""The result of checking a file; one that cannot be unpacked has a wrong checksum."""

ENVIRONMENT = "EBBFLOW_DATA"
"""The environment variable that names the folder with the data sets."""

BUNDLED = Path(__file__).parent / "files"
"""The folder of the data sets that come with ebbflow."""

BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
"""The exceptions that reading a truncated or damaged gzip file raises."""

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class FileCheck:
    """The state of one file: its name, where it is (or should be), and the check's result."""

    filename: str
    path: Path
    status: Status


class LocalFiles(NamedTuple):
    """The files of a data set on this machine, in the order of its source."""

    paths: tuple[Path, ...]
    subset: bool = False


def data_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders that are searched for data sets, in order.

    They are ``folder``, then the one that ``EBBFLOW_DATA`` names, then the user's cache.
    """
    folders = []
    if folder is not None:
        if not folder.is_dir():
            raise EbbflowError(
                f"The data folder {str(folder)!r} is not a folder; create it or name another."
            )
        folders.append(folder)
    if named := os.environ.get(ENVIRONMENT):
        environment_folder = Path(named).expanduser()
        if not environment_folder.is_dir():
            raise EbbflowError(
                f"{ENVIRONMENT} is set to {named!r}, which is not a folder; "
                "create that folder, correct the variable or unset it."
            )
        folders.append(environment_folder)
    return [*folders, platformdirs.user_cache_path("ebbflow") / "data"]


def locate(root: Path, wanted: Source, file: RemoteFile) -> Path | None:
    """Return the path of a file below a data folder, compressed or not; None if it is missing."""
    path = root / wanted.folder_of(file) / file.filename
    unpacked = path if file.packed else path.with_name(file.filename.removesuffix(".gz"))
    return next((each for each in (path, unpacked) if each.is_file()), None)


def search(wanted: Source, folder: Path | None = None) -> LocalFiles | None:
    """Return the files of a data set from the first folder that has them all, or None.

    Within a folder, the whole data set is preferred to a subset.
    """
    if wanted.bundled:
        return LocalFiles(tuple(BUNDLED / file.filename for file in wanted.files))
    for root in data_folders(folder):
        for files, subset in ((wanted.files, False), (wanted.subset, True)):
            paths = [path for file in files if (path := locate(root, wanted, file))]
            if paths and len(paths) == len(files):
                return LocalFiles(tuple(paths), subset)
    return None


def required(wanted: Source, folder: Path | None = None) -> LocalFiles:
    """Return the files of a data set, or raise an error that lists the folders searched."""
    files = search(wanted, folder)
    if files is not None:
        return files
    subfolders = list(dict.fromkeys(wanted.folder_of(file) for file in wanted.files))
    searched = ", ".join(str(root / sub) for root in data_folders(folder) for sub in subfolders)
    belongs = " and ".join(f"{sub}/" for sub in subfolders)
    raise EbbflowError(
        f"The files of {wanted.name!r} are not all in any of {searched}; run `ebbflow data get "
        f"{wanted.name}`, or set {ENVIRONMENT} to a folder that has {belongs} in it."
    )


def find(wanted: Source | str, folder: Path | None = None) -> Path | None:
    """Return the first folder that has all files of a data set, or None.

    >>> find("digits").name
    'files'
    """
    files = search(source(wanted) if isinstance(wanted, str) else wanted, folder)
    return files and files.paths[0].parent


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read its content, decompressed if necessary."""
    # The first bytes decide, not the name: some servers decompress a .gz file while sending it.
    with path.open("rb") as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if compressed:
            with gzip.GzipFile(fileobj=raw) as content:
                yield cast(BinaryIO, content)
        else:
            yield raw


@contextmanager
def reading(path: Path, wanted: Source, *broken: type[Exception]) -> Iterator[None]:
    """Turn the errors of a damaged file, ``broken`` and those of gzip, into an `EbbflowError`."""
    try:
        yield
    except EbbflowError:
        raise
    except BROKEN + broken as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise EbbflowError(f"{path} is damaged ({reason}); {wanted.remedy}") from error
    except OSError as error:
        raise EbbflowError(f"Cannot read {path} ({error}); make it readable.") from error


def sha256_of(path: Path, *, packed: bool = False) -> str | None:
    """Return the SHA-256 of a file's uncompressed content, or None if it cannot be unpacked.

    With ``packed``, the SHA-256 is of the file itself.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") if packed else opened(path) as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
    except BROKEN:
        return None
    except OSError as error:
        raise EbbflowError(
            f"Cannot read {str(path)!r} ({error.strerror or error}); make the file readable."
        ) from error
    return digest.hexdigest()


def verify(name: str, folder: Path | None = None) -> list[FileCheck]:
    """Check the checksums of the files that loading a data set would use.

    If no folder has them all, the first that has any of them is checked.

    >>> [check.status for check in verify("digits")]
    ['ok']
    """
    wanted = source(name)
    local = search(wanted, folder)
    if local is not None:
        files = wanted.subset if local.subset else wanted.files
        return [_checked(*pair) for pair in zip(files, local.paths, strict=True)]
    roots = data_folders(folder)
    begun = [root for root in roots if any(locate(root, wanted, file) for file in wanted.files)]
    return [check(next(iter(begun), roots[0]), wanted, file) for file in wanted.files]


def check(root: Path, wanted: Source, file: RemoteFile) -> FileCheck:
    """Check one file of a data set below a data folder."""
    path = locate(root, wanted, file)
    if path is None:
        path = root / wanted.folder_of(file) / file.filename
        return FileCheck(file.filename, path, "missing")
    return _checked(file, path)


def _checked(file: RemoteFile, path: Path) -> FileCheck:
    whole = sha256_of(path, packed=file.packed) == file.sha256
    return FileCheck(file.filename, path, "ok" if whole else "wrong checksum")
