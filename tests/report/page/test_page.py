"""The page in a browser: everything is drawn, nothing is fetched, and everybody can use it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ebbflow.analysis.views.run_view import RunView
from ebbflow.analysis.views.stretches import Stretch, spans, stretches, undecided
from ebbflow.report.page.content import content_of_folders, page_content
from ebbflow.report.page.rendering import render_page
from tests.browser import OpenPage, Visit
from tests.report.page.conftest import PageOf
from tests.report.page.contents import content, view
from tests.report.page.looking import (
    SECTIONS,
    charts,
    names,
    traces,
    unclean,
    width_beyond,
)

RUNS = ("comparison", "two_algorithms", "wards", "lower_is_better", "under_way")


# --- drawn, and alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_every_chart_is_drawn_and_nothing_is_fetched(
    name: str, page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of(name))
    visit.drawn()
    drawn = charts(visit)
    assert {chart["section"] for chart in drawn} >= {"accuracy", "costs", "presence", "origins"}
    for chart in drawn:
        assert chart["traces"] and chart["pieces"], chart
        assert len(chart["label"]) > 20
    assert visit.requests == []
    assert visit.complaints == []
    assert unclean(visit) == []
    check_headings(visit)
    headings = visit.page.eval_on_selector_all("main > section", "all => all.map((s) => s.id)")
    assert tuple(headings) == SECTIONS


def test_a_run_without_a_round_is_a_page_too(tmp_path: Path, page_factory: OpenPage) -> None:
    empty = replace(view("comparison"), rounds=[], events=[], finished=False)
    path = tmp_path / "empty.html"
    path.write_text(render_page(page_content([empty])), encoding="utf-8")
    visit = page_factory(path)
    visit.page.wait_for_selector("#settings table")
    assert "No transition is over yet" in visit.page.inner_text("#verdict")
    assert visit.complaints == [] and charts(visit) == []


@pytest.mark.slow
def test_sections_without_data_say_why(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("comparison"))
    visit.drawn()
    assert 'partition.kind = "natural"' in visit.page.inner_text("#devices")
    assert "Nothing went wrong" in visit.page.inner_text("#events")
    other = page_factory(page_of("two_algorithms"))
    other.drawn()
    assert "There is no map" in other.page.inner_text("#map")


# --- what is drawn is what was computed ----------------------------------------------------------


def pieces(trace: dict[str, Any]) -> list[list[float]]:
    """Return the unbroken parts of a line."""
    parts: list[list[float]] = [[]]
    for value in trace["y"]:
        if value is None:
            parts.append([])
        else:
            parts[-1].append(value)
    return [part for part in parts if part]


@pytest.mark.parametrize("name", ["comparison", "two_algorithms", "under_way"])
def test_lines_are_the_stretches_of_the_view(
    name: str, page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of(name))
    visit.drawn()
    own = view(name)
    for number, algorithm in enumerate(own.algorithms):
        expected = {
            tuple(round(mean, 2) for _, mean, _, _ in stretch.points())
            for stretch in stretches(own, algorithm)
        }
        drawn = {
            tuple(round(value, 2) for value in piece)
            for trace in traces(visit, "accuracy", number)
            if trace.get("mode") == "lines+markers"
            for piece in pieces(trace)
        }
        assert len(drawn) == len(expected)
        for piece in expected:
            assert any(close(piece, other) for other in drawn)
        layout = visit.page.evaluate(
            """(number) => {
              const plot = document.querySelectorAll('#accuracy .plot')[number];
              return JSON.parse(JSON.stringify([plot.layout.shapes, plot.layout.annotations]));
            }""",
            number,
        )
        shaded = [shape["x0"] - 0.5 for shape in layout[0] if shape["type"] == "rect"]
        before = {span.session: span.before for span in spans(own, algorithm)}
        assert shaded == [before[session] for session in undecided(own, algorithm)]
        borders = [shape["x0"] - 0.5 for shape in layout[0] if shape["type"] == "line"]
        assert borders == list(before.values())[1:]
        check_bands(own, algorithm, traces(visit, "accuracy", number))
        check_gaps(own, algorithm, traces(visit, "accuracy", number))


def check_bands(own: RunView, algorithm: str, drawn: list[dict[str, Any]]) -> None:
    """Bands are the range over seeds."""
    bands = [trace for trace in drawn if trace.get("fill") == "toself"]
    found = [tuple(piece) for trace in bands for piece in pieces(trace)]
    expected = stretches(own, algorithm) if len(own.seeds) > 1 else []
    assert len(found) == len(expected)
    for stretch in expected:
        assert any(close(outline(stretch), piece) for piece in found)


def check_gaps(own: RunView, algorithm: str, drawn: list[dict[str, Any]]) -> None:
    """No line joins two sessions."""
    ends = [span.before + 0.5 for span in spans(own, algorithm)][1:]
    for trace in drawn:
        if trace.get("mode") == "markers":
            continue
        for a, b in pairwise(trace["x"]):
            if a is not None and b is not None:
                assert not any(min(a, b) < end < max(a, b) for end in ends)


def close(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b, abs_tol=0.02) for a, b in zip(one, other, strict=True)
    )


def outline(stretch: Stretch) -> tuple[float, ...]:
    points = list(stretch.points())
    return (*(high for *_, high in points), *(low for _, _, low, _ in reversed(points)))


# --- what the reader changes ---------------------------------------------------------------------


def chip(visit: Visit, text: str) -> Any:
    return visit.page.locator("#controls label", has_text=re.compile(f"^{text}$"))


def test_a_click_hides_a_start_in_all_charts_and_shows_it_again(
    page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of("comparison"))
    visit.drawn()
    before = charts(visit)
    assert "average" in names(visit, "accuracy")
    chip(visit, "average").click()
    visit.settled()
    after = charts(visit)
    assert "average" not in names(visit, "accuracy") | names(visit, "first")
    for section in ("accuracy", "first", "scores", "costs", "origins"):
        then = next(chart for chart in before if chart["section"] == section)
        now = next(chart for chart in after if chart["section"] == section)
        assert now["label"] != then["label"], section
    chip(visit, "average").click()
    visit.settled()
    assert charts(visit) == before
    assert visit.complaints == []


def test_the_keyboard_does_what_the_mouse_does(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("comparison"))
    visit.drawn()
    page = visit.page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    page.keyboard.press("Tab")  # the first control
    assert page.evaluate("() => document.activeElement.type") == "checkbox"
    assert page.evaluate("() => document.activeElement.checked") is True
    page.keyboard.press("Space")
    visit.settled()
    assert "learned" not in names(visit, "accuracy")
    page.keyboard.press("Space")
    visit.settled()
    assert "learned" in names(visit, "accuracy")
    for _ in range(6):  # three more starts, two seeds, the kind of lines
        page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.type") == "radio"
    assert any(trace.get("fill") for trace in traces(visit, "accuracy"))
    page.keyboard.press("ArrowRight")
    visit.settled()
    assert not any(trace.get("fill") for trace in traces(visit, "accuracy"))  # each seed
    assert visit.complaints == []


def test_a_seed_can_be_left_out(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("comparison"))
    visit.drawn()
    chip(visit, "2").click()
    visit.settled()
    alone = stretches(view("comparison"), "fedavg", [1], together=False)
    drawn = [
        tuple(piece)
        for trace in traces(visit, "accuracy")
        if trace.get("mode") == "lines+markers"
        for piece in pieces(trace)
    ]
    for stretch in alone:
        expected = tuple(mean for _, mean, _, _ in stretch.points())
        assert any(close(expected, piece) for piece in drawn)
    assert not [trace for trace in traces(visit, "accuracy") if trace.get("fill")]
    assert "One seed (1)." in visit.page.inner_text("#accuracy figcaption")


@pytest.mark.slow
def test_everything_can_be_hidden(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("wards"))
    visit.drawn()
    for box in visit.page.locator("#controls input[type=checkbox]").all():
        box.uncheck()
        visit.settled()
    assert names(visit, "accuracy") == set()
    for box in visit.page.locator("#controls input[type=checkbox]").all():
        box.check()
    visit.settled()
    assert "learned" in names(visit, "accuracy")
    assert visit.complaints == []


@pytest.mark.slow
def test_a_click_on_a_control_that_stays_in_view_does_not_move_the_page(
    page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of("comparison"), reduced_motion="reduce")
    visit.drawn()
    visit.page.evaluate("() => document.querySelector('#costs').scrollIntoView()")
    visit.settled()
    before = visit.page.evaluate("() => scrollY")
    box = chip(visit, "previous").bounding_box()
    visit.page.mouse.click(box["x"] + 8, box["y"] + 8)
    visit.settled()
    assert "previous" not in names(visit, "accuracy")
    assert visit.page.evaluate("() => scrollY") == pytest.approx(before, abs=40)


def test_a_session_can_be_enlarged_by_the_list_and_by_the_mouse(
    page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of("comparison"))
    visit.drawn()
    page = visit.page
    plot = "() => document.querySelector('#accuracy .plot')._fullLayout.xaxis.range"
    whole = page.evaluate(plot)
    page.select_option("#accuracy select", label="session 4")
    visit.settled()
    span = next(s for s in spans(view("comparison"), "fedavg") if s.session == 4)
    low, high = page.evaluate(plot)
    assert span.before < low < span.before + 1
    assert span.before + span.rounds < high < span.before + span.rounds + 0.5
    page.select_option("#accuracy select", label="all sessions")
    visit.settled()
    assert page.evaluate(plot) == whole
    page.locator("#accuracy .plot").scroll_into_view_if_needed()
    box = page.locator("#accuracy .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 420, box["y"] + 152, steps=4)
    page.mouse.up()
    assert page.evaluate(plot)[0] > whole[0] + 1
    page.locator("#accuracy").get_by_role("button", name="Show all again").click()
    visit.settled()
    assert page.evaluate(plot) == whole


def test_data_are_there_as_tables(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("wards"))
    visit.drawn()
    page = visit.page
    for section in ("accuracy", "first", "scores", "costs", "presence", "origins", "devices"):
        summary = page.locator(f"#{section} figure summary").first
        summary.focus()
        page.keyboard.press("Enter")
        rows = page.locator(f"#{section} figure details table tbody tr")
        rows.nth(1).wait_for()
    rows = page.locator("#accuracy figure details tbody tr")
    curves = content("wards")["runs"][0]["curves"]
    first = next(c for c in curves if (c["method"], c["session"]) == ("learned", 1))
    assert rows.nth(1).inner_text().split()[:3] == ["1", "1", f"{first['accuracy'][0]:.2f}"]
    assert visit.complaints == []


@pytest.mark.slow
def test_devices_can_be_sorted_and_found(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("wards"))
    visit.drawn()
    page = visit.page
    page.get_by_text("Every device (8)").click()
    table = page.get_by_role("region", name="Devices under fedavg")
    page.locator("#devices th button", has_text="learned").click()
    cells = table.locator("tbody tr td:nth-child(3)").all_inner_texts()
    values = [float(cell) for cell in cells]
    assert values == sorted(values, reverse=True)
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("learned")
    page.locator("#devices th button", has_text="learned").click()
    assert [
        float(c) for c in table.locator("tbody tr td:nth-child(3)").all_inner_texts()
    ] == sorted(values)
    page.get_by_label("Find a device").fill("łódź")
    assert table.locator("tbody tr").count() == 1
    page.get_by_label("Find a device").fill("nobody")
    assert "No device is called that." in page.inner_text("#devices")


@pytest.mark.slow
def test_the_command_can_be_copied(tmp_path: Path, small_run: Path, page_factory: OpenPage) -> None:
    found = content_of_folders([small_run])
    path = tmp_path / "page.html"
    path.write_text(render_page(found), encoding="utf-8")
    visit = page_factory(path, permissions=["clipboard-read", "clipboard-write"])
    visit.drawn()
    visit.page.get_by_role("button", name="Copy").click()
    visit.page.get_by_text("Copied").wait_for()
    copied = visit.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == found["runs"][0]["settings"]["command"]


# --- light, dark, small, printed -----------------------------------------------------------------


@pytest.mark.slow
def test_light_and_dark(page_of: PageOf, page_factory: OpenPage) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    colour = "() => document.querySelector('#accuracy .plot').data.at(-1).line.color"
    light, dark = (
        page_factory(page_of("comparison")),
        page_factory(page_of("comparison"), dark=True),
    )
    for visit in (light, dark):
        visit.drawn()
    assert light.page.evaluate(ground) == "rgb(251, 251, 249)"
    assert dark.page.evaluate(ground) == "rgb(18, 21, 23)"
    assert light.page.evaluate(colour) != dark.page.evaluate(colour)
    light.page.get_by_role("button", name="Switch to dark colours").click()
    light.settled()
    assert light.page.evaluate(ground) == "rgb(18, 21, 23)"
    assert light.page.evaluate(colour) == dark.page.evaluate(colour)
    light.page.reload()
    light.drawn()
    assert light.page.evaluate(ground) == "rgb(18, 21, 23)"  # remembered
    assert light.complaints == []


@pytest.mark.parametrize(
    "names_of_runs",
    [("wards",), pytest.param(("comparison", "two_algorithms"), marks=pytest.mark.slow)],
)
def test_a_phone_scrolls_no_page_sideways(
    names_of_runs: tuple[str, ...], page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of(*names_of_runs), phone=True)
    visit.drawn()
    assert width_beyond(visit) <= 0
    for summary in visit.page.locator("summary").all():
        summary.click()
    visit.settled()
    assert width_beyond(visit) <= 0
    assert visit.complaints == []


@pytest.mark.slow
def test_a_window_that_changes_its_width_has_charts_that_fit(
    page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of("comparison"), reduced_motion="reduce")
    visit.drawn()
    visit.page.set_viewport_size({"width": 700, "height": 900})
    fits = """(id) => [...document.querySelectorAll(`#${id} .plot`)].every((plot) =>
      plot.clientWidth === 652 && plot.querySelector('.main-svg').clientWidth === 652)"""
    for section in ("accuracy", "first", "scores", "costs", "presence"):
        visit.page.evaluate("(id) => document.getElementById(id).scrollIntoView()", section)
        visit.until(partial(visit.page.evaluate, fits, section))


@pytest.mark.slow
def test_paper_is_white_whatever_the_screen_is(
    page_of: PageOf, page_factory: OpenPage, tmp_path: Path
) -> None:
    visit = page_factory(page_of("comparison"), dark=True)
    visit.drawn()
    page = visit.page
    colour = "() => document.querySelector('#accuracy .plot').data.at(-1).line.color"
    dark = page.evaluate(colour)
    page.emulate_media(media="print")
    visit.settled()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert page.evaluate(colour) != dark
    assert not page.locator("#controls").is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.locator("#accuracy .legend.paper").is_visible()
    page.emulate_media(media="screen")
    visit.settled()
    assert page.evaluate(colour) == dark
    written = page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
    assert written.startswith(b"%PDF") and len(written) > 50_000
    assert visit.complaints == []


# --- for everybody -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names_of_runs", "dark"),
    [
        (("wards",), False),
        pytest.param(("wards",), True, marks=pytest.mark.slow),
        pytest.param(("comparison", "two_algorithms"), False, marks=pytest.mark.slow),
    ],
    ids=["light", "dark", "several"],
)
def test_nothing_serious_is_wrong_for_people_with_other_senses(
    names_of_runs: tuple[str, ...], dark: bool, page_of: PageOf, page_factory: OpenPage
) -> None:
    visit = page_factory(page_of(*names_of_runs), dark=dark, bypass_csp=True)
    visit.drawn()
    for summary in visit.page.locator("summary").all():
        summary.click()
    visit.settled()
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    visit.page.evaluate(axe + "\n;undefined")
    found = visit.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    grave = [
        (rule["id"], [node["html"][:200] for node in rule["nodes"][:3]])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
    assert grave == [], json.dumps(grave, indent=1)


def check_headings(visit: Visit) -> None:
    levels = visit.page.eval_on_selector_all(
        "h1, h2, h3, h4", "all => all.map((each) => Number(each.tagName[1]))"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


# --- several runs --------------------------------------------------------------------------------


def test_one_of_several_runs_is_chosen(page_of: PageOf, page_factory: OpenPage) -> None:
    visit = page_factory(page_of("comparison", "two_algorithms"))
    visit.drawn()
    page = visit.page
    check_headings(visit)
    assert page.inner_text("h1") == "2 runs"
    assert len([c for c in charts(visit) if c["section"] == "accuracy"]) == 1
    page.get_by_role("button", name="two").first.click()
    visit.settled()
    assert page.inner_text("#verdict-title") == "two: which start won"
    assert len([c for c in charts(visit) if c["section"] == "accuracy"]) == 2
    page.select_option("#pick-run", label="digits")
    visit.settled()
    assert page.inner_text("#verdict-title") == "digits: which start won"
    winners = page.locator("#overview th button", has_text="lead")
    winners.click()
    leads = page.locator("#overview tbody td.number:nth-last-child(3)").all_inner_texts()
    values = [float(text) for text in leads]
    assert values == sorted(values, reverse=True)
    assert visit.complaints == [] and visit.requests == []
