"""Data, traces, weights and random bytes from a seed: valid files, and what is nearly one."""

from __future__ import annotations

import gzip
import io
import json
import pickle  # noqa: TID251 - written to show that nobody reads it
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")
MAGICS = (
    b"",
    b"PK\x03\x04",
    b"\x1f\x8b\x08\x00",
    b"\x93NUMPY\x01\x00",
    b"[",
    b"{",
    b"\x80\x04",
    b"# ",
)


class Unpickled:
    """Its pickle would leave a file behind if anybody loaded it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (PICKLE_RAN, "w")


PICKLE_RAN = "a pickle was run"
"""The file that a pickle leaves behind."""


def random_bytes(draw: random.Random) -> bytes:
    """Return bytes without sense, some with the beginning of a known format."""
    size = draw.choice((0, 1, 2, 7, 8, 9, 50, 1000, 20_000))
    kind = draw.randrange(4)
    if kind == 0:
        content = draw.randbytes(size)
    elif kind == 1:
        content = bytes(draw.choices(range(32, 127), k=size))
    elif kind == 2:
        content = bytes(draw.choices(b'0123456789.,-e\n[]{}":= \t', k=size))
    else:
        content = draw.choice((b"\0", b"\xff", b"[", b'{"a":', b"9", b"\n", b" ")) * size
    return draw.choice(MAGICS) + content


def damaged(draw: random.Random, content: bytes) -> bytes:
    """Cut off the end of a file, flip a bit of it, take something out or put something in."""
    if not content:
        return content
    place = draw.randrange(len(content))
    kind = draw.randrange(4)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return (
            content[:place]
            + bytes([content[place] ^ 1 << draw.randrange(8)])
            + content[place + 1 :]
        )
    if kind == 2:
        return content[:place] + content[place + draw.randint(1, 40) :]
    return content[:place] + draw.randbytes(draw.randint(1, 40)) + content[place:]


# --- .npz ----------------------------------------------------------------------------------------


def npz(draw: random.Random) -> bytes:
    """Return an ``.npz`` file."""
    arrays: dict[str, Any] = dict(own_arrays())
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        draw.choice(_ON_ARRAYS)(draw, arrays)
    members = {f"{key}.npy": _npy(value) for key, value in arrays.items()}
    for _ in range(draw.choice((0, 0, 1))):
        draw.choice(_ON_MEMBERS)(draw, members)
    method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    content = _zipped(members, method)
    chance = draw.random()
    if chance < 0.06:
        return _bomb(members, draw.choice((2, 6, 100)))
    return damaged(draw, content) if chance < 0.3 else content


def own_arrays() -> dict[str, Array]:
    """Return a small valid data set of four classes."""
    numbers = np.random.default_rng(0)
    return {
        "x_train": numbers.random((120, 6)).astype(np.float32),
        "y_train": np.arange(120) % 4,
        "x_test": numbers.random((20, 6)).astype(np.float32),
        "y_test": np.arange(20) % 4,
    }


def _npy(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=True)
    return file.getvalue()


def _zipped(members: Mapping[str, bytes], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(_undated(name), content, method)
    return file.getvalue()


def _undated(name: str) -> zipfile.ZipInfo:
    """Name a member that is not stamped with the time of day: a case is the same whenever made."""
    return zipfile.ZipInfo(name)


def _shape(draw: random.Random, arrays: dict[str, Any]) -> None:
    key = draw.choice(NPZ_KEYS)
    shapes = ((), (0,), (120,), (120, 0), (0, 6), (120, 1), (120, 2, 3), (119, 6), (20, 6), (1, 1))
    arrays[key] = np.zeros(draw.choice((*shapes, (1,) * 32, (120, 6, 0, 1), (1, 200_000))))


def _both_shapes(draw: random.Random, arrays: dict[str, Any]) -> None:
    shape = draw.choice(((8, 8), (8, 8, 1), (8, 8, 3), (3, 8, 8), (1,), (1, 1, 1, 1), (50_000,)))
    kind = draw.choice((np.uint8, np.float32, np.float16, np.float64, np.bool_))
    arrays["x_train"] = np.ones((120, *shape), kind)
    arrays["x_test"] = np.ones((20, *shape), kind)


def _type(draw: random.Random, arrays: dict[str, Any]) -> None:
    key = draw.choice(list(arrays) or NPZ_KEYS)
    kinds = ("<i1", ">i8", "<u8", "<f2", ">f8", "?", "<c16", "S5", "U5", "M8[s]", "m8[s]", "V8")
    kind = draw.choice((*kinds, "float128", "i2,f4"))
    size = len(arrays[key]) if np.ndim(arrays.get(key, 0)) else 3
    arrays[key] = np.zeros(size, np.dtype(kind))
    if key.startswith("x"):
        arrays[key] = arrays[key].reshape(-1, 1)


def _labels(draw: random.Random, arrays: dict[str, Any]) -> None:
    key = draw.choice(("y_train", "y_test"))
    size = 120 if key == "y_train" else 20
    values = (-1, 0, 3, 99_999, 100_000, 2**31, 2**62, 2**63 - 1, -(2**63))
    labels = np.arange(size, dtype=np.int64) % 4
    if draw.random() < 0.5:
        labels[:] = draw.choice(values)
    else:
        labels[draw.randrange(size)] = draw.choice(values)
    unsigned = draw.random() < 0.2
    arrays[key] = labels.astype(np.uint64) if unsigned else labels


def _inputs(draw: random.Random, arrays: dict[str, Any]) -> None:
    key = draw.choice(("x_train", "x_test"))
    size = 120 if key == "x_train" else 20
    x = np.random.default_rng(draw.randrange(99)).random((size, 6))
    values = (np.nan, np.inf, -np.inf, 1e300, -1e39, 3.4e38, 5e-324, 0.0, 1e30)
    x[draw.randrange(size), draw.randrange(6)] = draw.choice(values)
    if draw.random() < 0.3:
        x[:, draw.randrange(6)] = draw.choice(values)
    arrays[key] = x


def _missing(draw: random.Random, arrays: dict[str, Any]) -> None:
    for key in draw.sample(NPZ_KEYS, draw.randint(1, 4)):
        arrays.pop(key, None)


def _objects(draw: random.Random, arrays: dict[str, Any]) -> None:
    objects: Array = np.array([Unpickled(), None], dtype=object)
    arrays[draw.choice(NPZ_KEYS)] = objects


def _more(draw: random.Random, arrays: dict[str, Any]) -> None:
    arrays[draw.choice(("x", "../x_train", "/etc/x", "a\x1b[31m", "é" * 50))] = np.zeros(3)


_ON_ARRAYS = (
    _shape,
    _both_shapes,
    _type,
    _labels,
    _labels,
    _inputs,
    _inputs,
    _missing,
    _objects,
    _more,
)


def _header(draw: random.Random, members: dict[str, bytes]) -> None:
    """Let a header promise another array than follows."""
    shapes = ("(1000000000000, 6)", "(99999999999999999999, 6)", "(-1, 6)", "(120, 7)", "(119, 6)")
    others = ("(True, 6)", "(1.5, 6)", "('a',)", "()", "(6,)", "[120, 6]", "(100000000, 6)")
    kinds = ("<f4", "<f8", "|O", "|V0", "|S0", "<U999999999", "|S2147483647", "nonsense", "<f3", "")
    fields = {
        "descr": repr(draw.choice(kinds)),
        "fortran_order": draw.choice(("False", "True", "7", "None")),
        "shape": draw.choice((*shapes, *others)),
    }
    if draw.random() < 0.2:
        fields.pop(draw.choice(list(fields)))
    text = "{" + ", ".join(f"'{key}': {value}" for key, value in fields.items()) + "}"
    if draw.random() < 0.2:
        text = draw.choice(("(" * 5000, "{" * 300, "__import__('os')", "1", "", "\x00", "[" * 90))
    encoded = text.encode("latin1").ljust(117) + b"\n"
    size = draw.choice((len(encoded), len(encoded), 0, 65_535))
    version = draw.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x09\x00"))
    lengths = struct.pack("<H", size) if version[0] == 1 else struct.pack("<I", size * 65_000)
    body = np.zeros(720, np.float32).tobytes()
    name = f"{draw.choice(NPZ_KEYS)}.npy"
    members[name] = b"\x93NUMPY" + version + lengths + encoded + body


def _no_array(draw: random.Random, members: dict[str, bytes]) -> None:
    name = f"{draw.choice(NPZ_KEYS)}.npy"
    members[name] = draw.choice((b"", b"text", pickle.dumps(Unpickled()), random_bytes(draw)))


def _bare_pickle(draw: random.Random, members: dict[str, bytes]) -> None:
    members[draw.choice(NPZ_KEYS)] = pickle.dumps(Unpickled())


_ON_MEMBERS = (_header, _header, _header, _no_array, _bare_pickle)


def _bomb(members: Mapping[str, bytes], gigabytes: int) -> bytes:
    """Return an archive whose x_train unpacks to so many gigabytes of zeros."""
    mebibyte = bytes(2**20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # The state of the packer is empty after a full flush: the same bytes may follow again.
    piece = packer.compress(mebibyte) + packer.flush(zlib.Z_FULL_FLUSH)
    rows = gigabytes * 2**30 // 4
    header = io.BytesIO()
    facts = {"descr": "<f4", "fortran_order": False, "shape": (rows // 64, 64)}
    np.lib.format.write_array_header_1_0(header, facts)
    start = packer.compress(header.getvalue()) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = start + piece * (gigabytes * 1024) + packer.flush()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_undated("x_train.npy"), packed)
        for name, content in members.items():
            if name != "x_train.npy":
                archive.writestr(_undated(name), content)
        member = archive.getinfo("x_train.npy")
        # Only now, so that the packed bytes are written as they are.
        member.compress_type = zipfile.ZIP_DEFLATED
        member.file_size = len(header.getvalue()) + rows * 4
    archived = bytearray(file.getvalue())
    struct.pack_into("<H", archived, 8, zipfile.ZIP_DEFLATED)
    return bytes(archived)


# --- the files of known data sets ----------------------------------------------------------------


def idx(draw: random.Random, shape: Sequence[int], *, bombs: bool) -> bytes:
    """Return an idx file that should hold an array of some shape."""
    values = bytes(60_000) if len(shape) == 1 else b""
    header = bytes((0, 0, 8, len(shape))) + np.array(shape, dtype=">u4").tobytes()
    contents: tuple[Callable[[], bytes], ...] = (
        lambda: header,
        lambda: header + values,
        lambda: header + bytes([200]) * 60_000,
        lambda: header + values + b"\0",
        lambda: header[:4] + b"\xff" * 4 * len(shape),
        lambda: bytes((0, 0, draw.choice((8, 9, 13, 14, 200)), draw.randrange(256))) + bytes(40),
        lambda: b"",
        lambda: random_bytes(draw),
        lambda: header + bytes(2**27),
    )
    content = draw.choice(contents)()
    if draw.random() < 0.5:
        content = gzip.compress(content, 1, mtime=0)
    if bombs and draw.random() < 0.1:  # 1.5 GiB in 1.5 MiB
        content = gzip.compress(bytes(2**24), 9, mtime=0) * 96
    return damaged(draw, content) if draw.random() < 0.3 else content


# --- traces --------------------------------------------------------------------------------------

TIMES = (
    *("0", "1", "1.5", "-3", "2024-05-01T12:00:00Z", "2024-05-01", "1e3", "007", "1_0", "٣"),
    *("nan", "inf", "-inf", "1e308", "-1e308", "1e400", "5e-324", "", "x", "9" * 400, "0x10"),
    *("9999-12-31T23:59:59+00:00", "0001-01-01", "2024-13-01", "12:00", "2024-W01", "1e-300"),
)
DEVICES = (
    "a",
    "b",
    "c",
    "d7",
    "",
    "é",
    "\U0001f600",
    "a b",
    "a,b",
    '"q"',
    "\x1b[31m",
    "x" * 200_000,
)
EVENTS = ("join", "leave", "join", "leave", "jion", "JOIN", "", "1", "join\n")


def trace(draw: random.Random) -> tuple[str, bytes]:
    """Return a name and the content of a trace."""
    lines = draw.random() < 0.5
    rows = _rows(draw)
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        rows.insert(draw.randrange(len(rows) + 1), _odd_row(draw))
    if draw.random() < 0.2:
        draw.shuffle(rows)
    text = _as_lines(draw, rows) if lines else _as_table(draw, rows)
    if draw.random() < 0.15:
        text = draw.choice(("\ufeff", "\n\n", "\0", "#\n", "\r", " ")) + text
    content = text.encode("utf-8", "surrogatepass")
    if draw.random() < 0.05:
        content = text.encode("utf-16")
    if draw.random() < 0.15:
        content = damaged(draw, content)
    return f"case.{'jsonl' if lines else 'csv'}", content


def _rows(draw: random.Random) -> list[tuple[str, ...]]:
    """Return the joins and leaves of a valid trace."""
    rows: list[tuple[str, ...]] = []
    present: list[str] = []
    for step in range(draw.choice((0, 1, 3, 20, 60))):
        if present and draw.random() < 0.4:
            rows.append((str(step / 2), present.pop(draw.randrange(len(present))), "leave"))
        else:
            present.append(f"d{step}")
            rows.append((str(step / 2), present[-1], "join"))
    return rows


def _odd_row(draw: random.Random) -> tuple[str, ...]:
    row = [draw.choice(TIMES), draw.choice(DEVICES), draw.choice(EVENTS)]
    if draw.random() < 0.2:
        return tuple(row[: draw.randrange(4)] + ["more"] * draw.randrange(3))
    return tuple(row)


def _as_table(draw: random.Random, rows: Sequence[Sequence[str]]) -> str:
    headers = (
        "time,device",
        "device,event,time",
        "time,time,device,event",
        "",
        "TIME,device,event",
    )
    usual = "time,device,event"
    header = draw.choice((*headers, f"{usual},{'x' * 200_000}")) if draw.random() < 0.2 else usual
    text = "\n".join([header, *(",".join(row) for row in rows)])
    if draw.random() < 0.05:
        text += '\n"' + "x" * draw.choice((10, 200_000))
    return text.replace("\n", draw.choice(("\n", "\r\n", "\n", "\r"))) + "\n"


def _as_lines(draw: random.Random, rows: Sequence[Sequence[str]]) -> str:
    odd: tuple[Any, ...] = (
        None,
        True,
        [],
        {},
        -1,
        10**400,
        float("nan"),
        float("inf"),
        1e308,
        "\ud800",
    )
    texts = []
    for row in rows:
        record: dict[str, Any] = dict(zip(("time", "device", "event"), row, strict=False))
        if draw.random() < 0.02:
            record[draw.choice(("time", "device", "event", "more"))] = draw.choice(odd)
        if draw.random() < 0.5 and row and row[0].replace(".", "").isascii():
            record["time"] = _number_or_text(row[0])
        texts.append(json.dumps(record))
        if draw.random() < 0.01:
            broken = ("[" * 100_000, "{", '{"time": 1}', "7", '"x"', "null", '{"a":' * 5000, "nan")
            texts.append(draw.choice(broken))
    return "\n".join(texts) + "\n"


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# --- weights -------------------------------------------------------------------------------------

TENSORS: dict[str, tuple[int, ...]] = {"weight": (10, 64), "bias": (10,)}
"""What softmax regression on the digits has."""
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def weights(draw: random.Random, tensors: Mapping[str, Sequence[int]]) -> bytes:
    """Return a safetensors file for a model with these tensors."""
    header: dict[str, Any] = {}
    body = bytearray()
    for name, shape in tensors.items():
        kind = "F32" if draw.random() < 0.9 else draw.choice(list(SIZES))
        size = int(np.prod(shape)) * SIZES[kind]
        header[name] = {
            "dtype": kind,
            "shape": list(shape),
            "data_offsets": [len(body), len(body) + size],
        }
        body += np.full(size // 4 + 1, 0.01, np.float32).tobytes()[:size]
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        draw.choice(_ON_HEADERS)(draw, header, body)
    text = json.dumps(header).encode()
    chance = draw.random()
    if chance < 0.1:
        text = draw.choice((b"", b"{}", b"[]", b"7", b"{" * 5000, b'{"a":' * 50_000, b"\xff" * 64))
    text += b" " * (-len(text) % 8)
    size = len(text)
    if 0.1 < chance < 0.25:
        size = draw.choice((0, 1, size - 1, size + 8, 2**31, 10**8, 2**63, 2**64 - 1))
    content = struct.pack("<Q", size) + text + bytes(body)
    return damaged(draw, content) if draw.random() < 0.2 else content


Header = dict[str, Any]


def _some(draw: random.Random, header: Header) -> str:
    names = [name for name, facts in header.items() if isinstance(facts, dict)]
    return draw.choice(names or ["another"])


def _renamed(draw: random.Random, header: Header, body: bytearray) -> None:
    name = _some(draw, header)
    names = (
        "x",
        f"module.{name}",
        f"theta/{name}",
        "",
        "\x1b[31m",
        "fc.weight",
        "é" * 3000,
        "../x",
    )
    header[draw.choice(names)] = header.pop(name, {})


def _reshaped(draw: random.Random, header: Header, body: bytearray) -> None:
    shapes: tuple[Any, ...] = (
        [],
        [0],
        [-1],
        [640],
        [64, 10],
        [2**62, 4],
        [10**30],
        "x",
        None,
        [1.5],
    )
    header.setdefault(_some(draw, header), {})["shape"] = draw.choice(shapes)


def _retyped(draw: random.Random, header: Header, body: bytearray) -> None:
    kinds = (*SIZES, "F8_E4M3", "C64", "x", "", 7, None)
    header.setdefault(_some(draw, header), {})["dtype"] = draw.choice(kinds)


def _moved(draw: random.Random, header: Header, body: bytearray) -> None:
    offsets: tuple[Any, ...] = (
        [0, 0],
        [10, 5],
        [0, 2**63],
        [-1, 4],
        [0],
        [],
        "x",
        [2**64, 2**64 + 4],
    )
    header.setdefault(_some(draw, header), {})["data_offsets"] = draw.choice(offsets)


def _removed(draw: random.Random, header: Header, body: bytearray) -> None:
    header.pop(_some(draw, header), None)


def _added(draw: random.Random, header: Header, body: bytearray) -> None:
    header[draw.choice(("x", "__metadata__", "fc.bias", "weight.weight"))] = draw.choice(
        ({}, 7, {"a": "b"}, {"a": 1}, {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})
    )


def _not_finite(draw: random.Random, header: Header, body: bytearray) -> None:
    if len(body) >= 4:
        place = draw.randrange(len(body) // 4) * 4
        odd = (float("nan"), float("inf"), -float("inf"), 3e38, 1e-45)
        body[place : place + 4] = struct.pack("<f", draw.choice(odd))


def _many(draw: random.Random, header: Header, body: bytearray) -> None:
    for number in range(draw.choice((50, 20_000))):
        header[f"t{number}"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


_ON_HEADERS = (
    _renamed,
    _reshaped,
    _retyped,
    _moved,
    _removed,
    _added,
    _not_finite,
    _not_finite,
    _many,
)
