"""AG News: the formats of its files, the tokens, and the cache of the tokens."""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
import unicodedata
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.data import download, text
from ebbflow.data.datasets import load
from tests.data.server import get, seclude

REAL = Path(os.environ.get("EBBFLOW_DATA") or "nowhere")
VOCABULARY = REAL / "bert-base-uncased" / "vocab.txt"

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "oil", "price", "##s", "up", "##set", "a", "new"),
    *(",", '"', "#", "39", ";", "##ed", "."),
]

TRAIN = [
    (3, "Oil prices up", 'A "new", new upset.'),
    (1, "Up", "Prices#39; set"),
    (4, "", "OIL\\UP"),
    (2, "a " * 100, "never seen"),
]
TEST = [(4, "Priced", "oil"), (1, "A", "")]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    seclude(monkeypatch, tmp_path / "cache")
    return tmp_path / "cache" / "tokens"


def table(rows: list[tuple[int, str, str]]) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return stream.getvalue().encode()


def small() -> dict[str, bytes]:
    return {
        "train.csv": table(TRAIN),
        "test.csv": table(TEST),
        "vocab.txt": "".join(f"{piece}\n" for piece in PIECES).encode(),
    }


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """Fetch a small AG News in the canonical format."""
    return get(monkeypatch, "agnews", small(), counts=(4, 2))


def words(row: torch.Tensor) -> list[str]:
    return [PIECES[number] for number in row.tolist() if number]


# --- the canonical files


def test_canonical_files(home: Path) -> None:
    assert home.name == "ag_news"
    assert (home.parent / "bert-base-uncased" / "vocab.txt").is_file()
    assert [check.status for check in download.verify("agnews")] == ["ok"] * 3
    news = load("agnews")
    assert (news.name, news.classes) == ("agnews", 4)
    for split, count in ((news.train, 4), (news.test, 2)):
        assert split.x.shape == (count, 64)
        assert split.x.dtype == split.y.dtype == torch.int64
        assert split.pixels is None
    assert news.train.y.tolist() == [2, 0, 3, 1]
    assert news.test.y.tolist() == [3, 0]
    assert words(news.train.x[0]) == [
        *("[CLS]", "oil", "price", "##s", "up", "a", '"', "new", '"', ",", "new"),
        *("up", "##set", ".", "[SEP]"),
    ]
    assert words(news.train.x[1]) == [
        *("[CLS]", "up", "price", "##s", "#", "39", ";", "[UNK]", "[SEP]"),
    ]
    assert words(news.train.x[2]) == ["[CLS]", "oil", "[UNK]", "up", "[SEP]"]
    # Padding is on the right, and a text that is too long still ends with [SEP].
    assert news.train.x[1, 9:].tolist() == [0] * 55
    assert words(news.train.x[3]) == ["[CLS]", *["a"] * 62, "[SEP]"]
    assert words(news.test.x[0]) == ["[CLS]", "[UNK]", "oil", "[SEP]"]
    assert words(news.test.x[1]) == ["[CLS]", "a", "[SEP]"]


def test_both_names_and_limits(home: Path) -> None:
    part = load("ag_news", limit_train=2, limit_test=1)
    assert (part.name, len(part.train), len(part.test)) == ("agnews", 2, 1)
    assert torch.equal(part.train.x, load("agnews").train.x[:2])


def test_a_vocabulary_with_the_line_ends_of_windows(home: Path) -> None:
    before = load("agnews")
    path = home.parent / "bert-base-uncased" / "vocab.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert torch.equal(load("agnews").train.x, before.train.x)


# --- a subset


