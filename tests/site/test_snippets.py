"""Every listing of every page is run by a test, or checked, or says why it is neither."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site.snippets import CHECKED, ROOT, Listing, commands, listings, problems

DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(DOCS)): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))
}
RUN = {
    ("callbacks.md", "python"): (
        "tests/simulation/test_callbacks.py",
        "test_python_on_the_page_runs",
    ),
    ("extending.md", "python"): ("tests/test_docs.py", "test_what_a_reader_adds_by_the_page"),
    ("federation.md", "console"): (
        "tests/flower/test_federation_page.py",
        "test_the_commands_of_the_page_work",
    ),
    ("federation.md", "python"): (
        "tests/flower/test_federation_page.py",
        "test_python_on_the_page_runs",
    ),
    ("federation.md", "toml"): (
        "tests/flower/test_federation_page.py",
        "test_the_commands_of_the_page_work",
    ),
    ("metrics.md", "python"): (
        "tests/analysis/test_metrics.py",
        "test_the_examples_in_the_document",
    ),
    ("models.md", "python"): ("tests/models/test_page.py", "test_python_on_the_page_runs"),
    ("own-data.md", "console"): ("tests/data/test_own_data.py", "test_what_the_page_on_own_data"),
    ("own-data.md", "python"): ("tests/data/test_own_data.py", "test_what_the_page_on_own_data"),
    ("records.md", "python"): ("tests/test_records_api.py", "test_python_on_the_page_runs"),
    ("tasks.md", "python"): ("tests/test_tutorials.py", "test_the_examples_of_the_page_on_tasks"),
    ("traces.md", "python"): ("tests/test_cli_trace.py", "test_the_trigger_on_the_page"),
    ("tutorials.md", "console"): ("tests/test_tutorials.py", "test_a_tutorial_works_as_it_stands"),
    ("tutorials.md", "python"): ("tests/test_tutorials.py", "test_a_tutorial_works_as_it_stands"),
}
"""Which tests run the listings of a language on a page, in order and as they stand."""
WALKED = [
    "five-minutes.md",
    "how-it-works.md",
    "tutorial-algorithm.md",
    "tutorial-costs.md",
    "tutorial-start.md",
    "tutorial-trace.md",
]
"""Pages whose listings are all run by tests/site/test_pages.py, unless they give a reason."""


def is_run(listing: Listing) -> bool:
    if listing.page in WALKED:
        return listing.reason is None
    return (listing.page, listing.language) in RUN


@pytest.mark.parametrize("page", PAGES)
def test_listings_are_run_or_checked_or_say_why_not(page: str) -> None:
    left = [each for each in listings(page, PAGES[page]) if not is_run(each)]
    assert [text for each in left for text in problems(each)] == []


def test_commands_of_pages_that_are_run_exist_too() -> None:
    assert [
        text
        for page, content in PAGES.items()
        for each in listings(page, content)
        if each.language == "console" and each.reason is None
        for text in problems(each)
    ] == []


@pytest.mark.parametrize(("page", "language"), RUN)
def test_what_is_said_to_be_run_is(page: str, language: str) -> None:
    file, name = RUN[page, language]
    text = (ROOT / file).read_text("utf-8")
    (test,) = re.findall(rf"^def ({name}\w*)\(", text, re.MULTILINE)
    assert page in text, test
    found = [each for each in listings(page, PAGES[page]) if each.language == language]
    assert found, f"{page} has no listing in {language}: remove it from RUN"


def test_walked_pages_are_there_and_have_something_to_run() -> None:
    for page in WALKED:
        assert any(each.language in CHECKED for each in listings(page, PAGES[page]))
    text = (Path(__file__).parent / "test_pages.py").read_text("utf-8")
    assert all(f'"{page}"' in text for page in WALKED)


# --- the checks themselves ------------------------------------------------------------------------


def found_in(text: str) -> list[str]:
    return [problem for each in listings("p.md", text) for problem in problems(each)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```python\nprint()\n```\n", "p.md:1 is run by no test and gives no reason"),
        ("a\n\n```\n$ ebbflow run\n```\n", "p.md:3 looks like code, has no language"),
        ("```\nfrom a import b\n```\n", "looks like code"),
        ("```toml\nrouns = 3\n```\n", "unknown key rouns"),
        ("```toml\nrounds = \n```\n", "Invalid value"),
        ("```toml\n[lr]\nfloor = 2.0\n```\n", "lr.floor = 2.0"),
        ("```console\n$ ebbflow comapre\n```\n", "ebbflow has no command comapre"),
        ("```console\n$ ebbflow compare --rouns 3\n```\n", "--rouns 3: No such option"),
        ("```console\n$ ebbflow history show\n```\n", "history show: missing folder"),
        ("```console\n$ ebbflow compare --set rouns=3\n```\n", "there is no key rouns"),
        ("```console\n$ ebbflow compare \\\n    --rouns 3\n```\n", "--rouns"),
        ("```console\n$ A=b ebbflow compare --rouns 3\n```\n", "--rouns"),
        ("```console\n$ cd a && ebbflow compare --rouns 3\n```\n", "--rouns"),
        ("```console\n$ a=$(ebbflow compare --rouns 3)\n```\n", "--rouns"),
        ("```console\n$ make demos\n```\n", "make has no target demos"),
        ("```console\n$ python -m nosuch.thing\n```\n", "there is no module nosuch.thing"),
        ("```console\n$ fly me\n```\n", "no test knows the program fly"),
    ],
)
def test_a_listing_that_is_wrong_is_found(text: str, says: str) -> None:
    problem, *_ = found_in(text)
    assert says in problem


@pytest.mark.parametrize(
    "text",
    [
        "<!-- not run: it needs a network -->\n\n```python\nprint()\n```\n",
        "```\nsession  accuracy\n```\n",
        '```toml\npreset = ["demo"]\n[probe]\nrounds = 2\n```\n',
        "```console\n$ ebbflow compare my.toml --set parameters.mine.a=1 > out.txt\n"
        "$ ebbflow metrics run --json | python -m json.tool\n```\n",
        "```console\n$ ebbflow --help\n$ ebbflow data ls    # a comment\n```\n",
        "```console\n$ make bench NAMES='W1 W2'\n$ python -m benchmarks W1\n$ pip install .\n```\n",
    ],
)
def test_a_listing_that_is_right_is_not(text: str) -> None:
    assert found_in(text) == []


def test_checking_a_command_runs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = "$ ebbflow --install-completion\n$ ebbflow new wards\n$ ebbflow --version\n"
    assert found_in(f"```console\n{text}```\n") == []
    assert list(tmp_path.iterdir()) == []


def test_a_reason_holds_for_one_listing_only() -> None:
    text = "<!-- not run: a -->\n\n```python\n1\n```\n\n```python\n2\n```\n"
    assert [each.reason for each in listings("p.md", text)] == ["a", None]


def test_continued_lines_are_one_command() -> None:
    assert list(commands("$ a b \\\n    c\nprinted\n$ d\n")) == ["a b  c", "d"]
