"""Your own data, from an ``.npz`` file or two torch data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Dataset, Examples

Array = NDArray[Any]
"""An array whose type is not known yet."""

MAX_CLASSES = 100_000
"""More classes than this are a mistake, such as identifiers taken for labels."""

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_SAVE = "write it again with numpy.savez."


class _Split(NamedTuple):
    """The user's arrays, and the names by which errors refer to them."""

    x: Array
    y: Array
    x_name: str
    y_name: str


def from_npz(path: Path | str) -> Dataset:
    """Load your own data from an ``.npz`` file with ``x_train, y_train, x_test, y_test``.

    Inputs of type uint8 are divided by 255; images among them, ``[N, H, W]`` or ``[N, H, W, C]``
    with 1 or 3 channels, become ``[N, C, H, W]``. Other inputs are converted to float32 only.
    Labels are whole numbers from 0. The data set is named after the file, without its extension.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise EbbflowError(f"The data file {path} {what}; give the path of an .npz file.")
    arrays = read_npz(path)
    train = _Split(_channels_first(arrays["x_train"]), arrays["y_train"], "x_train", "y_train")
    test = _Split(_channels_first(arrays["x_test"]), arrays["y_test"], "x_test", "y_test")
    return _assemble(path.stem, str(path), train, test)


def read_npz(path: Path, remedy: str = _SAVE) -> dict[str, Array]:
    """Return the four arrays of an ``.npz`` file; ``remedy`` ends a sentence about a bad file."""
    arrays: dict[str, Array] = {}
    key = ""
    try:
        # Not numpy.load, which would try to read another kind of file as an array or a pickle.
        with path.open("rb") as file, NpzFile(file, allow_pickle=False) as archive:
            missing = [key for key in _KEYS if key not in archive.files]
            if missing:
                raise EbbflowError(
                    f"{path} lacks {', '.join(missing)} (it has "
                    f"{', '.join(archive.files) or 'no arrays'}); save {', '.join(_KEYS)} in it "
                    "with numpy.savez."
                )
            for key in _KEYS:
                arrays[key] = archive[key]
                # numpy returns a member that is not an array as bytes.
                if not isinstance(arrays[key], np.ndarray):
                    raise ValueError("it is not an array")
    except EbbflowError:
        raise
    except Exception as error:  # numpy raises whatever its parser happens to stumble over
        if "Object arrays" in str(error):
            raise EbbflowError(
                f"{path}: {key} holds Python objects, which are never loaded; "
                "save it as an array of numbers."
            ) from error
        where = f" at {key}" if key else ""
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EbbflowError(
            f"{path} is not a readable .npz file{where} ({reason.rstrip('.')}); {remedy}"
        ) from error
    return arrays


def _channels_first(x: Array) -> Array:
    """Give uint8 images torch's layout; return any other array unchanged."""
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] in (1, 3):
        return np.moveaxis(x, -1, 1)
    return x


def from_torch(train: TorchDataset[Any], test: TorchDataset[Any], name: str = "custom") -> Dataset:
    """Load two torch data sets whose items are ``(x, y)``: a tensor and a class.

    All items are read once and stacked, so random transforms are applied only once. Inputs of type
    uint8 are divided by 255; others are converted to float32 only.

    >>> halves = TensorDataset(torch.eye(4), torch.tensor([0, 1, 0, 1]))
    >>> from_torch(halves, halves).classes
    2
    """
    return _assemble(
        name, f"data set {name!r}", _materialise(train, "train"), _materialise(test, "test")
    )


def _materialise(data: TorchDataset[Any], split: str) -> _Split:
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        # Copies, so that a run does not change if the caller changes the tensors later.
        whole_x, whole_y = (_to_numpy(tensor).copy() for tensor in data.tensors)
        return _Split(whole_x, whole_y, f"x of {split}", f"y of {split}")
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise EbbflowError(
            f"The {split} data of type {type(data).__name__} have no length or cannot be indexed; "
            "give a map-style data set with __len__ and __getitem__."
        )
    inputs: list[Array] = []
    labels: list[int] = []
    for index in range(len(data)):
        x, y = _item(data[index], f"Item {index} of the {split} data")
        if inputs and (x.shape, x.dtype) != (inputs[0].shape, inputs[0].dtype):
            raise EbbflowError(
                f"Item {index} of the {split} data is {x.dtype} of shape {x.shape} and item 0 is "
                f"{inputs[0].dtype} of shape {inputs[0].shape}; bring all inputs to one form."
            )
        inputs.append(x)
        labels.append(y)
    return _Split(
        np.stack(inputs) if inputs else np.empty((0, 1), np.float32),
        np.array(labels, dtype=np.int64),
        f"x of {split}",
        f"y of {split}",
    )


