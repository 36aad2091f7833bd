"""LEAF's and FLUTE's files: samples by user.

LEAF has JSON files ``{"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y":
[...]}}}`` in the folders train and test. FLUTE has the same, with labels beside the data in
``user_data_label``, in JSON or in HDF5 whose groups have these names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import printable, shortened
from ebbflow.data.own.naming import natural_order
from ebbflow.data.own.table_files import missing_package

ENDINGS = (".json", ".hdf5", ".h5")
_FORM = 'write {"users": [...], "user_data": {user: {"x": [...], "y": [...]}}}'


class User(NamedTuple):
    """One user's samples, and where they were found."""

    name: str
    x: Any
    y: Any
    place: str


def files_of(folder: Path, prefix: str = "") -> list[Path]:
    """Return the files of users in a folder, in their natural order."""
    if not folder.is_dir():
        return []
    try:
        names = {entry.name: entry for entry in folder.iterdir() if entry.is_file()}
    except OSError as error:
        raise EbbflowError(f"{folder} cannot be read ({error.strerror}): check it") from None
    return [
        names[n]
        for n in natural_order(names)
        if n.startswith(prefix) and n.lower().endswith(ENDINGS)
    ]


def read_users(files: list[Path]) -> list[User]:
    """Return every user of some files, if all have names of their own, and samples."""
    seen: dict[str, str] = {}
    users = []
    for path in files:
        for user in _read(path):
            if user.name in seen:
                raise EbbflowError(
                    f"{path} has the user {user.name!r}, whom {seen[user.name]} has, too: give "
                    "every user a name of their own"
                )
            seen[user.name] = str(path)
            users.append(user)
    return users


def _read(path: Path) -> Iterator[User]:
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise EbbflowError(f"The data file {path} {what}; give the path of a file.")
    if path.suffix.lower() == ".json":
        yield from _from_contents(path, _json(path))
        return
    try:
        import h5py  # noqa: PLC0415 - an extra
    except ImportError:
        raise missing_package("h5py", path, "leaf") from None
    try:
        with h5py.File(path, "r") as file:
            contents = _plain(file)
    except Exception:  # h5py raises whatever its library happens to stumble over
        raise EbbflowError(f"{path} is not a readable HDF5 file: write it again") from None
    yield from _from_contents(path, contents)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise EbbflowError(f"{path} is nested too deeply: {_FORM}") from None
    except ValueError as error:
        reason = shortened(printable(str(error)), 200)
        raise EbbflowError(f"{path} is not valid JSON ({reason}): write it again") from None
    except OSError as error:
        raise EbbflowError(f"{path} cannot be read ({error.strerror}): check it") from None


def _plain(node: Any) -> Any:
    """Return what a group of an HDF5 file holds as dictionaries, arrays and texts."""
    if hasattr(node, "keys"):
        return {str(key): _plain(node[key]) for key in node}
    values = node[()]
    if isinstance(values, np.ndarray) and values.dtype.kind in "OS":
        return [_text(value) for value in values.ravel().tolist()]
    return values


def _text(value: Any) -> Any:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value


def _from_contents(path: Path, contents: Any) -> Iterator[User]:
    """Yield the users that a file lists, each with their samples."""
    if not isinstance(contents, Mapping) or not {"users", "user_data"} <= contents.keys():
        raise EbbflowError(f"{path} lacks users or user_data: {_FORM}")
    names, data = contents["users"], contents["user_data"]
    labels = contents.get("user_data_label", {})
    if isinstance(names, np.ndarray):
        names = names.tolist()
    if not isinstance(names, list) or not names or not isinstance(data, Mapping):
        raise EbbflowError(f"{path} lists no users: {_FORM}")
    counts: Any = contents.get("num_samples")
    for at, name in enumerate(map(str, names)):
        place = f"{path}, user {name!r}"
        if name not in data:
            raise EbbflowError(f"{place}: user_data has no such user; add the samples, or {_FORM}")
        theirs = data[name]
        x: Any = theirs.get("x") if isinstance(theirs, Mapping) else theirs
        y: Any = labels.get(name) if isinstance(labels, Mapping) else None
        if y is None and isinstance(theirs, Mapping):
            y = theirs.get("y")
        if not _is_list(x) or not _is_list(y):
            raise EbbflowError(
                f"{place} has no list of {'labels y' if _is_list(x) else 'inputs x'}; {_FORM}"
            )
        if len(x) != len(y):
            raise EbbflowError(
                f"{place} has {len(x)} inputs and {len(y)} labels; give every sample one label"
            )
        if not len(x):
            raise EbbflowError(f"{place} has no samples: give some, or take the user out of users")
        if _is_list(counts) and at < len(counts) and counts[at] != len(x):
            raise EbbflowError(
                f"{place} has {len(x)} samples where num_samples says {counts[at]}: correct one"
            )
        yield User(name, x, y, place)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim > 0)
