"""Folders of pictures: a folder for each class, and one for each device where there are devices.

The layouts are ``train/CLASS/*`` and ``test/CLASS/*``, ``train/DEVICE/CLASS/*`` and
``test/DEVICE/CLASS/*``, and the same without train and test: ``CLASS/*`` and ``DEVICE/CLASS/*``,
whose test samples are drawn.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.types import Dataset
from ebbflow.data.own.assembly import Manner, Split
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.finishing import complete
from ebbflow.data.own.naming import natural_order

ENDINGS = (".png", ".jpg", ".jpeg")
_LAYOUT = "put pictures into train/CLASS and test/CLASS, or into DEVICE/CLASS"
# What is lost in turning the former into the latter is nothing.
_SAME_AS = {"L": "L", "RGB": "RGB", "1": "L", "P": "RGB"}
_CHANNELS = {"L": 1, "RGB": 3}
_COLOURS = {"L": "grey", "RGB": "coloured"}


class _Picture(NamedTuple):
    path: Path
    label: str
    device: str | None


class _Form(NamedTuple):
    """What all pictures have in common."""

    mode: str
    height: int
    width: int


class _Decoded(NamedTuple):
    """The pixels of pictures, and how many were converted or resized."""

    x: NDArray[np.uint8]
    changes: Counter[str]


def from_pictures(root: Path, choices: Choices) -> Dataset:
    """Load pictures from a folder; they stay uint8 and are normalised when they are used."""
    choices.refuse_unused({"size", "test_split"}, f"the folder of pictures {root}")
    places = [root / "train", root / "test"]
    if not any(place.is_dir() for place in places):
        places = [root]
    elif not all(place.is_dir() for place in places):
        there = next(place for place in places if place.is_dir())
        raise EbbflowError(
            f"{root} has {there.name} and not {'test' if there.name == 'train' else 'train'}: "
            "let it have both, or neither and set data.test_split (--test-split)"
        )
    elif choices.test_split is not None:
        raise EbbflowError(
            f"data.test_split = {choices.test_split:g} has no use where {root / 'test'} holds the "
            "test samples: leave it out"
        )
    left_out: Counter[str] = Counter()
    found = [list(_found(place, left_out)) for place in places]
    _check_depth([picture for part in found for picture in part])
    form = _form_of(found[0][0].path, choices)
    decoded = [_decoded(part, form, choices) for part in found]
    splits = [
        Split(
            pixels.x,
            np.array([picture.label for picture in part]),
            f"the pictures of {place}",
            f"the folders of {place}",
            None if part[0].device is None else np.array([str(p.device) for p in part]),
            f"the folders of {place}",
        )
        for place, part, pixels in zip(places, found, decoded, strict=True)
    ]
    manner = Manner(pictures=True, notes=tuple(_notes(root, form, decoded, left_out, choices)))
    pair = splits[0], splits[1] if len(splits) > 1 else None
    return complete(root.resolve().name or "pictures", str(root), pair, choices, manner)


# --- which files


def _found(place: Path, left_out: Counter[str]) -> Iterator[_Picture]:
    """Yield the pictures of a split; the classes of every device take turns."""
    groups: list[list[_Picture]] = []
    for upper in _folders(place):
        files, lower = _pictures(upper, left_out), _folders(upper)
        if files and lower:
            raise EbbflowError(
                f"{upper} holds both pictures, such as {files[0].name}, and folders, such as "
                f"{lower[0].name}: {_LAYOUT}"
            )
        groups.append([_Picture(path, upper.name, None) for path in files])
        for folder in lower:
            paths = _pictures(folder, left_out)
            groups.append([_Picture(path, folder.name, upper.name) for path in paths])
            if not paths:
                raise _empty(folder)
        if not files and not lower:
            raise _empty(upper)
    if not groups:
        raise EbbflowError(f"{place} holds no folders with pictures: {_LAYOUT}")
    for turn in range(max(map(len, groups))):
        yield from (group[turn] for group in groups if turn < len(group))


def _empty(folder: Path) -> EbbflowError:
    kinds = ", ".join(ENDINGS)
    return EbbflowError(f"{folder} holds no pictures ({kinds}): put some in, or remove the folder")


def _entries(folder: Path) -> dict[str, Path]:
    try:
        return {entry.name: entry for entry in folder.iterdir() if not entry.name.startswith(".")}
    except OSError as error:
        raise EbbflowError(f"{folder} cannot be read ({error.strerror}): check it") from None


def _folders(folder: Path) -> list[Path]:
    entries = _entries(folder)
    return [entries[name] for name in natural_order(entries) if entries[name].is_dir()]


def _pictures(folder: Path, left_out: Counter[str]) -> list[Path]:
    entries = {name: path for name, path in _entries(folder).items() if path.is_file()}
    for name, path in entries.items():
        if not name.lower().endswith(ENDINGS):
            left_out[str(path)] += 1
    return [entries[n] for n in natural_order(entries) if n.lower().endswith(ENDINGS)]


def _check_depth(pictures: list[_Picture]) -> None:
    """Raise an error if some pictures have a device and others do not."""
    owned = next((p for p in pictures if p.device is not None), None)
    free = next((p for p in pictures if p.device is None), None)
    if owned is not None and free is not None:
        raise EbbflowError(
            f"{free.path} lies in a folder for its class, and {owned.path} in folders for its "
            "device and class: let all pictures lie as deep"
        )


# --- what is in them


def _opened(path: Path) -> Any:
    from PIL import Image  # noqa: PLC0415 - only who has pictures needs it

    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(file, formats=["PNG", "JPEG"])
            image.load()
            return image
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise EbbflowError(
            f"{path} has more pixels than any picture to learn from: make it smaller"
        ) from None
    except (OSError, ValueError, SyntaxError) as error:
        reason = "it is no whole PNG or JPEG" if isinstance(error, OSError) else str(error)
        raise EbbflowError(f"{path} cannot be read ({reason}): write it again") from None


def _form_of(path: Path, choices: Choices) -> _Form:
    image = _opened(path)
    width, height = image.size if choices.size is None else reversed(choices.size)
    return _Form(_mode(path, image), height, width)


def _mode(path: Path, image: Any) -> str:
    if image.mode not in _SAME_AS or "transparency" in image.info:
        why = "has transparent parts" if "A" in image.mode else f"is of pillow's mode {image.mode}"
        raise EbbflowError(
            f"{path} {'has transparent parts' if 'transparency' in image.info else why}: save "
            "pictures as grey or RGB with 8 bits a channel"
        )
    return _SAME_AS[image.mode]


def _decoded(pictures: list[_Picture], form: _Form, choices: Choices) -> _Decoded:
    x = np.empty((len(pictures), _CHANNELS[form.mode], form.height, form.width), dtype=np.uint8)
    changes: Counter[str] = Counter()
    first = pictures[0].path
    for row, picture in enumerate(pictures):
        image = _opened(picture.path)
        mode = _mode(picture.path, image)
        if mode != form.mode:
            raise EbbflowError(
                f"{picture.path} is {_COLOURS[mode]} and others, such as {first}, are "
                f"{_COLOURS[form.mode]}: make all pictures grey or all coloured"
            )
        if image.size != (form.width, form.height):
            if choices.size is None:
                raise EbbflowError(
                    f"{picture.path} has {image.size[1]}x{image.size[0]} pixels and others, such "
                    f"as {first}, have {form.height}x{form.width}: make all pictures one size, or "
                    f"set data.size, as in data.size = [{form.height}, {form.width}]"
                )
            changes["resized"] += 1
        if image.mode != mode:
            changes["converted"] += 1
            image = image.convert(mode)
        if image.size != (form.width, form.height):
            from PIL import Image  # noqa: PLC0415 - only who has pictures needs it

            image = image.resize((form.width, form.height), Image.Resampling.BILINEAR)
        pixels = np.asarray(image)
        x[row] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return _Decoded(x, changes)


def _notes(
    root: Path, form: _Form, decoded: list[_Decoded], left_out: Counter[str], choices: Choices
) -> Iterator[str]:
    count = sum(len(part.x) for part in decoded)
    size = f"{form.height}x{form.width}"
    if resized := sum(part.changes["resized"] for part in decoded):
        yield f"{resized} of {count} pictures of {root} were resized to {size} pixels"
    elif choices.size is not None:
        yield f"all {count} pictures of {root} have {size} pixels, as data.size asks for"
    if converted := sum(part.changes["converted"] for part in decoded):
        yield (
            f"{converted} of {count} pictures of {root} had a palette or a single bit a pixel, and "
            f"became {_COLOURS[form.mode]}"
        )
    if left_out:
        yield f"files that are no pictures are left out: {listed(list(left_out), 3)}"