def header_table(rows: list[tuple[int, str, str]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["label", "text"])
    writer.writerows([(label - 1, f"{title} {body}") for label, title, body in rows])
    return stream.getvalue().encode()


def test_a_subset_serves_until_the_whole_is_there(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    whole = load("agnews")
    for file in ("train.csv", "test.csv"):
        (home / file).unlink()
    (home / "train_subset.csv.gz").write_bytes(gzip.compress(header_table(TRAIN[:3])))
    (home / "test.csv.gz").write_bytes(gzip.compress(header_table(TEST)))
    part = load("agnews")
    assert torch.equal(part.train.x, whole.train.x[:3])
    assert torch.equal(part.train.y, whole.train.y[:3])
    assert torch.equal(part.test.x, whole.test.x)
    assert [check.status for check in download.verify("agnews")][:2] == ["wrong checksum"] * 2
    get(monkeypatch, "agnews", small(), counts=(4, 2))
    assert len(load("agnews").train) == 4


# --- files that are missing or damaged


def test_missing_files_name_the_remedy(home: Path) -> None:
    (home.parent / "bert-base-uncased" / "vocab.txt").unlink()
    with pytest.raises(EbbflowError, match="`ebbflow data get agnews`, or set EBBFLOW") as error:
        load("agnews")
    assert "ag_news/ and bert-base-uncased/ in it" in str(error.value)
    assert str(home.parent / "bert-base-uncased") in str(error.value)


def line(content: str) -> Callable[[bytes], bytes]:
    """Put a line in the place of the second."""
    return lambda old: b"\n".join(
        [(lines := old.split(b"\n"))[0], content.encode(), *lines[2:]],
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[: len(c) // 2], r"damaged"),
        (lambda _: b"", "0 texts, not 4"),
        (lambda c: c + table(TEST), "6 texts, not 4"),
        (lambda _: b"<html>", r"line 1 is not a label from 1 to 4 and 2 text columns"),
        (line('"5","title","text"'), "line 2 is not a label from 1 to 4"),
        (line('"0","title","text"'), "line 2 is not a label from 1 to 4"),
        (line('"x","title","text"'), "line 2 is not a label from 1 to 4"),
        (line('"1","title"'), "line 2 is not a label from 1 to 4 and 2 text columns"),
        (line('"1","a","b","c"'), "line 2 is not a label from 1 to 4 and 2 text columns"),
        (line(""), "line 2 is not a label"),
        (lambda c: c.replace(b"Oil", b"\xff\xfe"), "codec can't decode"),
        (lambda c: b'"1","' + b"x" * 200_000 + b'","y"\n' + c, "field larger than field limit"),
        (lambda c: gzip.compress(c)[:-9], "is damaged"),
        (lambda _: header_table([(6, "a", "b")]), "line 2 .* from 0 to 3 and 1 text columns"),
    ],
)
def test_damaged_texts(home: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = home / "train.csv"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(EbbflowError, match=message) as error:
        load("agnews")
    assert str(error.value).startswith(str(path))
    assert "`ebbflow data verify agnews`" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"lacks one of \[PAD\]"),
        (b"[UNK]\n[PAD]\n[CLS]\n[SEP]\n", r"not begin with \[PAD\]"),
        (b"[PAD]\n\xff\n", "is damaged"),
        (b"<html>", "not a vocabulary of BERT"),
    ],
)
def test_damaged_vocabulary(home: Path, content: bytes, message: str) -> None:
    path = home.parent / "bert-base-uncased" / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(EbbflowError, match=message) as error:
        load("agnews")
    assert str(error.value).startswith(str(path))
    assert "`ebbflow data get agnews`" in str(error.value)


# --- the cache


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the texts of every call that tokenises."""
    calls: list[int] = []
    encode = text._encode

    def counted(texts: list[str], vocabulary: dict[str, int]) -> NDArray[Any]:
        calls.append(len(texts))
        return encode(texts, vocabulary)

    monkeypatch.setattr(text, "_encode", counted)
    return calls


def test_texts_are_tokenised_once(home: Path, cache: Path, encoded: list[int]) -> None:
    first = load("agnews")
    assert encoded == [4, 2]
    assert len(list(cache.iterdir())) == 2
    second = load("agnews")
    assert encoded == [4, 2]
    assert torch.equal(first.train.x, second.train.x)
    assert second.train.x.dtype == torch.int64


def test_other_texts_or_another_vocabulary_are_tokenised_anew(
    home: Path, cache: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    load("agnews")
    path = home / "test.csv"
    path.write_bytes(path.read_bytes().replace(b"oil", b"new"))
    assert words(load("agnews").test.x[0])[2] == "new"
    assert encoded == [4, 2, 2]
    vocabulary = home.parent / "bert-base-uncased" / "vocab.txt"
    vocabulary.write_bytes(vocabulary.read_bytes() + b"##d\n")
    assert load("agnews").test.x[0, :4].tolist() == [2, 5, len(PIECES), 10]
    assert encoded == [4, 2, 2, 4, 2]
    monkeypatch.setattr(text, "LENGTH", 8)
    assert load("agnews").test.x.shape == (2, 8)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda p: p.write_bytes(b""), id="empty"),
        pytest.param(lambda p: p.write_bytes(b"no archive"), id="no archive"),
        pytest.param(lambda p: p.write_bytes(p.read_bytes()[:-30]), id="truncated"),
        pytest.param(lambda p: np.savez(p, other=np.zeros(3)), id="other"),
        pytest.param(lambda p: np.savez(p, tokens=np.zeros((1, 64), np.uint8)), id="shape"),
        pytest.param(lambda p: np.savez(p, tokens=np.full((4, 64), 99, np.uint8)), id="numbers"),
    ],
)
def test_a_damaged_cache_is_made_anew(
    home: Path, cache: Path, encoded: list[int], spoil: Callable[[Path], object]
) -> None:
    before = load("agnews")
    for path in cache.iterdir():
        spoil(path)
    after = load("agnews")
    assert torch.equal(before.train.x, after.train.x)
    assert torch.equal(before.test.x, after.test.x)
    load("agnews")
    assert encoded == [4, 2] * 2


def test_a_cache_that_cannot_be_written(home: Path, cache: Path, encoded: list[int]) -> None:
    cache.write_text("a file in the way")
    first, second = load("agnews"), load("agnews")
    assert encoded == [4, 2] * 2
    assert torch.equal(first.train.x, second.train.x)


def test_lists_of_texts_do_not_pass_for_each_other(cache: Path) -> None:
    vocabulary = {piece: number for number, piece in enumerate(PIECES)}
    lists = [["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], ["a2 bc"], ["c", "ab"], []]
    keys = {text._key(texts, vocabulary) for texts in lists}
    assert len(keys) == len(lists)


# --- without the extra


def _not_installed(name: str) -> str:
    raise PackageNotFoundError(name)


@pytest.mark.parametrize("broken", [False, True], ids=["missing", "broken"])
def test_without_tokenizers_one_sentence_says_how_to_get_it(
    home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    if broken:  # it is installed, but cannot be imported
        monkeypatch.setitem(sys.modules, "tokenizers", None)
    else:
        monkeypatch.setattr(text, "version", _not_installed)
    with pytest.raises(EbbflowError, match=r'agnews needs .* `pip install "ebbflow\[text\]"`$'):
        load("agnews")
    assert not cache.exists()


# --- the real vocabulary, against WordPiece written down


def reference(sentence: str, vocabulary: dict[str, int]) -> list[int]:
    """Tokenise by the rules of the BERT paper's code: slow, short and obvious."""
    decomposed = unicodedata.normalize("NFD", sentence.lower())
    plain = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    signs = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    apart = "".join(
        f" {c} " if c in signs or unicodedata.category(c).startswith("P") else c for c in plain
    )
    numbers = [vocabulary["[CLS]"]]
    for word in apart.split():
        pieces: list[int] = []
        start = 0
        while start < len(word):
            ends = range(len(word), start, -1)
            candidates = (("##" if start else "") + word[start:end] for end in ends)
            longest = next((piece for piece in candidates if piece in vocabulary), None)
            if longest is None:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[longest])
            start += len(longest) - 2 * bool(start)
        numbers += pieces
    numbers = [*numbers[:63], vocabulary["[SEP]"]]
    return numbers + [0] * (64 - len(numbers))


