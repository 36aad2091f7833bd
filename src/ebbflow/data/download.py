"""Downloads the known data sets and checks them."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ebbflow.core.errors import EbbflowError
from ebbflow.data import local_files
from ebbflow.data.local_files import (
    ENVIRONMENT,
    FileCheck,
    check,
    data_folders,
    find,
    sha256_of,
    verify,
)
from ebbflow.data.names import ALIASES
from ebbflow.data.sources import SOURCES, RemoteFile, Source, source

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "ALIASES",
    "ENVIRONMENT",
    "SOURCES",
    "FileCheck",
    "RemoteFile",
    "Source",
    "data_folders",
    "fetch",
    "find",
    "source",
    "verify",
]

_TIMEOUT = 30.0


def fetch(
    name: str,
    *,
    mirror: str | None = None,
    destination: Path | None = None,
    progress: bool = False,
) -> Path:
    """Download the files of a data set that are missing or damaged, and return their folder.

    They go to the data set's sub-folder of ``destination`` or, without it, of ``EBBFLOW_DATA`` if
    set and of the user's cache otherwise. ``mirror`` is the address of a folder that holds the same
    files. A file gets its final name only once its checksum is right.
    """
    wanted = source(name)
    if wanted.bundled:
        if any(each.status != "ok" for each in verify(name)):
            raise EbbflowError(
                f"The files of {name!r} in {str(local_files.BUNDLED)!r} are damaged; "
                "reinstall ebbflow."
            )
        return local_files.BUNDLED
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        raise EbbflowError(
            f"The mirror {mirror!r} is not a web address; give one that begins with https:// or "
            f"http://, or set {ENVIRONMENT} to a local folder."
        )
    root = destination or data_folders()[0]
    needed = [file for file in wanted.files if check(root, wanted, file).status != "ok"]
    home = root / wanted.folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _display() if progress and needed else nullcontext() as display:
            for file in needed:
                home = root / wanted.folder_of(file)
                home.mkdir(parents=True, exist_ok=True)
                base = mirror or file.base_url or wanted.base_url
                _download(f"{base.rstrip('/')}/{file.filename}", file, home, display)
    except OSError as error:
        raise EbbflowError(
            f"Cannot write to {str(home)!r} ({error.strerror or error}); make that possible, or "
            f"set {ENVIRONMENT} to a folder with room that you may write to."
        ) from error
    return root / wanted.folder


def _download(url: str, file: RemoteFile, home: Path, display: Progress | None) -> None:
    # pooch and requests take long to import, and most runs download nothing.
    import pooch  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    def whole(downloaded: str, _action: str, _pooch: object) -> str:
        path = Path(downloaded)
        digest = sha256_of(path, packed=file.packed)
        if digest != file.sha256:
            path.unlink()
            received = (
                f"content with SHA-256 {digest}"
                if digest
                else "a gzip file that cannot be unpacked"
            )
            raise EbbflowError(
                f"{url} gave {received} where SHA-256 {file.sha256} is expected; try again, or "
                "pass another mirror with `--from`."
            )
        return downloaded

    # A temporary folder: pooch would mistake an existing file for a finished download, and whatever
    # an interrupted download leaves behind is deleted with the folder.
    with (
        tempfile.TemporaryDirectory(dir=home, prefix=".incoming-") as incoming,
        _quiet(pooch.get_logger()),
    ):
        bar = _Bar(display, file.filename) if display else False
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=_TIMEOUT)
        try:
            path = Path(
                pooch.retrieve(
                    url, None, file.filename, incoming, processor=whole, downloader=downloader
                )
            )
        except RequestException as error:
            raise EbbflowError(
                f"Cannot download {url} ({_reason(error)}); check the connection and try again, "
                "or pass a mirror with `--from`."
            ) from error
        # Temporary files are private, but a data folder is often shared.
        path.chmod(0o644)
        path.replace(home / file.filename)


def _reason(error: Exception) -> str:
    """Return the root cause of a network error, without the errors wrapped around it."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    cause: BaseException = error
    while (below := cause.__cause__ or cause.__context__) is not None:
        cause = below
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Stop pooch from logging that it has no checksum: we check the uncompressed content."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _display() -> Progress:
    # Imported only when something is downloaded.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    return Progress(console=Console(stderr=True))


class _Bar:
    """One file's line of the display, with the interface that pooch expects of a progress bar."""

    def __init__(self, display: Progress, title: str) -> None:
        self._display = display
        self._task = display.add_task(title, total=None)
        # pooch sets it to the file's size, or leaves 0 if the server does not say.
        self.total = 0

    def update(self, size: int) -> None:
        self._display.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        self._display.update(self._task, completed=0)

    def close(self) -> None:
        self._display.refresh()
