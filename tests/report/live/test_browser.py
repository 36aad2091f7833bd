"""The live page in a real browser: it follows its runs by itself, and asks nobody else."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbflow.report.live import watching as module
from ebbflow.report.live.pace import Pace
from ebbflow.report.live.server import LiveServer
from ebbflow.report.live.watching import GONE, Watching
from ebbflow.runs import records
from tests.browser import OpenPage, Visit
from tests.report.live.growing import GrowingRun
from tests.report.live.serving import serving
from tests.run_folders import resealed

playwright = pytest.importorskip("playwright.sync_api")

EVIL = '"><img src=x onerror="window.evil=1"><script>window.evil=1</script>\x1b[31m'


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, so that tests need not wait."""
    monkeypatch.setattr(module, "EVERY", 0.2)


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> GrowingRun:
    return GrowingRun(small_run, tmp_path / "run")


@pytest.fixture
def server(run: GrowingRun) -> Iterator[LiveServer]:
    with serving(Watching([run.folder.parent])) as running:
        yield running


def until(visit: Visit, state: str) -> None:
    """Wait until the line on top of the page says this.

    A page asks seldom while no run goes on, and at once when it comes into view again.
    """
    found = visit.page.locator("#state", has_text=re.compile(state))
    for _ in range(300):
        if found.count():
            return
        with contextlib.suppress(playwright.Error):  # it is being loaded again
            visit.page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
        visit.page.wait_for_timeout(200)
    raise AssertionError(f"{state!r}: {visit.page.inner_text('body')[:500]}")


def until_there(visit: Visit, state: str) -> None:
    """Wait for this on top of the page, without making the page ask."""
    found = visit.page.locator("#state", has_text=re.compile(state))
    found.wait_for(state="attached", timeout=60_000)


def marked(visit: Visit) -> bool:
    """Whether the page is the one that was marked, and has not been loaded again."""
    found: Any = visit.page.evaluate("() => window.marked === true")
    return bool(found)


def quiet(visit: Visit, server: LiveServer) -> None:
    """Assert that the page has asked nobody but its server, and that nothing went wrong."""
    assert visit.complaints == []
    assert all(address.startswith(server.url) for address in visit.requests)
    assert visit.page.evaluate("() => window.evil") is None


def test_numbers_move_by_themselves(
    run: GrowingRun, server: LiveServer, page_factory: OpenPage
) -> None:
    with run.running():
        run.grow(1, 1)
        visit = page_factory(server.url)
        until(visit, r"running: seed 1, session 1 of 4, round 1 \(1 of 12 rounds\)")
        visit.page.evaluate("() => { window.marked = true; }")
        rounds = visit.page.locator("#verdict .numbers")
        before = rounds.inner_text()
        run.grow(1, 3)
        until(visit, r"round 3 \(3 of 12 rounds\)")
        assert rounds.inner_text() != before
        run.grow(3, 2)
        until(visit, r"session 3 of 4, round 2 \(8 of 12 rounds\)")
    until(visit, "stopped at seed 1, session 3")
    run.grow(2, 1)  # somebody resumes it from a checkpoint
    with run.running():
        until(visit, "running: seed 1, session 2 of 4, round 1")
    run.finish()
    until(visit, "^ *finished")
    visit.page.get_by_text(re.compile("won|level")).first.wait_for()
    visit.settled()
    assert marked(visit)
    assert len(visit.requests) >= 5
    quiet(visit, server)


