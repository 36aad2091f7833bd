"""The listings of the pages for new users are run, in order, and print what the pages show."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebbflow.algorithms import ALGORITHMS
from ebbflow.core.registry import Registry
from ebbflow.starts import STARTS
from tests.site.snippets import ROOT, Listing, commands, listings
from tests.test_cli import ebbflow

DOCS = ROOT / "docs"
DEMO = "ebbflow compare --preset demo --out runs/demo"
SHORTER = {
    "tutorial-costs.md": ("--seeds=100", "--sessions=4", "--rounds=3"),
    "tutorial-trace.md": ("--seeds=1", "--rounds=2"),
}
"""What makes the runs of a page short, where it shows nothing that they print."""
NEAR = 1.5
"""By how much a number may differ from that on the page: another processor rounds otherwise."""


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    registries: list[Registry[Any]] = [ALGORITHMS, STARTS]
    before = [set(registry) for registry in registries]
    yield
    for registry, known in zip(registries, before, strict=True):
        for name in set(registry) - known:
            registry.unregister(name)


def is_near(shown: str, printed: str) -> bool:
    """Whether two lines are the same but for small differences between numbers."""
    ours, theirs = shown.split(), printed.split()
    if len(ours) != len(theirs):
        return False
    return all(a == b or _near_numbers(a, b) for a, b in zip(ours, theirs, strict=True))


def _near_numbers(a: str, b: str) -> bool:
    try:
        return math.isclose(float(a.rstrip(",")), float(b.rstrip(",")), abs_tol=NEAR)
    except ValueError:
        return False


def check_printed(shown: Listing, printed: str) -> None:
    """Check that a page shows lines that were really printed, in their order."""
    lines = iter(printed.splitlines())
    for line in shown.text.splitlines():
        assert any(is_near(line, each) for each in lines), (shown.place, line, printed)


def run_commands(listing: Listing, demo: Path) -> str:
    """Run the commands of a listing and return what they print."""
    printed = []
    for command in commands(listing.text):
        words = shlex.split(command)
        assert words[0] == "ebbflow", (listing.place, command)
        if command == DEMO and listing.page not in SHORTER:
            shutil.copytree(demo, "runs/demo")
            continue
        short = SHORTER.get(listing.page, ()) if words[1] == "compare" else ()
        answer = ebbflow(*words[1:], *short)
        assert answer.code == 0, (listing.place, command, answer.err)
        printed.append(answer.out)
    return "".join(printed)


def run_python(listing: Listing, names: dict[str, object]) -> str:
    """Run a listing in Python and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(listing.text, listing.place, "exec"), names)
    return out.getvalue()


@pytest.mark.parametrize(
    "page",
    [
        "five-minutes.md",
        "how-it-works.md",
        "tutorial-algorithm.md",
        "tutorial-costs.md",
        "tutorial-start.md",
        "tutorial-trace.md",
    ],
)
def test_a_page_works_as_it_stands(
    page: str, demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pandas", reason="tables need pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EBBFLOW_STATE", str(tmp_path / "state"))
    text = (DOCS / page).read_text("utf-8")
    names: dict[str, object] = {"__name__": page}
    printed = ""
    for listing in listings(page, text):
        if listing.reason is not None:
            continue
        if listing.language == "python":
            printed = run_python(listing, names)
        elif listing.language == "console":
            printed = run_commands(listing, demo)
        elif listing.language == "toml":
            before = "\n".join(text.splitlines()[: listing.line])
            name = re.findall(r"`([\w-]+\.toml)`", before)[-1]
            Path(name).write_text(listing.text, encoding="utf-8")
        else:
            check_printed(listing, printed)


def table(page: str, mark: str) -> list[list[str]]:
    """Return the rows of a table between two marks, without its head."""
    text = (DOCS / page).read_text("utf-8")
    inside = text.split(f"<!-- {mark} -->")[1].split(f"<!-- /{mark} -->")[0]
    rows = [line.strip("| ").split("|") for line in inside.strip().splitlines()]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_table_of_the_first_page_is_what_the_demo_gives(demo: Path) -> None:
    rows = json.loads((demo / "summary.json").read_text("utf-8"))["rows"]
    for method, *cells in table("five-minutes.md", "demo"):
        for session, cell in enumerate(cells, start=4):
            found = [
                r["accuracy"] for r in rows if (r["method"], r["session"]) == (method, session)
            ]
            shown = float(cell.split()[0])
            assert shown == pytest.approx(sum(found) / len(found), abs=0.3)


@pytest.mark.slow
def test_the_tables_of_the_page_on_costs_are_what_the_demo_gives(demo: Path) -> None:
    found = json.loads(ebbflow("cost", str(demo), "--json").out)
    methods = {each["method"]: each for each in found["methods"]}
    order = ["learned", "warm_start", "previous", "average"]
    air, extra = (list(map(float, row[1:])) for row in table("tutorial-costs.md", "sessions"))
    for name, session, part in zip(order, air, extra, strict=True):
        ours = methods[name]
        assert session == pytest.approx(1e3 * ours["session"]["latency"], rel=0.02)
        before = ours["probe"]["latency"] + ours["survey"]["latency"]
        assert part == pytest.approx(1e3 * before, rel=0.02, abs=1e-3)


@pytest.mark.slow
def test_the_table_of_the_page_on_traces_is_what_its_run_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "tutorial-trace.md").read_text("utf-8")
    found = list(listings("tutorial-trace.md", page))
    exec(next(each.text for each in found if each.language == "python"), {})
    Path("fleet.toml").write_text(next(each.text for each in found if each.language == "toml"))
    assert ebbflow("compare", "fleet.toml", "--out", "run").code == 0
    rows = json.loads(Path("run/summary.json").read_text("utf-8"))["rows"]
    (shown,) = table("tutorial-trace.md", "fleet")
    for name, cell in zip(["learned", "warm_start", "previous", "average"], shown, strict=True):
        ours = [r["accuracy"] for r in rows if r["method"] == name and r["transition"]]
        assert float(cell) == pytest.approx(sum(ours) / len(ours), abs=1.0)


def test_lines_are_compared_number_by_number() -> None:
    assert is_near("learned  91.3  (1)", "learned   91.4 (1)")
    assert not is_near("learned  91.3", "learned  96.3")
    assert not is_near("learned  91.3", "previous  91.3")
    assert not is_near("learned  91.3", "learned")


def test_what_a_page_shows_has_to_be_printed() -> None:
    shown = Listing("p.md", "", "a 1\nb 2\n", None, 1)
    check_printed(shown, "before\na 1\nbetween\nb 2\n")
    with pytest.raises(AssertionError):
        check_printed(shown, "b 2\na 1\n")
    assert "p.md" not in sys.modules
