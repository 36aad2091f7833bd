"""The page of a run that goes on: curves and counters move, and what the reader did stays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ebbflow.analysis.views.run_view import RunView
from ebbflow.report.page.content import PageContent, page_content
from ebbflow.report.page.rendering import render_page
from tests.browser import OpenPage, Visit
from tests.report.page.contents import content, view
from tests.report.page.looking import charts, names, traces

TOKEN = "/secret/"


def until(session: int, seed: int = 2) -> RunView:
    """Return the comparison as it was before a session of its last seed."""
    whole = view("comparison")
    rounds = [r for r in whole.rounds if (r.seed, r.session) < (seed, session)]
    events = [e for e in whole.events if (e["seed"], e["session"]) < (seed, session)]
    return replace(whole, rounds=rounds, events=events, finished=False)


def rows(session: int, first: int = 1, last: int = 99, seed: int = 2) -> list[list[Any]]:
    return [
        [0, r.algorithm, r.method, r.seed, r.session, r.round, r.accuracy, r.loss]
        for r in view("comparison").rounds
        if (r.seed, r.session) == (seed, session) and first <= r.round <= last
    ]


def starts(session: int, seed: int = 2) -> list[list[Any]]:
    return [
        [0, e["algorithm"], e["method"], seed, session, e["accuracy"], e["rounds"]]
        for e in view("comparison").events
        if e["event"] == "start" and (e["seed"], e["session"]) == (seed, session)
    ]


def state(done: int, name: str = "running") -> dict[str, Any]:
    return {"state": name, "seed": 2, "session": 5, "round": 1, "done": done, "total": 30}


def changes(**more: Any) -> dict[str, Any]:
    return {"cursor": "c", "state": state(20), "rounds": [], "starts": [], "content": None} | more


def applied(visit: Visit, **more: Any) -> None:
    visit.page.evaluate("(changes) => window.ebbflowApply(changes)", changes(**more))
    visit.settled()


@pytest.fixture
def live(tmp_path: Path, page_factory: OpenPage) -> Visit:
    """Return the page of the comparison before session 5 of its second seed."""
    found = page_content([until(5)])
    found["runs"][0]["state"]["state"] = "running"
    path = tmp_path / "live.html"
    # It never asks: the test tells it what has changed.
    path.write_text(render_page(found, {"every": 3600}), encoding="utf-8")
    visit = page_factory(path, reduced_motion="reduce")
    visit.drawn()
    return visit


def points(visit: Visit) -> int:
    return sum(
        value is not None
        for trace in traces(visit, "accuracy")
        if trace.get("mode") == "lines+markers"
        for value in trace["y"]
    )


def test_rounds_move_the_curves_and_the_counters(live: Visit) -> None:
    live.page.locator("#controls label", has_text="each seed").click()
    live.settled()
    before = points(live)
    applied(live, starts=starts(5), rounds=rows(5, last=1))
    methods = len(rows(5, last=1))
    assert points(live) == before + 2 * methods  # what the start achieves, and round 1
    applied(live, state=state(29), rounds=rows(5, first=2))
    assert points(live) == before + 4 * methods
    assert "29 of 30 rounds" in live.page.inner_text("#state")
    assert live.page.locator("#state progress").get_attribute("value") == "29"
    assert live.complaints == []


def test_at_the_end_it_is_the_page_of_the_finished_run(live: Visit, tmp_path: Path) -> None:
    applied(live, starts=starts(5), rounds=rows(5))
    moved = traces(live, "accuracy")
    applied(live, content=content("comparison"), state=state(30, "finished"))
    assert live.page.inner_text("#state") == "finished"
    assert live.page.inner_text("#spoken") == "Finished."
    whole = traces(live, "accuracy")
    for one, other in zip(moved, whole, strict=True):
        assert one["x"] == other["x"]
        for a, b in zip(one["y"], other["y"], strict=True):
            assert a == b or a == pytest.approx(b, rel=1e-4)
    assert "30 of 30" not in live.page.inner_text("#state")


@pytest.mark.slow
def test_what_the_reader_did_stays(live: Visit) -> None:
    page = live.page
    page.locator("#controls label", has_text="average").click()
    page.select_option("#accuracy select", label="session 3")
    page.locator("#costs summary").first.click()
    page.locator("#presence").scroll_into_view_if_needed()
    page.locator("#controls label", has_text="previous").locator("input").focus()
    live.settled()
    before = page.evaluate("() => scrollY")
    assert before > 500
    applied(live, starts=starts(5), rounds=rows(5))
    applied(live, content=page_content([until(6)]))
    assert page.evaluate("() => scrollY") == pytest.approx(before, abs=60)
    assert "average" not in names(live, "accuracy")
    assert page.eval_on_selector("#accuracy select", "(s) => s.selectedOptions[0].text") == (
        "session 3"
    )
    assert page.locator("#costs details[open]").count() == 1
    assert page.evaluate("() => document.activeElement.parentElement.textContent") == "previous"
    assert live.complaints == []


def test_only_charts_in_view_are_drawn_again(live: Visit) -> None:
    page = live.page
    page.evaluate(
        """() => {
          window.drawn = [];
          const react = Plotly.react;
          Plotly.react = (plot, ...rest) => {
            window.drawn.push(plot.closest('section').id);
            return react(plot, ...rest);
          };
          document.getElementById('settings').scrollIntoView();
        }"""
    )
    applied(live, starts=starts(5), rounds=rows(5))
    assert page.evaluate("() => window.drawn") == []
    page.evaluate("() => document.getElementById('accuracy').scrollIntoView()")
    live.until(lambda: page.evaluate("() => window.drawn"))
    assert set(page.evaluate("() => window.drawn")) <= {"accuracy", "first"}


def test_a_run_that_has_just_begun_grows_before_the_eyes(
    tmp_path: Path, page_factory: OpenPage
) -> None:
    path = tmp_path / "live.html"
    nothing = replace(view("comparison"), rounds=[], events=[], finished=False)
    path.write_text(render_page(page_content([nothing]), {"every": 3600}), encoding="utf-8")
    visit = page_factory(path)
    visit.page.wait_for_selector("#settings table")
    assert charts(visit) == []
    applied(visit, starts=starts(1, seed=1), rounds=rows(1, last=1, seed=1))
    assert [chart["section"] for chart in charts(visit)] == ["accuracy"]
    applied(visit, rounds=rows(1, first=2, seed=1))
    assert len([y for t in traces(visit, "accuracy") for y in t["y"] if y is not None]) >= 4
    assert visit.complaints == []


# --- asking --------------------------------------------------------------------------------------


class Poster:
    """A server that shows the page under a secret address, and answers as it was told."""

    def __init__(self, page: str) -> None:
        self.page, self.answer = page, changes()
        self.asked: list[str] = []

    def get(self, path: str) -> bytes | None:
        where = urlsplit(path)
        if where.path == TOKEN:
            return self.page.encode()
        if where.path == f"{TOKEN}changes":
            self.asked.append(parse_qs(where.query, keep_blank_values=True)["after"][0])
            return json.dumps(self.answer).encode()
        return None


@contextmanager
def serving(poster: Poster) -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = poster.get(self.path)
            self.send_response(404 if found is None else 200)
            kind = "application/json" if "changes" in self.path else "text/html; charset=utf-8"
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def live_content() -> PageContent:
    found = page_content([until(5)])
    found["runs"][0]["state"]["state"] = "running"
    return found


@pytest.mark.slow
def test_it_asks_its_own_address_and_stops_when_nobody_answers(page_factory: OpenPage) -> None:
    poster = Poster(render_page(live_content(), {"every": 0.05, "cursor": "first"}))
    with serving(poster) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}{TOKEN}"
        visit = page_factory(address)
        visit.drawn()
        poster.answer = changes(cursor="next", starts=starts(5), rounds=rows(5), state=[state(29)])
        visit.page.get_by_text("29 of 30 rounds").wait_for()
        assert poster.asked[0] == "first"
        visit.until(lambda: "next" in poster.asked)
        assert {url.partition("?")[0] for url in visit.requests} == {f"{address}changes"}
        # A tab that nobody sees does not ask.
        visit.page.evaluate(
            """() => {
              Object.defineProperty(document, 'hidden', { value: true, configurable: true });
              document.dispatchEvent(new Event('visibilitychange'));
            }"""
        )
        visit.page.wait_for_timeout(150)
        count = len(poster.asked)
        visit.page.wait_for_timeout(300)
        assert len(poster.asked) == count
        visit.page.evaluate(
            """() => {
              Object.defineProperty(document, 'hidden', { value: false, configurable: true });
              document.dispatchEvent(new Event('visibilitychange'));
            }"""
        )
        visit.until(lambda: len(poster.asked) > count)
        assert visit.complaints == []
    visit.page.get_by_text("The live view has ended.").first.wait_for()
    tried = len(visit.requests)
    visit.page.wait_for_timeout(300)
    assert len(visit.requests) == tried


def test_when_the_run_is_over_it_asks_seldom(page_factory: OpenPage) -> None:
    poster = Poster(render_page(live_content(), {"every": 0.05}))
    poster.answer = changes(state=[state(30, "finished")])
    with serving(poster) as server:
        visit = page_factory(f"http://127.0.0.1:{server.server_address[1]}{TOKEN}")
        visit.page.get_by_text("finished").first.wait_for()
        visit.page.wait_for_timeout(700)
        few = len(poster.asked)
        assert few <= 6  # the last content may still be on its way
        visit.page.wait_for_timeout(400)
        assert len(poster.asked) == few
        assert visit.complaints == []
