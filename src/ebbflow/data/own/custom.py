"""Your own data, from an ``.npz`` file or two torch data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from torch.utils.data import Dataset as TorchDataset

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.types import Dataset
from ebbflow.data.own.assembly import Manner, Split, assemble
from ebbflow.data.own.choices import Choices
from ebbflow.data.own.finishing import complete
from ebbflow.data.own.items import channels_first, gather
from ebbflow.data.own.naming import Array

_KEYS = ("x_train", "y_train", "x_test", "y_test")
_OWNERS = ("device_train", "device_test")
_LIKE_OWNERS = ("client", "device", "owner", "participant", "patient", "subject", "user", "writer")
_SAVE = "write it again with numpy.savez."


def from_npz(path: Path | str, choices: Choices | None = None) -> Dataset:
    """Load your own data from an ``.npz`` file with ``x_train, y_train, x_test, y_test``.

    Inputs of type uint8 are divided by 255; images among them, ``[N, H, W]`` or ``[N, H, W, C]``
    with 1 or 3 channels, become ``[N, C, H, W]``. Other inputs are converted to float32 only, or
    stay token numbers if ``choices`` say so. Labels are whole numbers from 0, texts, or rows with a
    single one. ``device_train`` and ``device_test`` may say whose each sample is. The data set is
    named after the file, without its extension.
    """
    choices = choices or Choices()
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise EbbflowError(f"The data file {path} {what}; give the path of an .npz file.")
    choices.refuse_unused({"inputs"}, f"the .npz file {path}, whose arrays have names")
    if choices.inputs in ("words", "characters"):
        raise EbbflowError(
            f'data.inputs = "{choices.inputs}" needs texts, and an .npz file holds numbers: set it '
            f'to "tokens" if {path} holds token numbers'
        )
    arrays = read_npz(path, optional=_OWNERS)
    strangers = [name for name in _names(path) if name not in (*_KEYS, *_OWNERS)]
    notes = _told_of_owners(path, strangers, arrays, choices)
    train, test = (
        Split(
            channels_first(arrays[f"x_{which}"]),
            arrays[f"y_{which}"],
            f"x_{which}",
            f"y_{which}",
            arrays.get(f"device_{which}"),
            f"device_{which}",
        )
        for which in ("train", "test")
    )
    manner = Manner(choices.inputs, task=choices.task, notes=notes)
    return assemble(path.stem, str(path), train, test, manner)


def _names(path: Path) -> list[str]:
    with path.open("rb") as file, NpzFile(file, allow_pickle=False) as archive:
        return list(archive.files)


def _told_of_owners(
    path: Path, strangers: list[str], arrays: dict[str, Array], choices: Choices
) -> tuple[str, ...]:
    """Return a sentence on arrays that look as if they named owners, and are not called so."""
    like = [name for name in strangers if any(word in name.lower() for word in _LIKE_OWNERS)]
    if not like or "device_train" in arrays:
        return ()
    text = (
        f"{path} also holds {listed(like)}, which is not used: to say whose each sample is, call "
        "the arrays device_train and device_test"
    )
    if choices.owners_needed:
        raise EbbflowError(text)
    return (text,)


def read_npz(path: Path, remedy: str = _SAVE, *, optional: Sequence[str] = ()) -> dict[str, Array]:
    """Return the four arrays of an ``.npz`` file, and optional ones that it has.

    ``remedy`` ends a sentence about a bad file.
    """
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
            for key in (*_KEYS, *(key for key in optional if key in archive.files)):
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


def from_torch(train: TorchDataset[Any], test: TorchDataset[Any], name: str = "custom") -> Dataset:
    """Load two torch data sets whose items are ``(x, y)``: a tensor and a class.

    Items may have a third part, the number or name of the device that they belong to. All items are
    read once and stacked, so random transforms are applied only once. Inputs of type uint8 are
    divided by 255; others are converted to float32 only.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> halves = TensorDataset(torch.eye(4), torch.tensor([0, 1, 0, 1]))
    >>> from_torch(halves, halves).classes
    2
    """
    gathered = gather(train, "train")
    place = f"data set {name!r}"
    splits = gathered.split, gather(test, "test", like=gathered).split
    return complete(name, place, splits, Choices(), gathered.manner)