def _item(item: object, which: str) -> tuple[Array, int]:
    if not isinstance(item, Sequence) or len(item) != 2:
        size = f" of {len(item)}" if isinstance(item, Sequence) else ""
        raise EbbflowError(f"{which} is a {type(item).__name__}{size}; give pairs (x, y).")
    x, y = item
    if isinstance(y, Tensor | np.ndarray) and y.ndim == 0:
        y = y.item()
    if not isinstance(y, int | np.integer) or isinstance(y, bool):
        raise EbbflowError(
            f"{which} has a label of type {type(y).__name__}; give the class as an int."
        )
    if not isinstance(x, Tensor | np.ndarray):
        raise EbbflowError(
            f"{which} has an input of type {type(x).__name__}; "
            "give a tensor, for images by a transform such as ToTensor."
        )
    return (_to_numpy(x) if isinstance(x, Tensor) else x), int(y)


def _to_numpy(tensor: Tensor) -> Array:
    tensor = tensor.detach().cpu()
    # numpy has no bfloat16; every floating type becomes float32 in the end.
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array


def _assemble(name: str, place: str, train: _Split, test: _Split) -> Dataset:
    """Check each split and both against each other, and return the data set."""
    for split in (train, test):
        _check_split(place, split)
    if train.x.shape[1:] != test.x.shape[1:]:
        raise EbbflowError(
            f"{place}: samples have shape {train.x.shape[1:]} in {train.x_name} and "
            f"{test.x.shape[1:]} in {test.x_name}; give both the same shape."
        )
    if (train.x.dtype == np.uint8) != (test.x.dtype == np.uint8):
        raise EbbflowError(
            f"{place}: {train.x_name} is {train.x.dtype} and {test.x_name} is {test.x.dtype}, and "
            "only uint8 is divided by 255; give both the same type."
        )
    classes = 1 + max(int(train.y.max()), int(test.y.max()))
    if classes > MAX_CLASSES:
        raise EbbflowError(
            f"{place}: the greatest label is {classes - 1}, and more than {MAX_CLASSES} classes "
            "are not supported; number the classes from 0 without gaps."
        )
    return Dataset(name, _examples(place, train), _examples(place, test), classes)


def _check_split(place: str, split: _Split) -> None:
    x, y = split.x, split.y
    if x.dtype.kind not in "biuf":
        raise EbbflowError(
            f"{place}: {split.x_name} is of type {x.dtype}; save real numbers, as float32 or uint8."
        )
    if x.ndim < 2:
        raise EbbflowError(
            f"{place}: {split.x_name} has shape {x.shape}; give it one row a sample, [N, ...]."
        )
    if y.dtype.kind not in "iu":
        raise EbbflowError(
            f"{place}: the labels {split.y_name} are of type {y.dtype}; "
            "save class numbers as integers, with y.astype('int64')."
        )
    if y.ndim != 1:
        raise EbbflowError(
            f"{place}: the labels {split.y_name} have shape {y.shape}; give one number a sample, "
            "[N], with y.reshape(-1) or y.argmax(1)."
        )
    if len(x) != len(y):
        raise EbbflowError(
            f"{place}: {split.x_name} has {len(x)} samples and {split.y_name} has {len(y)}; "
            "give every sample one label."
        )
    if x.size == 0:
        raise EbbflowError(
            f"{place}: {split.x_name} is empty (shape {x.shape}); give at least one sample."
        )
    if y.min() < 0:
        raise EbbflowError(
            f"{place}: {split.y_name} holds the negative label {y.min()} (sample "
            f"{int(y.argmin())}); number the classes from 0."
        )


def _examples(place: str, split: _Split) -> Examples:
    if split.x.dtype == np.uint8:
        x = split.x.astype(np.float32, order="C") * np.float32(1 / 255)
    else:
        # Values beyond float32 become infinite, and are reported as such.
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(split.x, dtype=np.float32)
        finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if not finite.all():
            raise EbbflowError(
                f"{place}: {split.x_name} holds a NaN or infinite value in float32 (sample "
                f"{int(finite.argmin())}); remove or replace such samples."
            )
    return Examples(torch.from_numpy(x), torch.from_numpy(split.y.astype(np.int64)))
