"""Coloured images: SVHN, CIFAR-10, CIFAR-100 and Tiny ImageNet.

They stay uint8 ``[N, 3, H, W]``, a quarter of the memory, and are normalised on use. The training
images of CIFAR and Tiny ImageNet are also cropped and mirrored at random.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples, Pixels
from ebbflow.data.local_files import LocalFiles, opened, reading
from ebbflow.data.own.custom import read_npz
from ebbflow.data.sources import Source

Images = NDArray[np.uint8]
"""Images of one split, ``[N, 3, H, W]``."""

PIXELS = {
    "svhn": Pixels((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "cifar10": Pixels((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), crop=4, flip=True),
    "cifar100": Pixels((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761), crop=4, flip=True),
    "tinyimagenet": Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), crop=4, flip=True),
}
"""How training images become inputs; test images are neither cropped nor mirrored."""

_TINY = "tiny-imagenet-200"
# A bad archive; a missing member; one that is encrypted or compressed unusually; bad text.
_BAD_ZIP = (zipfile.BadZipFile, KeyError, RuntimeError, ValueError)


class _Batches(NamedTuple):
    """The members of a CIFAR archive, and the label bytes before each image (the last is used)."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: int


_CIFAR = {
    "cifar10": _Batches(tuple(f"data_batch_{i}.bin" for i in range(1, 6)), ("test_batch.bin",), 1),
    "cifar100": _Batches(("train.bin",), ("test.bin",), 2),
}


# --- SVHN


def svhn(wanted: Source, files: LocalFiles) -> Dataset:
    """Read SVHN from its two MATLAB files, or a subset from an ``.npz`` file."""
    if files.subset:
        return _subset(wanted, files.paths[0], 32)
    train, test = files.paths
    return Dataset(
        wanted.name,
        _examples(wanted, train, *_read_mat(wanted, train), count=wanted.train, training=True),
        _examples(wanted, test, *_read_mat(wanted, test), count=wanted.test),
        wanted.classes,
    )


def _read_mat(wanted: Source, path: Path) -> tuple[Images, NDArray[Any]]:
    """Read ``X [H, W, C, N]`` and ``y [N, 1]``, in which 10 stands for the digit 0."""
    # scipy takes long to import, and one data set needs it.
    from scipy.io import loadmat  # noqa: PLC0415

    # For a damaged file, scipy raises whatever its parser happens to stumble over.
    with reading(path, wanted), path.open("rb") as file, reading(path, wanted, Exception):
        content = loadmat(file, variable_names=("X", "y"))
        if "X" not in content or "y" not in content:
            raise ValueError("it lacks X or y")
        x, y = content["X"], content["y"].reshape(-1)
        if x.dtype != np.uint8 or x.shape[:-1] != (32, 32, 3) or x.shape[-1] != len(y):
            raise ValueError(f"X is {x.dtype} of shape {x.shape} for {len(y)} labels")
        if y.min() < 1 or y.max() > wanted.classes:
            raise ValueError(f"labels go from {y.min()} to {y.max()}, not 1 to {wanted.classes}")
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), y % wanted.classes


# --- CIFAR


