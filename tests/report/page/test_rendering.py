"""The page as a text: what it permits itself, what it holds, and where it is written."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbflow.core.errors import EbbflowError
from ebbflow.report.page.rendering import GENERATOR, SCRIPTS, embedded, render_page
from ebbflow.report.page.writing import BEGINNING, check_page, verdict_lines, write_page
from tests.report.page.contents import content, view

ASSETS = Path(__file__).parents[3] / "src" / "ebbflow" / "report" / "page" / "assets"


def policy_of(page: str) -> dict[str, list[str]]:
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    rules = [rule.split() for rule in html.unescape(found[1]).split(";")]
    return {name: values for name, *values in rules}


def test_only_our_scripts_may_run_and_nothing_may_be_fetched() -> None:
    page = render_page(content("comparison"))
    policy = policy_of(page)
    assert policy["default-src"] == ["'none'"]
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert policy["script-src"] == [f"'sha256-{digest}'" for digest in digests]
    assert len(scripts) == 2
    assert "connect-src" not in policy
    assert policy["img-src"] == ["data:"]


def test_a_live_page_may_ask_its_own_server_alone() -> None:
    policy = policy_of(render_page(content("comparison"), {"every": 2}))
    assert policy["connect-src"] == ["'self'"]


def test_nothing_outside_the_page_is_named() -> None:
    page = render_page(content("comparison"))
    charting = (ASSETS / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    ours = page.replace(charting, "")
    assert set(re.findall(r"https?://[^\s\"'<>)]+", ours)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(?:link|img|iframe)[^>]+(?:src|href)=[\"'](?!data:)", ours)
    assert "@import" not in ours and "url(" not in ours


def test_the_same_records_give_the_same_page() -> None:
    assert render_page(content("comparison")) == render_page(content("comparison"))


@given(st.text())
def test_data_cannot_end_its_element(text: str) -> None:
    written = embedded({"name": text + "</script><!--<script>"})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written)["name"] == text + "</script><!--<script>"


def test_data_that_json_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded({"loss": float("nan")})


def test_no_text_of_a_script_ends_its_element() -> None:
    for path in ASSETS.glob("*.js"):
        script = path.read_text(encoding="utf-8")
        assert "</script" not in script.lower() and "<!--" not in script, path.name
        assert "\r" not in script, path.name


def test_every_script_is_part_of_the_page() -> None:
    own = {path.name for path in ASSETS.glob("*.js")} - {"plotly-cartesian.min.js"}
    assert own == set(SCRIPTS)


def test_our_scripts_write_no_markup() -> None:
    for name in SCRIPTS:
        script = (ASSETS / name).read_text(encoding="utf-8")
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ):
            assert forbidden not in script, f"{name} uses {forbidden}"


def test_a_reader_without_scripts_gets_the_verdict() -> None:
    page = render_page(content("two_algorithms"))
    without = re.search(r"<noscript>(.*?)</noscript>", page, flags=re.DOTALL)
    assert without is not None
    for verdict in content("two_algorithms")["runs"][0]["verdicts"]:
        assert html.escape(verdict["sentence"], quote=False) in without[1]


# --- where it is written -------------------------------------------------------------------------


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(path, content("comparison"))
    assert GENERATOR in path.read_text(encoding="utf-8")[:BEGINNING]
    write_page(path, content("two_algorithms"))
    notes = tmp_path / "notes.html"
    notes.write_text("<h1>mine</h1>")
    with pytest.raises(EbbflowError, match=r"notes\.html is not a report of ebbflow"):
        write_page(notes, content("comparison"))
    assert notes.read_text() == "<h1>mine</h1>"


def test_a_link_or_a_folder_is_not_written_to(tmp_path: Path) -> None:
    target = tmp_path / "target.html"
    write_page(target, content("comparison"))
    link = tmp_path / "report.html"
    link.symlink_to(target)
    for path in (link, tmp_path):
        with pytest.raises(EbbflowError, match="is no plain file"):
            check_page(path)
    with pytest.raises(EbbflowError, match="there is no folder"):
        check_page(tmp_path / "nowhere" / "report.html")


# --- what a terminal says ------------------------------------------------------------------------


def test_a_terminal_gets_the_verdict_or_who_won_how_often() -> None:
    (line,) = verdict_lines(content("comparison"))
    assert line == content("comparison")["runs"][0]["verdicts"][0]["sentence"]
    assert [line.partition(":")[0] for line in verdict_lines(content("two_algorithms"))] == list(
        view("two_algorithms").algorithms
    )
    lines = list(verdict_lines(content("comparison", "two_algorithms")))
    assert lines[0].endswith("of 3 comparisons")