real_vocabulary = pytest.mark.skipif(
    not VOCABULARY.is_file(), reason="EBBFLOW_DATA names no folder with bert-base-uncased/vocab.txt"
)
real_news = pytest.mark.skipif(
    not (REAL / "ag_news" / "train_subset.csv.gz").is_file()
    or (REAL / "ag_news" / "train.csv").is_file(),
    reason="EBBFLOW_DATA names no folder with the subset in ag_news/",
)


@pytest.fixture(scope="module")
def bert() -> dict[str, int]:
    lines = VOCABULARY.read_text(encoding="utf-8").splitlines()
    return {piece: number for number, piece in enumerate(lines)}


@real_vocabulary
def test_known_numbers(bert: dict[str, int], cache: Path) -> None:
    assert len(bert) == 30_522
    found = text.tokens(["Hello, world!", "unaffable"], bert)
    assert found[0, :7].tolist() == [101, 7592, 1010, 2088, 999, 102, 0]
    pieces = ["[CLS]", "una", "##ffa", "##ble", "[SEP]"]
    assert found[1, :5].tolist() == [bert[piece] for piece in pieces]


@real_vocabulary
@pytest.mark.parametrize(
    "sentence",
    [
        "Wall St. Bears Claw Back Into the Black (Reuters)",
        "Exposing Execs #39;  quot;Stealth quot; Compensation at \\$11 million",
        "Zürich café naïve façade Ångström",
        "Unaffable electroencephalographically pneumonoultramicroscopicsilicovolcanoconiosis",
        "e-mail@host.example/path_x?y=1&z=2",
        "☃ snowman and \u201cquoted\u201d \u2014 dash",
        "",
        "one " * 100,
    ],
)
def test_tokens_against_the_reference(sentence: str, bert: dict[str, int], cache: Path) -> None:
    assert text.tokens([sentence], bert)[0].tolist() == reference(sentence, bert)


@real_vocabulary
@real_news
def test_the_real_subset(
    bert: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda _name: tmp_path)
    assert [check.status for check in download.verify("agnews")] == ["ok"] * 3
    news = load("agnews")
    assert news.train.y.bincount().tolist() == [10_900] * 4
    assert news.test.y.bincount().tolist() == [1_900] * 4
    assert news.train.x.shape == (43_600, 64)
    assert news.test.x.shape == (7_600, 64)
    assert (news.train.x[:, 0] == bert["[CLS]"]).all()
    assert ((news.train.x == bert["[SEP]"]).sum(1) == 1).all()
    assert int(news.train.x.max()) < 30_522
    with gzip.open(REAL / "ag_news" / "test.csv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    for row in range(0, 7_600, 76):
        assert news.test.x[row].tolist() == reference(rows[row][1], bert), rows[row][1]
        assert int(news.test.y[row]) == int(rows[row][0])
