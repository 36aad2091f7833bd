"""Settings as readable TOML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def toml(settings: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Return dotted keys as TOML, sections in the order of their first keys.

    >>> print(toml({"seeds": [100, 200], "lr.power": 0.9}, {"lr.power": "as ever"}), end="")
    seeds = [100, 200]
    <BLANKLINE>
    [lr]
    power = 0.9  # as ever
    """
    notes = comments or {}
    sections: dict[str, list[str]] = {"": []}
    for key, value in settings.items():
        section, _, last = key.rpartition(".")
        note = f"  # {notes[key]}" if key in notes else ""
        heading = [f"[{section}]"] if section else []
        sections.setdefault(section, heading).append(f"{last} = {_value(value)}{note}")
    return "\n".join("\n".join(lines) + "\n" for lines in sections.values() if lines)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # Python writes numbers as TOML does, inf and nan included; strings are written as in JSON.
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)
