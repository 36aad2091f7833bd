"""Names are names: whatever they hold, they do nothing, and are shown as they are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ebbflow.core.types import Dataset
from ebbflow.experiment import run
from ebbflow.report.page.content import content_of_folders
from ebbflow.report.page.plain import text
from ebbflow.report.page.rendering import render_page
from tests.browser import OpenPage, Visit
from tests.configs import digits, with_settings
from tests.report.page.contents import content
from tests.report.page.hostile import NAMES, SEEDS, poisoned
from tests.report.page.looking import charts, unclean, width_beyond


def hostile_data() -> Dataset:
    """Return the digits of 200 devices whose names mean harm; so do those of labels."""
    data = digits()
    return replace(
        data,
        name="<img src=x onerror=alert('data')>",
        train=replace(data.train, device=torch.arange(len(data.train)) % len(NAMES)),
        test=replace(data.test, device=torch.arange(len(data.test)) % len(NAMES)),
        devices=NAMES,
        labels=tuple(NAMES[:10]),
    )


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that was really made with such names, in a folder with such a name."""
    folder = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=alert(0)> & 'co' %{x}"
    settings = ("seeds=[1]", "rounds=2", "sessions=5", "engine.workers=1", "window=[2]")
    config = with_settings(*settings, "partition.kind=natural", "methods=['learned','warm_start']")
    run(config, folder, dataset=hostile_data())
    return folder


def opened(visit: Visit) -> None:
    """Open everything that can be opened."""
    for summary in visit.page.locator("summary").all():
        summary.click()
    unfold = visit.page.get_by_role("button", name=re.compile("Show all .* rows"))
    while unfold.count():
        unfold.first.click()
    visit.settled()


def check_harmless(visit: Visit) -> None:
    drawn = charts(visit)
    assert drawn and all(chart["traces"] and chart["pieces"] for chart in drawn)
    assert unclean(visit) == []
    assert visit.complaints == []
    assert visit.requests == []
    assert visit.page.locator("svg a").count() == 0


def hovered(visit: Visit, section: str, places: int = 16) -> list[str]:
    """Move down over a chart and return the texts that appear."""
    plot = visit.page.locator(f"#{section} .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    texts: list[str] = []
    shown = plot.locator(".hoverlayer text, .hoverlayer tspan")
    for part in range(places):
        height = box["height"] * (part + 0.5) / places
        visit.page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + height)
        visit.page.wait_for_timeout(120)
        texts += shown.all_text_contents()
    return texts


@pytest.mark.slow  # beside the test before
def test_a_run_with_hostile_names(
    hostile_run: Path, tmp_path: Path, page_factory: OpenPage
) -> None:
    page = tmp_path / "page.html"
    page.write_text(render_page(content_of_folders([hostile_run])), encoding="utf-8")
    visit = page_factory(page)
    visit.drawn()
    opened(visit)
    check_harmless(visit)
    assert visit.page.title() == f"{hostile_run.name} – ebbflow"
    assert visit.page.inner_text("h1") == hostile_run.name
    assert visit.page.inner_text("#lede").startswith("<img src=x onerror=alert('data')>")
    shown = visit.page.locator("#devices tbody th[scope=row]").all_text_contents()
    assert {text(name) for name in NAMES[:40]} <= set(shown)
    labels = visit.page.locator("#presence > .body > .table td.text").first.text_content()
    assert labels is not None and "<script>alert(1)</script>" in labels
    found = " ".join(hovered(visit, "presence"))
    assert "samples" in found
    check_harmless(visit)


def test_a_page_in_which_every_text_is_hostile(tmp_path: Path, page_factory: OpenPage) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(poisoned(content("wards"))), encoding="utf-8")
    visit = page_factory(path)
    visit.drawn()
    opened(visit)
    check_harmless(visit)
    for section in ("accuracy", "first", "scores", "costs", "presence", "origins", "devices"):
        hovered(visit, section, places=5)
    check_harmless(visit)
    shown = visit.page.locator("#events td.text").all_text_contents()
    for name in SEEDS:
        assert any(text(name, 900) in found for found in shown)


@pytest.mark.slow
def test_a_chart_shows_a_name_as_it_is(tmp_path: Path, page_factory: OpenPage) -> None:
    """Of the charting library's own markup, nothing works in a name."""
    short = [text(own, 40) for own in SEEDS if len(own) < 40 and own.strip()]
    found: Any = poisoned(content("wards"))
    part = found["runs"][0]["presence"][0]
    part["names"] = short[: len(part["names"])]
    path = tmp_path / "page.html"
    path.write_text(render_page(found), encoding="utf-8")
    visit = page_factory(path)
    visit.drawn()
    seen: set[str] = set()

    def all_seen() -> bool:
        seen.update(line.strip() for line in hovered(visit, "presence"))
        return set(part["names"]) <= seen

    visit.until(all_seen)
    bold = visit.page.locator(".plot tspan[style*='font-weight:bold']").count()
    assert bold == 0


@pytest.mark.slow
def test_a_phone_bears_long_names(tmp_path: Path, page_factory: OpenPage) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(poisoned(content("wards"))), encoding="utf-8")
    visit = page_factory(path, phone=True)
    visit.drawn()
    opened(visit)
    assert width_beyond(visit) <= 0
    check_harmless(visit)
