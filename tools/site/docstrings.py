"""Examples in docstrings as listings: an extension of griffe, by which mkdocstrings reads code.

Our docstrings show examples as Python's own do, by a line that begins with ``>>>``. Taken for
Markdown, their results would be running text. Named tuples have no function that makes them, so
they get a listing of how they are made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from griffe import Class, Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


def with_listings(text: str) -> str:
    r"""Return a docstring with its examples as fenced listings.

    >>> with_listings("Add.\n\n>>> 1 + 1\n2").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


def making(name: str, fields: Sequence[tuple[str, str, bool]]) -> str:
    """Return how a named tuple is made: its fields, their types, and which of them may be left out.

    >>> print(making("Point", [("x", "float", False), ("y", "float", True)]))
    ```python
    Point(
        x: float,
        y: float = ...,
    )
    ```
    """
    lines = [f"    {each}: {kind}{' = ...' if usual else ''}," for each, kind, usual in fields]
    return "\n".join(["```python", f"{name}(", *lines, ")", "```"])


class DocstringListings(Extension):
    """Puts examples into listings before docstrings are parsed."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is None:
            return
        text = with_listings(obj.docstring.value)
        if isinstance(obj, Class) and "NamedTuple" in [str(base) for base in obj.bases]:
            fields = [
                (name, str(field.annotation), field.value is not None)
                for name, field in obj.attributes.items()
                if field.annotation is not None and "property" not in field.labels
            ]
            text = f"{making(obj.name, fields)}\n\n{text}"
        obj.docstring.value = text
