"""Samples by user, from LEAF's and FLUTE's files, as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.types import Dataset
from ebbflow.data.own.assembly import Manner, Split
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.finishing import complete, texts_array
from ebbflow.data.own.items import channels_first
from ebbflow.data.own.naming import Array, natural_order
from ebbflow.data.own.user_files import User, files_of, read_users

_USED = {"test", "test_split", "inputs", "size", "vocabulary"}


def is_user_folder(folder: Path) -> bool:
    """Whether a folder holds files of users, rather than pictures."""
    return bool(files_of(folder / "train") or files_of(folder, "train"))


def from_users(path: Path, choices: Choices) -> Dataset:
    """Load a folder of LEAF's or FLUTE's files, or one such file."""
    choices.refuse_unused(_USED, f"the users of {path}")
    if path.is_dir():
        files = [files_of(path / part) or files_of(path, part) for part in ("train", "test")]
        for key in ("test", "test_split") if files[1] else ("test",):
            if getattr(choices, key) is not None:
                raise EbbflowError(
                    f"data.{key} = {getattr(choices, key)!r} has no use with the folder {path}, "
                    "whose files say themselves which samples are for testing: leave it out"
                )
    else:
        files = [[path], [] if choices.test is None else [Path(choices.test).expanduser()]]
    users = [read_users(part) for part in files if part]
    _check_forms(users)
    field = _text_field(users[0]) if _is_fields(users[0][0]) else None
    splits = [_split(part, field, choices.size) for part in users]
    pair = splits[0], splits[1] if len(splits) > 1 else None
    manner = Manner(unlearnt=True, notes=tuple(_notes(path, users, field, splits[0], choices)))
    return complete(path.resolve().stem, str(path), pair, choices, manner)


def _is_fields(user: User) -> bool:
    """Whether a sample is a list of texts, such as a message with its date and author."""
    first = user.x[0]
    return isinstance(first, list) and bool(first) and all(isinstance(v, str) for v in first)


def _form(user: User) -> str:
    if isinstance(user.x[0], str):
        return "texts"
    return "lists of texts" if _is_fields(user) else "numbers"


def _check_forms(users: list[list[User]]) -> None:
    first = users[0][0]
    for user in (user for part in users for user in part):
        if _form(user) != _form(first):
            raise EbbflowError(
                f"{user.place} has inputs that are {_form(user)} where those of {first.name!r} are "
                f"{_form(first)}: give all users inputs of one kind"
            )


def _text_field(users: list[User]) -> int:
    """Return which of several texts of a sample is the longest on the whole."""
    lengths: dict[int, int] = {}
    for user in users:
        for sample in user.x:
            for at, text in enumerate(sample):
                lengths[at] = lengths.get(at, 0) + len(str(text))
    return max(lengths, key=lambda at: lengths[at])


def _split(users: list[User], field: int | None, size: tuple[int, int] | None) -> Split:
    place = users[0].place.partition(", user ")[0]
    x = _texts(users, field) if _form(users[0]) != "numbers" else _numbers(users, size)
    owners = np.repeat([user.name for user in users], [len(user.x) for user in users])
    return Split(x, _labels(users), f"x of {place}", f"y of {place}", owners, f"users of {place}")


def _texts(users: list[User], field: int | None) -> Array:
    texts = []
    for user in users:
        for at, sample in enumerate(user.x):
            text = sample
            if field is not None:
                text = sample[field] if isinstance(sample, list) and field < len(sample) else None
            if not isinstance(text, str):
                raise EbbflowError(
                    f"{user.place}: sample {at} is no text like the others; write a text"
                )
            texts.append(text)
    return texts_array(texts)


def _numbers(users: list[User], size: tuple[int, int] | None) -> Array:
    parts: list[Array] = []
    for user in users:
        try:
            part = np.asarray(user.x)
        except ValueError:  # numpy refuses lists of different lengths
            part = np.empty(0, dtype=object)
        if part.dtype.kind not in "biuf":
            at = next((i for i, s in enumerate(user.x) if np.shape(s) != np.shape(user.x[0])), 0)
            raise EbbflowError(
                f"{user.place}: sample {at} is no list of numbers as long as the others; give all "
                "samples one form"
            )
        part = part[:, None] if part.ndim == 1 else part
        if parts and part.shape[1:] != parts[0].shape[1:]:
            raise EbbflowError(
                f"{user.place} has samples of shape {part.shape[1:]} where {users[0].name!r} has "
                f"{parts[0].shape[1:]}; give all samples one form"
            )
        parts.append(part)
    x = np.concatenate(parts)
    if size is not None:
        if x.shape[1:] != (size[0] * size[1],):
            raise EbbflowError(
                f"data.size = {list(size)} does not fit samples of shape {x.shape[1:]} of "
                f"{users[0].place.partition(', user ')[0]}: leave it out"
            )
        return x.reshape(len(x), 1, *size)
    return channels_first(x.astype(np.uint8)) if _is_pixels(x) else x


def _is_pixels(x: Array) -> bool:
    """Whether whole numbers are the pixels of images ``[N, H, W]`` or ``[N, H, W, C]``."""
    whole = x.dtype.kind in "iu" and x.ndim in (3, 4)
    return whole and bool(x.min() >= 0 and 1 < x.max() <= 255)


def _labels(users: list[User]) -> Array:
    labels = [label for user in users for label in (np.asarray(user.y).tolist())]
    if all(isinstance(label, str) for label in labels):
        return np.array(labels)
    whole = [label for label in labels if isinstance(label, int) and not isinstance(label, bool)]
    if len(whole) == len(labels):
        try:
            return np.array(labels, dtype=np.int64)
        except OverflowError:
            raise EbbflowError(
                f"{users[0].place.partition(', user ')[0]} has the label "
                f"{max(labels, key=abs):.3g}, which does not fit into 64 bits; number the classes "
                "from 0"
            ) from None
    if all(isinstance(label, float) and label.is_integer() for label in labels):
        return np.array(labels).astype(np.int64)
    if all(isinstance(label, list) for label in labels):
        return np.array(labels)  # rows with a single one
    user = next(u for u in users if not {type(v) for v in np.asarray(u.y).tolist()} <= {int})
    raise EbbflowError(
        f"{user.place} has labels that are neither whole numbers nor texts; write class numbers"
    )


def _notes(
    path: Path, users: list[list[User]], field: int | None, train: Split, choices: Choices
) -> Iterator[str]:
    names = [{user.name for user in part} for part in users]
    if len(names) > 1 and (only := names[1] - names[0]):
        yield (
            f"{len(only)} users of {path} have test samples only: {listed(natural_order(only), 5)}"
        )
    if field is not None:
        count = len(users[0][0].x[0])
        yield f"of the {count} texts of a sample, number {field + 1}, the longest, is the input"
    if choices.size is not None:
        yield f"samples of {path} are shaped as grey pictures of {list(choices.size)} pixels"
    elif train.x.dtype == np.uint8:
        yield f"the whole numbers from 0 to 255 of {path} are pixels, which are divided by 255"
