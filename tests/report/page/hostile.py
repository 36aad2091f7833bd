"""Names that mean harm, and a page that is full of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from ebbflow.report.page.content import PageContent
from ebbflow.report.page.plain import text

SEEDS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg onload=alert(4)>",
    "\"><img src=x onerror='alert(5)'>",
    "' onmouseover='alert(6)",
    '" autofocus onfocus="alert(7)',
    "javascript:alert(8)",
    '<a href="javascript:alert(9)">click</a>',
    "<b>bold</b><br>line<sup>2</sup>",
    '<a href="http://example.org/">away</a>',
    "%{x} %{y} %{customdata} %{text}<extra></extra>",
    "%{d3.format} %%{",
    "<!-- <script> -->",
    "]]><![CDATA[",
    "{{ 7 * 7 }} {% raw %} ${alert(10)} `${alert(11)}`",
    "\u202egnp.tac\u202c",
    "\u2028alert(12)\u2029",
    "a\x00b\x1b[31m\x07c\rd\ne\tf",
    "\\u003cscript\\u003ealert(13)\\u003c/script\\u003e",
    "&lt;script&gt;alert(14)&lt;/script&gt; &amp;amp; &#60;b&#62;",
    "</title><script>alert(15)</script>",
    "</noscript><script>alert(16)</script>",
    "<style>*{display:none}</style>",
    "<iframe srcdoc='<script>alert(17)</script>'>",
    "<form action=http://example.org><input name=q>",
    "<base href=http://example.org/>",
    "<meta http-equiv=refresh content='0;url=http://example.org'>",
    "__proto__",
    "constructor",
    "toString",
    "$\\href{javascript:alert(18)}{x}$",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308",
    "Ω≈ç√∫µ≤≥÷ 病房 Łódź مرحبا",
    "x" * 5000,
    "<b>" * 400,
    " ",
    "-" * 3,
    "0",
    "NaN",
)
NAMES = tuple(
    f"{name}{'' if n < len(SEEDS) else f' {n}'}" for n, name in zip(range(200), cycle(SEEDS))
)
"""Two hundred of them, all different."""


def poisoned(content: PageContent) -> PageContent:
    """Return a content in which every name and sentence means harm, each in its own way.

    Methods and algorithms, too: our files refuse such names, but the page must not depend on it.
    """
    original = copy.deepcopy(content)
    names = cycle(NAMES)
    run = original["runs"][0]
    renamed = {
        old: text(f"{old} {next(names)}", 120)
        for old in (*run["planned"]["methods"], *run["planned"]["algorithms"])
    }
    found: PageContent = json.loads(json.dumps(_renamed(original, renamed)))
    run = found["runs"][0]
    for part in run["presence"]:
        part["names"] = [text(next(names)) for _ in part["names"]]
        for row in part["sessions"]:
            row["labels"] = text(next(names))
    run["origins"]["words"] = {part: text(next(names)) for part in run["origins"]["words"]}
    for table in run["devices"]["tables"]:
        for device in table["rows"]:
            device["name"] = text(next(names))
    run["events"]["rows"] = [
        {"kind": "warning", "where": text(next(names)), "text": text(name, 900)} for name in NAMES
    ]
    run["settings"]["changed"] = [
        {"key": text(next(names)), "value": text(next(names)), "default": text(next(names))}
        for _ in range(20)
    ]
    run["settings"]["toml"] = "\n".join(text(name, 300) for name in NAMES)
    run["settings"]["command"] = text(next(names))
    run["settings"]["environment"] = [(text(next(names)), text(next(names))) for _ in range(9)]
    run["headline"]["dataset"] = run["headline"]["partition"] = text(SEEDS[2])
    run["name"] = found["title"] = text("</title></script><script>alert('title')</script>")
    for verdict in run["verdicts"]:
        verdict["sentence"] = text("<script>alert('verdict')</script>. <b>bold</b>", 900)
    run["costs"]["reason"] = text(SEEDS[0])
    run["state"]["place"] = text(SEEDS[2])
    return found


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with other names, wherever they stand as a whole."""
    if isinstance(value, Mapping):
        return {names.get(key, key): _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value
