"""Where the files of the known data sets come from, where they lie, and whether they are whole.

Checksums are of the *uncompressed content*: mirrors compress the same files differently, and a
file that somebody unpacked is still the same file.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import logging
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import platformdirs

from ebbflow.core.errors import EbbflowError

if TYPE_CHECKING:
    from rich.progress import Progress

Status = Literal["ok", "missing", "wrong checksum"]
"""What a check of one file found; a file that cannot be unpacked has a wrong checksum."""

ENVIRONMENT = "EBBFLOW_DATA"
"""The environment variable that names the folder with the data sets."""

BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a truncated or damaged gzip file raises."""

_BUNDLED = Path(__file__).parent / "files"
_DIGITS_SHA256 = "6f801551877abf69fbf3711373bb642a18dc933430a3385cd6febc235225ea6f"
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_TIMEOUT = 30.0


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set, and the SHA-256 of what it holds once uncompressed."""

    filename: str
    sha256: str


@dataclass(frozen=True)
class Source:
    """A data set that ebbflow knows by name.

    ``folder`` is the sub-folder of the data folder that holds ``files``; ``train`` and ``test``
    count samples. A source without ``base_url`` comes with ebbflow.
    """

    name: str
    title: str
    folder: str
    licence: str
    classes: int
    train: int
    test: int
    files: tuple[RemoteFile, ...]
    base_url: str = ""

    @property
    def bundled(self) -> bool:
        """Whether the files come with ebbflow."""
        return not self.base_url


@dataclass(frozen=True)
class FileCheck:
    """The state of one file: its name, where it is (or should be), and what the check found."""

    filename: str
    path: Path
    status: Status


def _idx_files(*sha256: str) -> tuple[RemoteFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(RemoteFile(f"{n}-ubyte.gz", h) for n, h in zip(names, sha256, strict=True))


SOURCES: dict[str, Source] = {
    "digits": Source(
        name="digits",
        title="Optical Recognition of Handwritten Digits (8x8)",
        folder="",
        licence="CC BY 4.0",
        classes=10,
        train=1_437,
        test=360,
        files=(RemoteFile("digits.npz", _DIGITS_SHA256),),
    ),
    "mnist": Source(
        name="mnist",
        title="MNIST handwritten digits (28x28)",
        folder="mnist",
        licence="CC BY-SA 3.0",
        classes=10,
        train=60_000,
        test=10_000,
        files=_idx_files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    "fmnist": Source(
        name="fmnist",
        title="Fashion-MNIST articles of clothing (28x28)",
        folder="fashion-mnist",
        licence="MIT",
        classes=10,
        train=60_000,
        test=10_000,
        files=_idx_files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
}
"""Every data set known by name. The files of an idx source are, in order, the images and labels
for training, then those for testing."""

ALIASES = {"fashion-mnist": "fmnist"}
"""Other names that are understood."""


def source(name: str) -> Source:
    """Return the data set called ``name``.

    >>> source("fashion-mnist").name
    'fmnist'
    >>> source("mnits")
    Traceback (most recent call last):
    ebbflow.core.errors.EbbflowError: There is no data set 'mnits' (did you mean 'mnist'?); choose \
digits, mnist or fmnist, or give the path of an .npz file.
    """
    canonical = ALIASES.get(name, name)
    if canonical in SOURCES:
        return SOURCES[canonical]
    near = difflib.get_close_matches(name.lower(), [*SOURCES, *ALIASES], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    *first, last = SOURCES
    raise EbbflowError(
        f"There is no data set {name!r}{hint}; choose {', '.join(first)} or {last}, "
        "or give the path of an .npz file."
    )


def data_folders(folder: Path | None = None) -> list[Path]:
    """Return the folders in which data sets are looked up, first choice first.

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


def locate(folder: Path, filename: str) -> Path | None:
    """Return the path of a file in ``folder``, compressed or not; None if it is not there."""
    for candidate in (folder / filename, folder / filename.removesuffix(".gz")):
        if candidate.is_file():
            return candidate
    return None


def find(wanted: Source | str, folder: Path | None = None) -> Path | None:
    """Return the first folder that has all files of a data set; None if there is none.

    >>> find("digits").name
    'files'
    """
    wanted = source(wanted) if isinstance(wanted, str) else wanted
    if wanted.bundled:
        return _BUNDLED
    for root in data_folders(folder):
        home = root / wanted.folder
        if all(locate(home, file.filename) for file in wanted.files):
            return home
    return None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading its uncompressed content, whether or not it is compressed."""
    # The first bytes decide, not the name: some servers unpack a .gz file while they send it.
    with path.open("rb") as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if compressed:
            with gzip.GzipFile(fileobj=raw) as content:
                yield cast(BinaryIO, content)
        else:
            yield raw


def content_sha256(path: Path) -> str | None:
    """Return the SHA-256 of a file's uncompressed content; None if it cannot be unpacked."""
    digest = hashlib.sha256()
    try:
        with opened(path) as content:
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
    """Check every file of a data set against its checksum, in the folder that loading would use.

    Without a complete folder, the first that has any of the files is checked.

    >>> [check.status for check in verify("digits")]
    ['ok']
    """
    wanted = source(name)
    home = find(wanted, folder)
    if home is None:
        homes = [root / wanted.folder for root in data_folders(folder)]
        begun = [h for h in homes if any(locate(h, file.filename) for file in wanted.files)]
        home = [*begun, *homes][0]
    return [_check(home, file) for file in wanted.files]


