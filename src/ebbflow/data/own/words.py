"""A user's own texts as token numbers: by words, or by characters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.data.own.choices import Inputs

PADDING, UNKNOWN = 0, 1
MOST_WORDS, MOST_CHARACTERS = 256, 1024
"""The longest that a text may be in tokens; what is longer is cut."""

_WORD = re.compile(r"\w+|[^\w\s]")


class Tokens(NamedTuple):
    """Token numbers ``[N, length]`` of the training and the test texts, and what was done."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    notes: tuple[str, ...]


def tokenise(
    train: Sequence[str], test: Sequence[str], inputs: Inputs = "auto", most: int = 30_000
) -> Tokens:
    """Give the tokens of texts numbers, by how frequent they are in the training set.

    Texts that all have one length, as windows of a long text do, are cut into characters, others
    into words, unless ``inputs`` says which. ``most`` is the number of different tokens, padding
    and unknown ones included.

    >>> tokenise(["a b", "a c, d"], ["d x"]).test.tolist()
    [[6, 1, 0, 0]]
    """
    if inputs == "numbers":
        raise EbbflowError(
            'data.inputs = "numbers" does not fit inputs that are texts: leave it out, or set it '
            'to "words" or "characters"'
        )
    by_character = inputs == "characters" or (inputs != "words" and _same_length(train))
    if by_character:
        return _numbered(train, test, list, MOST_CHARACTERS, most, "characters")
    return _numbered(train, test, words, MOST_WORDS, most, "words")


def words(text: str) -> list[str]:
    """Cut a text into words in lower case, and signs.

    >>> words("Don't panic!")
    ['don', "'", 't', 'panic', '!']
    """
    return _WORD.findall(text.lower())


def _same_length(texts: Sequence[str]) -> bool:
    lengths = {len(text) for text in texts}
    return len(lengths) == 1 and len(texts) > 1 and max(lengths) > 1


def _numbered(
    train: Sequence[str],
    test: Sequence[str],
    cut: Callable[[str], list[str]],
    longest: int,
    most: int,
    what: str,
) -> Tokens:
    parts = [[cut(text) for text in texts] for texts in (train, test)]
    counts = Counter(token for tokens in parts[0] for token in tokens)
    if not counts:
        raise EbbflowError(
            f"the training texts hold no {what}: give texts, or name another column of inputs"
        )
    # By frequency, and by the token itself where that does not decide.
    order = sorted(counts, key=lambda token: (-counts[token], token))[: max(1, most - 2)]
    number = {token: place for place, token in enumerate(order, start=2)}
    widest = max(len(tokens) for tokens in parts[0])
    width = min(widest, longest)
    rows = [_padded(tokens, number, width) for tokens in parts]
    padded = f"{width} {what} each (longer ones are cut, shorter ones padded with 0)"
    notes = [
        f"texts are cut into {what} and numbered from 2 by how frequent they are in the training "
        f"set, which has {len(counts)} different ones; 1 stands for any other, and texts have "
        f'{padded}: their model is model.kind = "embedding" with '
        f"parameters.embedding.vocabulary = {len(order) + 2} or more"
    ]
    if len(order) < len(counts):
        notes.append(
            f"the {len(counts) - len(order)} least frequent {what} count as unknown, because "
            f"data.vocabulary = {most}"
        )
    if widest > longest:
        cut_off = sum(len(tokens) > longest for tokens in parts[0])
        notes.append(f"{cut_off} training texts are longer than {longest} {what} and were cut")
    return Tokens(rows[0], rows[1], tuple(notes))


def _padded(texts: list[list[str]], number: dict[str, int], width: int) -> NDArray[np.int64]:
    rows = np.full((len(texts), width), PADDING, dtype=np.int64)
    for row, tokens in zip(rows, texts, strict=True):
        known = [number.get(token, UNKNOWN) for token in tokens[:width]]
        row[: len(known)] = known
    return rows
