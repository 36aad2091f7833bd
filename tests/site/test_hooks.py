"""What the hooks of mkdocs.yml make of pages."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from mkdocs.exceptions import PluginError

from ebbflow.config.merge import keys
from ebbflow.config.schema import Settings
from tools.site.configuration import allowed, with_types
from tools.site.docstrings import with_listings
from tools.site.names import filled, named
from tools.site.pictures import inlined
from tools.site.repository import linked_files, links, listing, translated
from tools.site.sessions_picture import BEAT, CAPTIONS, FILE, LOOP, picture

ROOT = Path(__file__).parents[2]


# --- files of the checkout ------------------------------------------------------------------------


def test_links_out_of_the_docs_lead_to_pages_of_the_files() -> None:
    text = "[a](../src/a.py), [b](method.md#x), [c](https://c.org), [d](#d)"
    assert translated(text, "docs/p.md", "p.md") == (
        "[a](repository/src/a.py.md), [b](method.md#x), [c](https://c.org), [d](#d)"
    )


def test_links_of_a_page_in_a_folder_are_relative_to_it() -> None:
    text = "[a](../../src/a.py) [b](../method.md)"
    assert translated(text, "docs/reference/p.md", "reference/p.md") == (
        "[a](../repository/src/a.py.md) [b](../method.md)"
    )


def test_links_of_a_file_outside_lead_back_into_the_docs() -> None:
    text = "[a](docs/method.md#x) [b](publications/README.md)"
    assert translated(text, "CONTRIBUTING.md", "repository/CONTRIBUTING.md") == (
        "[a](../method.md#x) [b](publications/README.md)"
    )


def test_links_in_listings_are_left_alone() -> None:
    text = "```\n[a](../src/a.py)\n```\n"
    assert translated(text, "docs/p.md", "p.md") == text
    assert list(links(text)) == []


def test_files_are_followed_from_page_to_page(tmp_path: Path) -> None:
    (tmp_path / "A.md").write_text("[b](b.py) [self](A.md)")
    (tmp_path / "b.py").write_text("print('~~~')\n")
    pages = linked_files(tmp_path, {"docs/p.md": "[a](../A.md)"})
    assert pages.keys() == {"repository/A.md", "repository/b.py.md"}
    assert pages["repository/A.md"] == "[b](b.py.md) [self](A.md)"
    assert "~~~~python\nprint('~~~')\n~~~~" in pages["repository/b.py.md"]


@pytest.mark.parametrize("link", ["../nowhere.py", "../../elsewhere.py", "../docs2"])
def test_a_link_to_no_file_is_refused(tmp_path: Path, link: str) -> None:
    with pytest.raises(PluginError, match="which is no file of the checkout"):
        linked_files(tmp_path, {"docs/p.md": f"[a]({link})"})


def test_a_listing_has_a_title_and_its_path() -> None:
    assert listing("a/b.toml", "x = 1\n").startswith("# b.toml\n\n`a/b.toml`\n\n~~~toml\nx = 1\n")


# --- keys and names -------------------------------------------------------------------------------


def test_every_key_has_a_type_in_words() -> None:
    schema = Settings.model_json_schema()
    types = dict(allowed(schema, schema["$defs"]))
    assert list(types) == list(keys())
    assert types["partition.alpha"] == "number above 0"
    assert types["seeds"] == "list of whole numbers from 0 to below 2^63"
    assert types["pilot.combine"] == '`"average"`, `"ema"`'
    assert types["data.size"] == "list of 2, each a whole number from 1 to 10,000"
    assert types["engine.fused"] == "true or false"
    assert types["rounds"] == "whole number from 1 to 1,000,000"


def test_types_go_below_defaults_and_keys_get_anchors() -> None:
    page = "| key | default | meaning |\n|---|---|---|\n| `a.b` | `1` | b |\n| `c` | | d |\n"
    made = with_types(page, {"a.b": "number", "c": "text"})
    assert "| `a.b`{ #a.b } | `1`<br><small>number</small> | b |" in made
    assert "| `c`{ #c } | <small>text</small> | d |" in made


def test_a_key_without_a_row_is_refused() -> None:
    with pytest.raises(PluginError, match=r"no row for a\.c"):
        with_types("| `a.b` | `1` | b |\n", {"a.b": "number", "a.c": "number"})


def test_names_become_instructions_to_mkdocstrings() -> None:
    page = "a\n\n<!-- names: compare,\nrun -->\n"
    assert named(page) == ["compare", "run"]
    assert filled(page) == "a\n\n::: ebbflow.compare\n\n::: ebbflow.run\n"


def test_examples_in_docstrings_become_listings() -> None:
    text = "Add.\n\n>>> 1 + 1\n2\n\nMore.\n\n>>> [1]\n[1]"
    assert with_listings(text) == (
        "Add.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.\n\n```pycon\n>>> [1]\n[1]\n```"
    )


# --- pictures -------------------------------------------------------------------------------------


def test_drawings_become_a_part_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "still.svg").write_text("<svg>still</svg>")
    (tmp_path / "moving.svg").write_text("<svg><style>@keyframes a{}</style></svg>")
    html = '<p><img alt="a" src="still.svg" /><img src="moving.svg"><img src="b.png"></p>'
    made = inlined(html, tmp_path)
    assert '<span class="drawing"><svg>still</svg></span>' in made
    assert made.count('type="checkbox"') == 1
    assert '<img src="b.png">' in made


def test_the_animation_is_what_its_program_draws() -> None:
    assert FILE.read_text("utf-8") == picture(), "run `python -m tools.site.sessions_picture`"


def test_the_animation_can_be_read_aloud_and_stands_still_where_that_is_wanted() -> None:
    root = ElementTree.fromstring(picture())
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    title, description = root.find(f"{space}title"), root.find(f"{space}desc")
    assert title is not None
    assert description is not None
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    style = root.findtext(f"{space}style") or ""
    assert "prefers-reduced-motion:reduce" in style
    assert "prefers-color-scheme:dark" in style
    assert "[data-md-color-scheme=slate]" in style
    assert "http" not in style


def test_the_animation_tells_one_thing_at_a_time() -> None:
    times = [start for start, *_ in CAPTIONS]
    assert times == sorted(times)
    # Two lines take two seconds to read.
    assert all(BEAT * (b - a) >= 2 for a, b in zip(times, [*times[1:], LOOP], strict=True))
