"""What each key of a configuration may be, put beside its default on docs/configuration.md.

The page is written by hand and says what keys mean. Their types and limits are in
`ebbflow.config.schema`, and are not written down a second time. Every key also gets an anchor, as
in ``configuration.html#partition.overlap``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError

from ebbflow.config.schema import Settings

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGE = "configuration.md"
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \|([^|]*)\|(.*)\|$", re.MULTILINE)
SIMPLE = {"boolean": "true or false", "string": "text", "object": "a table"}
Schema = dict[str, Any]


def number(value: float) -> str:
    """Return a limit as one would write it.

    >>> number(1), number(1_000_000), number(2**63), number(0.5)
    ('1', '1,000,000', '2^63', '0.5')
    """
    whole = int(value)
    if value != whole:
        return f"{value:g}"
    if whole > 10**9:
        power = whole.bit_length() - 1
        return f"2^{power}" if whole == 2**power else f"{value:.0e}".replace("e+", "e")
    return f"{whole:,}"


def limits(schema: Schema) -> str:
    """Return the limits of a number in words.

    >>> limits({"minimum": 0, "exclusiveMaximum": 1}), limits({"exclusiveMinimum": 0}), limits({})
    (' from 0 to below 1', ' above 0', '')
    """
    low = f" from {number(schema['minimum'])}" if "minimum" in schema else ""
    if "exclusiveMinimum" in schema:
        low = f" above {number(schema['exclusiveMinimum'])}"
    high = ""
    if "maximum" in schema:
        high = f"to {number(schema['maximum'])}"
    elif "exclusiveMaximum" in schema:
        high = f"to below {number(schema['exclusiveMaximum'])}"
    return f"{low} {high}".rstrip()


def plural(words: str) -> str:
    """Return what several of something are called.

    >>> plural("whole number from 1"), plural("text")
    ('whole numbers from 1', 'texts')
    """
    return re.sub(r"\b(number|text|table)\b", r"\1s", words, count=1)


def in_words(schema: Schema) -> str:
    """Return what a value may be.

    >>> in_words({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
    'whole number from 1'
    >>> in_words({"type": "string", "enum": ["reset", "keep"]})
    '`"reset"`, `"keep"`'
    """
    if "anyOf" in schema:
        kinds = [in_words(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f'`"{value}"`' for value in choices)
    if schema.get("type") == "array":
        inner = in_words(schema["items"])
        fewest, most = schema.get("minItems"), schema.get("maxItems")
        if most is not None and fewest == most:
            return f"list of {most}, each a {inner}"
        return f"list of {plural(inner)}"
    if schema.get("type") in ("integer", "number"):
        kind = "whole number" if schema["type"] == "integer" else "number"
        return kind + limits(schema)
    return SIMPLE[schema["type"]]


def allowed(schema: Schema, definitions: Schema, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of a configuration and what it may be."""
    for name, value in schema["properties"].items():
        options = value.get("anyOf", [value])
        section = next((part["$ref"] for part in options if "$ref" in part), None)
        if section is None:
            yield f"{prefix}{name}", in_words(value)
        else:
            inner = definitions[section.rsplit("/", 1)[-1]]
            yield from allowed(inner, definitions, f"{prefix}{name}.")


def with_types(page: str, types: dict[str, str]) -> str:
    """Return the page with what each key may be under its default, and an anchor for each key."""
    waiting = dict(types)

    def new(found: re.Match[str]) -> str:
        key, default, meaning = (text.strip() for text in found.groups())
        kind = waiting.pop(key, None)
        if kind is None and not key.startswith("parameters."):
            return found[0]
        cell = f"`{key}`{{ #{key} }}"
        below = "" if kind is None else f"<small>{kind}</small>"
        return f"| {cell} | {'<br>'.join(filter(None, (default, below)))} | {meaning} |"

    new_page = ROW.sub(new, page)
    if waiting:
        raise PluginError(f"docs/{PAGE} has no row for {', '.join(waiting)}: add one")
    return new_page


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the types into the tables."""
    if page.file.src_uri != PAGE:
        return markdown
    schema = Settings.model_json_schema()
    return with_types(markdown, dict(allowed(schema, schema["$defs"])))
