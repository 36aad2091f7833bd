"""A browser for tests: Debian's Chromium, driven by playwright, with a fresh profile every time.

Where Chromium is missing, and this is Debian and we are root, it is installed once (unless
EBBFLOW_NO_APT is set); otherwise tests that need it are skipped, with the reason. The fixtures
are imported once, by ``tests/conftest.py``: a second browser could not be driven beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-sync",
    "--no-first-run",
    # Chromium refuses to start as root without it; what is opened here is our own.
    "--no-sandbox",
)
APT_SECONDS = 240


def chromium() -> Path:
    """Return the browser, or skip the test."""
    if found := _found():
        return found
    reason = _why_not_installed()
    if not reason:
        # Two workers must not install at once; the second finds what the first has installed.
        with FileLock(Path(tempfile.gettempdir()) / "ebbflow-chromium.lock"):
            reason = "" if _found() else _install()
    if found := _found():
        return found
    pytest.skip(f"there is no Chromium here ({reason})")


def _found() -> Path | None:
    paths = (shutil.which(name) for name in NAMES)
    return next((Path(path) for path in paths if path), None)


def _why_not_installed() -> str:
    if os.environ.get("EBBFLOW_NO_APT"):
        return "EBBFLOW_NO_APT is set"
    if os.geteuid() != 0:
        return "only root can install it: `apt-get install chromium`"
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        return "this is not Debian: install Chromium by hand"
    return ""


def _install() -> str:
    """Install Chromium; return what went wrong, if something did."""
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],
    ):
        try:
            subprocess.run(command, env=quiet, check=True, capture_output=True, timeout=APT_SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{' '.join(command)} failed: {error}"
    return ""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once for all tests of a worker."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield started
        started.close()


@dataclass
class Visit:
    """A page, and everything that it asked for and complained about.

    ``requests`` are all addresses but those of the page itself and of data within it;
    ``complaints`` are warnings and errors on the console, errors of scripts, and dialogs.
    """

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def drawn(self) -> None:
        """Wait until every chart is drawn."""
        # No function is waited for: that would be compiled from a text, which the page forbids.
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)

    def settled(self) -> None:
        """Let the page begin what it does next, and wait until every chart is drawn."""
        self.page.wait_for_timeout(60)
        self.drawn()

    def until(self, holds: Callable[[], object], seconds: float = 20) -> None:
        """Wait until something holds; on a busy machine that may take a while."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it does not hold, however long one waits"
            self.page.wait_for_timeout(30)


class OpenPage(Protocol):
    """Opens a file or an address; more is passed on to playwright's ``new_context``."""

    def __call__(
        self, where: Path | str, *, dark: bool = False, phone: bool = False, **more: Any
    ) -> Visit: ...


@pytest.fixture
def page_factory(browser: Browser) -> Iterator[OpenPage]:
    """Open pages, each in a profile of its own."""
    opened: list[Callable[[], None]] = []

    def open_page(
        where: Path | str, *, dark: bool = False, phone: bool = False, **more: Any
    ) -> Visit:
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
        touch = {"has_touch": True, "is_mobile": True} if phone else {}
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme, **touch, **more)  # type: ignore[arg-type]
        opened.append(context.close)
        visit = Visit(context.new_page())
        address = where if isinstance(where, str) else where.resolve().as_uri()
        _listen(visit, address)
        visit.page.goto(address)
        return visit

    yield open_page
    for close in opened:
        close()


def _listen(visit: Visit, address: str) -> None:
    page = visit.page

    def asked(url: str) -> None:
        if url.partition("#")[0] != address and not url.startswith(("data:", "blob:")):
            visit.requests.append(url)

    def dismissed(dialog: Any) -> None:
        visit.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: visit.complaints.append(f"error: {error}"))
    page.on("dialog", dismissed)
    page.on(
        "console",
        lambda message: (
            visit.complaints.append(f"{message.type}: {message.text}")
            if message.type not in ("log", "info", "debug")
            else None
        ),
    )
