"""AG News: titles and descriptions of articles, as WordPiece token numbers."""

from __future__ import annotations

import csv
import hashlib
import io
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples
from ebbflow.data.local_files import LocalFiles, opened, reading
from ebbflow.data.sources import Source

LENGTH = 64
"""Tokens per text: longer texts are cut, shorter ones padded."""

Vocabulary = dict[str, int]
"""The number of every word piece; that of ``[PAD]`` is 0."""

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_HEADER = ["label", "text"]
_ENCODED_AT_ONCE = 4_096
_NO_TOKENIZER = (
    "agnews needs the package tokenizers to cut its texts into word pieces, and it is missing: "
    '`pip install "ebbflow[text]"`'
)


def agnews(wanted: Source, files: LocalFiles) -> Dataset:
    """Read AG News and tokenise it: ``[CLS] title description [SEP]``, int64 ``[N, 64]``."""
    train, test, vocabulary_path = files.paths
    vocabulary = _read_vocabulary(wanted, vocabulary_path)
    counts = (None, None) if files.subset else (wanted.train, wanted.test)
    return Dataset(
        wanted.name,
        _split(wanted, train, counts[0], vocabulary),
        _split(wanted, test, counts[1], vocabulary),
        wanted.classes,
    )


def _split(wanted: Source, path: Path, count: int | None, vocabulary: Vocabulary) -> Examples:
    texts, labels = _read_csv(wanted, path)
    if len(texts) != (count or max(1, len(texts))):
        raise EbbflowError(
            f"{path} is damaged ({len(texts)} texts, not {count or 'more'}); {wanted.remedy}"
        )
    return Examples(tokens(texts, vocabulary), torch.tensor(labels, dtype=torch.int64))


def _read_csv(wanted: Source, path: Path) -> tuple[list[str], list[int]]:
    """Read rows ``label, title, description`` with labels from 1.

    A file whose first line is ``label,text`` has these two columns, and labels from 0.
    """
    texts: list[str] = []
    labels: list[int] = []
    first = 1
    with reading(path, wanted, csv.Error, UnicodeDecodeError), opened(path) as stream:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        for row in rows:
            if rows.line_num == 1 and row == _HEADER:
                first = 0
                continue
            label = int(row[0]) - first if row and row[0].isdecimal() else -1
            if len(row) != 2 + first or not 0 <= label < wanted.classes:
                expected = f"{first} to {wanted.classes - 1 + first} and {1 + first} text columns"
                raise EbbflowError(
                    f"{path} is damaged (line {rows.line_num} is not a label from {expected}); "
                    f"{wanted.remedy}"
                )
            labels.append(label)
            texts.append(" ".join(row[1:]))
    return texts, labels


def _read_vocabulary(wanted: Source, path: Path) -> Vocabulary:
    """Read one word piece per line, numbered from 0."""
    with reading(path, wanted, UnicodeDecodeError), opened(path) as stream:
        lines = stream.read().decode().removesuffix("\n").split("\n")
    vocabulary = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    if any(piece not in vocabulary for piece in _SPECIAL) or vocabulary["[PAD]"] != 0:
        raise EbbflowError(
            f"{path} is not a vocabulary of BERT (it lacks one of {', '.join(_SPECIAL)}, or does "
            f"not begin with [PAD]); {wanted.remedy}"
        )
    return vocabulary


def tokens(texts: list[str], vocabulary: Vocabulary) -> Tensor:
    """Return the token numbers of texts, ``[N, 64]``, cached after the first time."""
    path = platformdirs.user_cache_path("ebbflow") / "tokens" / f"{_key(texts, vocabulary)}.npz"
    numbers = _from_cache(path, len(texts), len(vocabulary))
    if numbers is None:
        numbers = _encode(texts, vocabulary)
        _to_cache(path, numbers)
    return torch.from_numpy(numbers.astype(np.int64))


def _key(texts: list[str], vocabulary: Vocabulary) -> str:
    """Return a digest of everything that the tokens depend on."""
    try:
        tokenizer = version("tokenizers")
    except PackageNotFoundError:
        raise EbbflowError(_NO_TOKENIZER) from None
    digest = hashlib.sha256(f"wordpiece {tokenizer} {LENGTH}".encode())
    for part in (vocabulary, texts):
        digest.update(f"\n{len(part)}\n".encode())
        # The lengths tell two texts from one.
        for each in part:
            content = each.encode()
            digest.update(b"%d %b" % (len(content), content))
    return digest.hexdigest()


def _from_cache(path: Path, count: int, pieces: int) -> NDArray[Any] | None:
    """Return the cached tokens, or None if there are none or they are damaged."""
    with suppress(Exception):  # numpy raises whatever its parser happens to stumble over
        # Not numpy.load, which leaves the file open if the archive is truncated.
        with path.open("rb") as file, NpzFile(file, allow_pickle=False) as archive:
            kept = np.asarray(archive["tokens"])
        if kept.shape == (count, LENGTH) and kept.dtype.kind == "u" and kept.max() < pieces:
            return kept
    return None


def _to_cache(path: Path, numbers: NDArray[Any]) -> None:
    # An unwritable cache costs the next run a few seconds, and must not make this one fail.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".incoming-") as incoming:
            written = Path(incoming) / path.name
            np.savez(written, tokens=numbers)
            written.replace(path)


def _encode(texts: list[str], vocabulary: Vocabulary) -> NDArray[Any]:
    """Tokenise like BERT's uncased tokenizer."""
    try:
        # An extra; and it takes long to import, and is not needed once the tokens are in the cache.
        from tokenizers import Tokenizer  # noqa: PLC0415
        from tokenizers.models import WordPiece  # noqa: PLC0415
        from tokenizers.normalizers import BertNormalizer  # noqa: PLC0415
        from tokenizers.pre_tokenizers import BertPreTokenizer  # noqa: PLC0415
        from tokenizers.processors import TemplateProcessing  # noqa: PLC0415
    except ImportError:
        raise EbbflowError(_NO_TOKENIZER) from None

    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(piece, vocabulary[piece]) for piece in ("[CLS]", "[SEP]")],
    )
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"], pad_token="[PAD]", length=LENGTH)
    numbers = np.empty((len(texts), LENGTH), dtype=np.min_scalar_type(len(vocabulary)))
    # In pieces: the library's encodings take many times the memory of the token numbers.
    for start in range(0, len(texts), _ENCODED_AT_ONCE):
        encodings = tokenizer.encode_batch_fast(texts[start : start + _ENCODED_AT_ONCE])
        numbers[start : start + len(encodings)] = [encoding.ids for encoding in encodings]
    return numbers
