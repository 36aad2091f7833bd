r"""Any text as LaTeX prints it: nothing in it is a command, and every engine has its letters.

Accents become commands (``\'e``), a few signs become mathematics; a character that TeX's usual
fonts lack is named by its number (``U+4E2D``).
"""

from __future__ import annotations

import unicodedata
from itertools import zip_longest

from ebbflow.core.names import printable

_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # By number, for packages give these characters other meanings.
    '"': r"\char34{}",
    "`": r"\char96{}",
    # In braces, for after the end of a row they would be its arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "\u00a0": "~",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "µ": r"$\mu$",
    "°": r"$^\circ$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "\u2018": r"\char96{}",
    "\u2019": "'",
    "\u201c": r"\char92{}",
    "\u201d": r"\char34{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "\u0131": r"\i{}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0323": "d",
    "\u0327": "c",
    "\u0331": "b",
}
_PAIRS = "-,'"
"""Two of a kind would become another character."""
_GREEK = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon
phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""


def _letters() -> dict[str, str]:
    found = {}
    for name in _GREEK.split():
        size = "SMALL" if name[0].islower() else "CAPITAL"
        spelt = {"lambda": "LAMDA"}.get(name.lower(), name.upper())
        found[unicodedata.lookup(f"GREEK {size} LETTER {spelt}")] = f"$\\{name}$"
    return found


_KNOWN = _SIGNS | _letters()


def latex_text(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    >>> print(latex_text("50 % of \\input{x}, naïve α_1"))
    50 \% of \textbackslash{}input\{x\}, na\"{\i}ve $\alpha$\_1
    """
    text = printable(text)
    return "".join(
        f"{{{this}}}" if this in _PAIRS and this == following else _printed(this)
        for this, following in zip_longest(text, text[1:])
    )


def _printed(character: str) -> str:
    if character in _KNOWN:
        return _KNOWN[character]
    if character.isascii():
        return character
    if character.isspace():
        return " "
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], parts[1:]
    if accent in _ACCENTS and letter.isascii() and letter.isalpha():
        above = accent not in "\u0323\u0327\u0331"
        base = f"\\{letter}" if letter in "ij" and above else letter
        return f"\\{_ACCENTS[accent]}{{{base}}}"
    return rf"\texttt{{U+{ord(character):04X}}}"
