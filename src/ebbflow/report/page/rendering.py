"""Puts the content into one page of HTML with everything in it: styles, scripts, data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ebbflow.report.page.content import PageContent

GENERATOR = '<meta name="generator" content="ebbflow '
"""What every page of ours has near its beginning."""
CHARTING, LICENCE = "plotly-cartesian.min.js", "PLOTLY_LICENSE.txt"
SCRIPTS = (
    "base.js",
    "runs.js",
    "tables.js",
    "charts.js",
    "verdict.js",
    "curves.js",
    "scores.js",
    "costs.js",
    "presence.js",
    "origins.js",
    "devices.js",
    "events.js",
    "settings.js",
    "overview.js",
    "page.js",
    "live.js",
)
"""Our scripts in the order in which they are put together: later ones use earlier ones."""
SECTIONS = (
    ("verdict", "Which start won"),
    ("accuracy", "Over all rounds"),
    ("first", "The first rounds after each transition"),
    ("scores", "How the starts compare"),
    ("costs", "What it cost"),
    ("presence", "Who was there when"),
    ("origins", "Where each start came from"),
    ("map", "Which sessions are alike"),
    ("devices", "How devices fare"),
    ("events", "Warnings and events"),
    ("settings", "How it was made"),
)
"""The parts of the page, in order."""
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def render_page(content: PageContent, live: Mapping[str, Any] | None = None) -> str:
    """Return the page as HTML.

    ``live`` is None for a page that stays as it is. Otherwise ``live["every"]`` is the number of
    seconds after which the page asks its own address for ``changes?after=CURSOR``.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - slow to import

    environment = Environment(
        loader=PackageLoader("ebbflow.report.page", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ours, charting = _script(), _asset(CHARTING)
    page = {key: value for key, value in content.items() if key != "runs"}
    return environment.get_template("page.html").render(
        content=content,
        sections=SECTIONS,
        policy=policy((ours, charting), live=live is not None),
        style=_asset("page.css"),
        page_data=embedded({**page, "live": None if live is None else dict(live)}),
        live=live is not None,
        run_data=[embedded(run) for run in content["runs"]],
        ours=ours,
        charting=charting,
        licence=_asset(LICENCE),
    )


def embedded(value: object) -> str:
    r"""Return a value as JSON that may stand within a script element.

    >>> print(embedded({"name": "</script>&"}))
    {"name":"\u003c/script\u003e\u0026"}
    """
    # All else that is not ASCII, U+2028 among it, is escaped by json itself.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def policy(scripts: tuple[str, ...], *, live: bool) -> str:
    """Return the content security policy: these scripts and no other, and no other host."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    rules = [
        "default-src 'none'",
        f"script-src {hashes}",
        # The charting library sets styles of elements, which only this permits.
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


@cache
def _script() -> str:
    """Return our scripts as one, in a scope of their own."""
    parts = [f"// --- {name}\n{_asset(name)}" for name in SCRIPTS]
    return "\n".join(['"use strict";\n(() => {', *parts, "})();\n"])


@cache
def _asset(name: str) -> str:
    return files("ebbflow.report.page").joinpath("assets", name).read_text(encoding="utf-8")
