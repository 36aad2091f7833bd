"""Names of cells: short, readable, safe as names of folders, and each given once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ebbflow.core.files import sha256
from ebbflow.core.names import is_name

LONGEST = 64
"""Characters of a name, as for algorithms and methods."""
_DIGITS = 8
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+-]+")

Varied = Mapping[str, Any]
"""The values of one cell, by dotted key, of all keys that vary."""


def cell_names(cells: Sequence[Varied], given: Sequence[str | None]) -> list[str]:
    """Return a name for every cell, made of what varies unless it was ``given`` one.

    A given name is followed by what else varies. Names that nobody could tell apart, and those with
    characters that have no place in a name, end with a digest.

    >>> cell_names([{"algorithm": "fedavg", "partition.alpha": 0.3, "seeds": 1}], [None])
    ['fedavg-alpha0.3-s1']
    """
    labels = _labels(cells)
    texts = [
        "-".join([*([name] if name else []), *_parts(own, labels)]) or "cell"
        for own, name in zip(cells, given, strict=True)
    ]
    names = [safe_name(text) for text in texts]
    often = Counter(name.casefold() for name in names)  # some disks do not tell cases apart
    return [
        name if often[name.casefold()] == 1 else _with_digest(name, f"{text} {sorted_text(own)}")
        for name, text, own in zip(names, texts, cells, strict=True)
    ]


def namesake(names: Iterable[str]) -> str:
    """Return the first name that is there again, whatever its case; an empty text if none is.

    >>> namesake(["a", "b", "B"]), namesake(["a", "b"])
    ('B', '')
    """
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return ""


def safe_name(text: str) -> str:
    """Return a text as a name: as it is if it is one, or else without what names may not hold.

    >>> safe_name("fedavg-s1"), len(safe_name("x" * 999))
    ('fedavg-s1', 64)
    >>> safe_name("../a b") == safe_name("../a:b")
    False
    """
    if is_name(text) and text.rstrip(".") == text:
        return text
    plain = _UNSAFE.sub("_", text).lstrip("_.+-") or "cell"
    return _with_digest(plain, text)


def _with_digest(name: str, text: str) -> str:
    start = name[: LONGEST - _DIGITS - 1].rstrip(".-")
    return f"{start}-{sha256(text.encode(errors='surrogatepass'))[:_DIGITS]}"


def sorted_text(values: Varied) -> str:
    """Return the values of a cell as one text, the same for equal values."""
    return ", ".join(f"{key} = {values[key]!r}" for key in sorted(values))


def _labels(cells: Sequence[Varied]) -> dict[str, str]:
    """Return what each key is called within names; empty where its values say enough."""
    keys = list(dict.fromkeys(key for own in cells for key in own))
    last = Counter(key.rpartition(".")[2] for key in keys)
    texts: dict[str, set[str]] = {
        key: {_value(own[key]) for own in cells if key in own} for key in keys
    }
    labels = {}
    for key in keys:
        short = key.rpartition(".")[2]
        label = short if last[short] == 1 else key
        others = {text for other in keys if other != key for text in texts[other]}
        words = all(isinstance(own[key], str | list) for own in cells if key in own)
        telling = words and not texts[key] & others and not any(map(_is_number, texts[key]))
        labels[key] = "s" if key == "seeds" else "" if telling else label
    return labels


def _parts(own: Varied, labels: Mapping[str, str]) -> list[str]:
    parts = []
    for key, value in own.items():
        text, label = _value(value), labels[key]
        if isinstance(value, bool):
            parts.append(label if value else f"no-{label}")
        else:
            parts.append(f"{label}{text}" if _is_number(text) or not label else f"{label}-{text}")
    return parts


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_value, value))
    return str(value)


def _is_number(text: str) -> bool:
    return re.match(r"[-+]?[0-9.]", text) is not None