def test_curves_wait_for_their_turn_and_numbers_do_not(
    run: GrowingRun, page_factory: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> int:
        visit.settled()
        marks = visit.page.evaluate("() => performance.getEntriesByName('ebbflow chart').length")
        assert isinstance(marks, int)
        return marks

    monkeypatch.setattr(module, "EVERY", 600.0)  # the test tells the page what is new
    watching = Watching([run.folder])
    apply = "([changes, draw]) => window.ebbflowApply(changes, { draw })"
    with run.running(), serving(watching) as server:
        run.grow(1, 1)
        visit = page_factory(server.url)
        until_there(visit, "round 1")
        before = drawn()
        run.grow(1, 3)
        time.sleep(0.6)  # until it looks again
        visit.page.evaluate(apply, [json.loads(watching.changes("1-0-0")), False])
        until_there(visit, "round 3")
        assert drawn() == before
        visit.page.evaluate(apply, [json.loads(watching.changes("1-4-0")), True])
        assert drawn() == before + 1
        quiet(visit, server)


@pytest.mark.slow
def test_what_is_out_of_sight_waits_while_a_run_goes_on(
    run: GrowingRun, page_factory: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_drawn(section: str) -> bool:
        return bool(visit.page.locator(f"#{section} .main-svg").count())

    def sessions() -> int:
        """Return how many rows the last table of the section on presence has."""
        return visit.page.locator("#presence tbody tr").count()

    monkeypatch.setattr(module, "EVERY", 600.0)  # the test tells the page what is new
    watching = Watching([run.folder])
    apply = "(changes) => window.ebbflowApply(changes)"
    with run.running(), serving(watching) as server:
        run.end(1)
        visit = page_factory(server.url)
        until_there(visit, "session 1")
        visit.settled()
        assert not is_drawn("presence")
        before = sessions()
        run.end(3)
        monkeypatch.setattr(Pace, "ready", lambda self, haste=1.0: True)
        visit.page.evaluate(apply, json.loads(watching.changes("1-0-0")))
        until_there(visit, "session 3")
        visit.settled()
        assert sessions() == before
        visit.page.locator("#presence").scroll_into_view_if_needed()
        visit.until(lambda: sessions() == before + 2)
        visit.until(lambda: is_drawn("presence"))
        assert not is_drawn("origins")
        run.finish()
        visit.page.evaluate(apply, json.loads(watching.changes("2-0-0")))
        visit.until(lambda: is_drawn("origins"))
        quiet(visit, server)


def test_a_page_that_was_there_before_the_run_shows_it(
    small_run: Path, tmp_path: Path, page_factory: OpenPage
) -> None:
    with serving(Watching([tmp_path / "later"])) as server:
        visit = page_factory(server.url)
        assert "There is no run yet" in visit.page.inner_text("body")
        GrowingRun(small_run, tmp_path / "later").finish()
        until(visit, "finished")
        visit.drawn()
        quiet(visit, server)


def test_runs_of_a_sweep_appear_and_what_is_wrong_is_told(
    run: GrowingRun, server: LiveServer, small_run: Path, page_factory: OpenPage
) -> None:
    run.grow(1, 2)
    visit = page_factory(server.url)
    until(visit, "stopped")
    run.damage(2)
    until(visit, "does not match its checksum")
    second = GrowingRun(small_run, run.folder.parent / "second")
    second.finish()
    until(visit, "1 stopped, 1 finished")
    assert visit.page.title().startswith("2 runs")
    visit.settled()
    quiet(visit, server)


@pytest.mark.slow
def test_a_run_that_vanished_is_told(
    run: GrowingRun, server: LiveServer, page_factory: OpenPage
) -> None:
    run.grow(1, 2)
    visit = page_factory(server.url)
    until(visit, "stopped")
    shutil.rmtree(run.folder)
    until(visit, GONE)
    quiet(visit, server)


def test_names_inject_nothing(small_run: Path, tmp_path: Path, page_factory: OpenPage) -> None:
    """Neither into the page as it is loaded, nor by what it is told later."""
    names = EVIL.replace("/", "|")
    run = GrowingRun(small_run, tmp_path / names)
    hostile: list[dict[str, Any]] = [
        {"event": "names", "seed": 1, "names": [EVIL] * 8},
        {"event": "warning", "text": EVIL},
        {"event": "note", "seed": 1, "session": 1, "text": EVIL},
    ]

    def renamed(content: dict[str, Any]) -> None:
        content["dataset"] |= {"name": EVIL, "labels": [EVIL] * 10}

    resealed(run.folder / records.ENVIRONMENT, renamed)
    with serving(Watching([run.folder])) as server:
        run.grow(1, 1)
        visit = page_factory(server.url)
        until(visit, "stopped")
        run.grow(1, 3)
        with (run.folder / records.EVENTS).open("ab") as file:
            file.writelines(map(records.line_of, hostile))
        visit.page.reload()
        until(visit, "round 3")
        with (run.folder / records.METRICS).open("ab") as file:
            file.write(b"<img src=x onerror=window.evil=1>\n")
        with (run.folder / records.EVENTS).open("ab") as file:
            file.writelines(map(records.line_of, hostile))
            end = {"event": "finished", "seed": 1, "session": 1, "seconds": 1.0}
            file.write(records.line_of(end))
        until(visit, "no JSON object|checksum")
        visit.settled()
        assert visit.page.locator("img").count() == 0
        assert "\x1b" not in visit.page.content()
        quiet(visit, server)


def test_a_page_survives_its_server(
    run: GrowingRun, page_factory: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.grow(1, 2)
    with run.running(), serving(Watching([run.folder])) as server:
        visit = page_factory(server.url)
        until(visit, "running")
        visit.drawn()
    until(visit, "The live view has ended")