def _check(home: Path, file: RemoteFile) -> FileCheck:
    path = locate(home, file.filename)
    if path is None:
        return FileCheck(file.filename, home / file.filename, "missing")
    whole = content_sha256(path) == file.sha256
    return FileCheck(file.filename, path, "ok" if whole else "wrong checksum")


def fetch(
    name: str,
    *,
    mirror: str | None = None,
    destination: Path | None = None,
    progress: bool = False,
) -> Path:
    """Download the files of a data set that are missing or damaged, and return their folder.

    They go to the data set's sub-folder of ``destination``; without it, of ``EBBFLOW_DATA`` if
    that is set and of the user's cache otherwise. ``mirror`` is the address of a folder that holds
    the same files. A file takes its name only once its checksum is right.
    """
    wanted = source(name)
    if wanted.bundled:
        if any(check.status != "ok" for check in verify(name)):
            raise EbbflowError(
                f"The files of {name!r} in {str(_BUNDLED)!r} are damaged; reinstall ebbflow."
            )
        return _BUNDLED
    home = (destination or data_folders()[0]) / wanted.folder
    base = wanted.base_url if mirror is None else mirror
    if not base.startswith(("http://", "https://")):
        raise EbbflowError(
            f"The mirror {base!r} is not a web address; give one that begins with https:// or "
            f"http://, or set {ENVIRONMENT} to a local folder."
        )
    needed = [file for file in wanted.files if _check(home, file).status != "ok"]
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _display() if progress and needed else nullcontext() as display:
            for file in needed:
                _download(f"{base.rstrip('/')}/{file.filename}", file, home, display)
    except OSError as error:
        raise EbbflowError(
            f"Cannot write to {str(home)!r} ({error.strerror or error}); make that possible, or "
            f"set {ENVIRONMENT} to a folder with room that you may write to."
        ) from error
    return home


def _download(url: str, file: RemoteFile, home: Path, display: Progress | None) -> None:
    # pooch and requests take long to import, and most runs download nothing.
    import pooch  # noqa: PLC0415
    from requests.exceptions import RequestException  # noqa: PLC0415

    def check(downloaded: str, _action: str, _pooch: object) -> str:
        path = Path(downloaded)
        found = content_sha256(path)
        if found != file.sha256:
            path.unlink()
            gave = (
                f"content with SHA-256 {found}" if found else "a gzip file that cannot be unpacked"
            )
            raise EbbflowError(
                f"{url} gave {gave} where SHA-256 {file.sha256} is expected; try again, or pass "
                "another mirror with `--from`."
            )
        return downloaded

    # A folder of its own: pooch would take a file that is there already for a finished download,
    # and whatever is left behind when the download breaks off goes with the folder.
    with (
        tempfile.TemporaryDirectory(dir=home, prefix=".incoming-") as incoming,
        _quiet(pooch.get_logger()),
    ):
        bar = _Bar(display, file.filename) if display else False
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=_TIMEOUT)
        try:
            path = Path(
                pooch.retrieve(
                    url, None, file.filename, incoming, processor=check, downloader=downloader
                )
            )
        except RequestException as error:
            raise EbbflowError(
                f"Cannot download {url} ({_reason(error)}); check the connection and try again, "
                "or pass a mirror with `--from`."
            ) from error
        # Temporary files are private; a data folder is often shared.
        path.chmod(0o644)
        path.replace(home / file.filename)


def _reason(error: Exception) -> str:
    """Return the cause at the bottom of a network error, without the layers wrapped around it."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    cause: BaseException = error
    while (below := cause.__cause__ or cause.__context__) is not None:
        cause = below
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch from logging that it knows no checksum: it is checked here, uncompressed."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _display() -> Progress:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    return Progress(console=Console(stderr=True))


class _Bar:
    """One file's line of the display, with what pooch expects of a progress bar."""

    def __init__(self, display: Progress, title: str) -> None:
        self._display = display
        self._task = display.add_task(title, total=None)
        # pooch sets it to the file's size, or leaves 0 if the server does not tell.
        self.total = 0

    def update(self, size: int) -> None:
        self._display.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        self._display.update(self._task, completed=0)

    def close(self) -> None:
        self._display.refresh()