def cifar(wanted: Source, files: LocalFiles) -> Dataset:
    """Read CIFAR-10 or CIFAR-100 from its binary archive, or a subset from an ``.npz`` file."""
    (path,) = files.paths
    if files.subset:
        return _subset(wanted, path, 32)
    batches = _CIFAR[wanted.name]
    sizes = {name: wanted.train // len(batches.train) for name in batches.train}
    sizes |= {name: wanted.test // len(batches.test) for name in batches.test}
    records = _read_tar(wanted, path, {n: s * (batches.labels + 3072) for n, s in sizes.items()})

    def split(names: Sequence[str]) -> tuple[Images, NDArray[Any]]:
        rows = [records.pop(name).reshape(sizes[name], -1) for name in names]
        x = np.concatenate([row[:, batches.labels :] for row in rows]).reshape(-1, 3, 32, 32)
        return x, np.concatenate([row[:, batches.labels - 1] for row in rows])

    return Dataset(
        wanted.name,
        _examples(wanted, path, *split(batches.train), count=wanted.train, training=True),
        _examples(wanted, path, *split(batches.test), count=wanted.test),
        wanted.classes,
    )


def _read_tar(wanted: Source, path: Path, sizes: dict[str, int]) -> dict[str, Images]:
    """Return the members of an archive with these names and sizes, without unpacking to disk."""
    contents: dict[str, Images] = {}
    with reading(path, wanted, tarfile.TarError), opened(path) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name not in sizes:
                    continue
                file = archive.extractfile(member) if member.size == sizes[name] else None
                if file is None:
                    raise EbbflowError(
                        f"{path} is damaged (its {name} has {member.size} bytes, not "
                        f"{sizes[name]}); {wanted.remedy}"
                    )
                contents[name] = np.frombuffer(file.read(), dtype=np.uint8)
        # Read to the end, where the gzip checksum is.
        while stream.read(1 << 20):
            pass
    if missing := [name for name in sizes if name not in contents]:
        raise EbbflowError(f"{path} is damaged ({', '.join(missing)} not in it); {wanted.remedy}")
    return contents


# --- Tiny ImageNet


def tinyimagenet(wanted: Source, files: LocalFiles) -> Dataset:
    """Read Tiny ImageNet from its zip file, or a subset in the same layout; ``val`` is the test.

    A class's number is its place in the sorted ``wnids.txt``. The classes take turns: the first
    image of every class, then the second of every class, so that any prefix is balanced.
    """
    (path,) = files.paths
    with reading(path, wanted, *_BAD_ZIP), zipfile.ZipFile(path) as archive:
        wnids = sorted(set(archive.read(f"{_TINY}/wnids.txt").decode().split()))
        if len(wnids) != wanted.classes:
            raise ValueError(f"wnids.txt names {len(wnids)} classes, not {wanted.classes}")
        number = {wnid: label for label, wnid in enumerate(wnids)}
        train, test = _train_members(archive, number), _test_members(archive, number)
        counts = (None, None) if files.subset else (wanted.train, wanted.test)
        return Dataset(
            wanted.name,
            _decoded(wanted, path, archive, train, counts[0], training=True),
            _decoded(wanted, path, archive, test, counts[1]),
            wanted.classes,
        )


class _Member(NamedTuple):
    """An image in the zip file; ``turn`` counts within a class, so sorted classes take turns."""

    turn: int
    label: int
    name: str


def _train_members(archive: zipfile.ZipFile, number: dict[str, int]) -> list[_Member]:
    # tiny-imagenet-200/train/n01443537/images/n01443537_0.JPEG
    names = [name for name in archive.namelist() if name.startswith(f"{_TINY}/train/")]
    return _in_turn(
        [(name, name.split("/")[2]) for name in names if name.endswith(".JPEG")], number
    )


def _test_members(archive: zipfile.ZipFile, number: dict[str, int]) -> list[_Member]:
    # A line holds the file's name, the class, and the four sides of a box.
    lines = archive.read(f"{_TINY}/val/val_annotations.txt").decode().splitlines()
    pairs = [line.split("\t")[:2] for line in lines if line]
    return _in_turn([(f"{_TINY}/val/images/{pair[0]}", pair[-1]) for pair in pairs], number)


def _in_turn(images: list[tuple[str, str]], number: dict[str, int]) -> list[_Member]:
    """Sort images, given by name and class, so that the classes take turns."""

    def age(image: tuple[str, str]) -> tuple[int, str]:
        digits = image[0].removesuffix(".JPEG").rpartition("_")[2]
        return int(digits) if digits.isdecimal() else 0, image[0]

    turns: Counter[str] = Counter()
    members = []
    for name, wnid in sorted(images, key=age):
        if wnid not in number:
            raise ValueError(f"{name} is of the class {wnid!r}, which wnids.txt does not name")
        members.append(_Member(turns[wnid], number[wnid], name))
        turns[wnid] += 1
    return sorted(members)


def _decoded(
    wanted: Source,
    path: Path,
    archive: zipfile.ZipFile,
    members: list[_Member],
    count: int | None,
    *,
    training: bool = False,
) -> Examples:
    from PIL import Image  # noqa: PLC0415 - one data set needs it

    x = np.empty((len(members), 3, 64, 64), dtype=np.uint8)
    # One by one: much of an image's 0.3 ms holds Python's lock, and two threads gained nothing.
    for row, member in enumerate(members):
        content = io.BytesIO(archive.read(member.name))
        try:
            with Image.open(content, formats=["JPEG"]) as image:
                if image.size != (64, 64):
                    raise ValueError(f"it has {image.size[0]}x{image.size[1]} pixels, not 64x64")
                x[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            reason = "it is no whole JPEG" if isinstance(error, OSError) else str(error)
            raise EbbflowError(
                f"{path} is damaged at {member.name} ({reason}); {wanted.remedy}"
            ) from error
    y = np.array([member.label for member in members], dtype=np.int64)
    return _examples(wanted, path, x, y, count=count, training=training)


# --- shared


def _subset(wanted: Source, path: Path, side: int) -> Dataset:
    """Read ``x_train, y_train, x_test, y_test``; the images are ``[N, H, W, 3]``."""
    arrays = read_npz(path, wanted.remedy)

    def split(which: str) -> Examples:
        x, y = arrays.pop(f"x_{which}"), arrays.pop(f"y_{which}")
        if x.dtype != np.uint8 or y.dtype.kind not in "iu" or x.shape != (*y.shape, side, side, 3):
            raise EbbflowError(
                f"{path} is damaged (x_{which} is {x.dtype} of shape {x.shape}, y_{which} is "
                f"{y.dtype} of shape {y.shape}); {wanted.remedy}"
            )
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        return _examples(wanted, path, x, y, count=None, training=which == "train")

    return Dataset(wanted.name, split("train"), split("test"), wanted.classes)


def _examples(
    wanted: Source,
    path: Path,
    x: Images,
    y: NDArray[Any],
    *,
    count: int | None,
    training: bool = False,
) -> Examples:
    if len(y) != (count or max(1, len(y))):
        raise EbbflowError(
            f"{path} is damaged ({len(y)} images for {'training' if training else 'testing'}, not "
            f"{count or 'more'}); {wanted.remedy}"
        )
    if y.min() < 0 or y.max() >= wanted.classes:
        raise EbbflowError(
            f"{path} holds labels from {y.min()} to {y.max()} where 0 to {wanted.classes - 1} are "
            f"expected; {wanted.remedy}"
        )
    pixels = PIXELS[wanted.name]
    if not training:
        pixels = pixels._replace(crop=0, flip=False)
    return Examples(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), pixels)
