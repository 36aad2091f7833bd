"""Names that may become parts of paths, and text that may reach a terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}"
NAME_RULE = (
    "a name has up to 64 letters, digits and the signs _ . + -, and begins with a letter or digit"
)
_NAME = re.compile(PATTERN)
_LEFT_OUT = " ... "
_HARMFUL = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Control characters, invisible and unassigned ones, and lone halves of surrogate pairs."""


def is_name(text: object) -> bool:
    """Whether a text can name an algorithm, a method or a model.

    >>> is_name("warm_start"), is_name("../x"), is_name("[/nope]")
    (True, False, False)
    """
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def printable(text: str) -> str:
    r"""Return a text on one line in which no character can do anything to a terminal.

    >>> print(printable("a\x1b[31mb\tc\nd"))
    a\x1b[31mb\tc\nd
    """
    return "".join(_escaped(c) if _harmful(c) else c for c in text)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names as a sentence lists them, the first few of many.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def shortened(text: str, most: int = 900) -> str:
    """Return a text with its middle left out if it is longer than a reader would read.

    >>> shortened("abcdefghij" * 3, most=11)
    'abc ... hij'
    """
    half = (most - len(_LEFT_OUT)) // 2
    return text if len(text) <= most else f"{text[:half]}{_LEFT_OUT}{text[-half:]}"


def _harmful(character: str) -> bool:
    return not " " <= character <= "~" and unicodedata.category(character) in _HARMFUL


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
