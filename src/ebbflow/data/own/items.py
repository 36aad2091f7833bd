"""Samples that come one by one, from torch data sets and from lists: read once, and stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import TensorDataset

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.packing import InputLayout, packed
from ebbflow.data.own.assembly import Manner, Split
from ebbflow.data.own.finishing import texts_array
from ebbflow.data.own.naming import Array

INPUTS = (
    *("x", "image", "img", "pixel_values", "input", "inputs", "features"),
    *("text", "sentence", "content"),
)
LABELS = ("y", "label", "labels", "target", "targets")
DEVICE = "device"
"""What the parts of a sample are usually called, where they have names."""


class Parts(NamedTuple):
    """The names of a sample's parts: inputs, label and, where samples have owners, device."""

    x: str
    y: str
    device: str | None = None


class Wanted(NamedTuple):
    """The names that a user gave to a sample's parts; None where they are to be found."""

    column: str | None = None
    label: str | None = None
    device: str | None = None


class Gathered(NamedTuple):
    """Samples in arrays, whether they were pictures, and the names of parts and labels, if any."""

    split: Split
    pictures: bool
    parts: Parts | None = None
    labels: tuple[str, ...] = ()
    layout: InputLayout | None = None

    @property
    def manner(self) -> Manner:
        """How these samples become a data set's."""
        return Manner(pictures=self.pictures, labels=self.labels, layout=self.layout)


class Sample(NamedTuple):
    """One sample as it came."""

    x: Any
    y: Any
    device: Any = None


def parts_of(keys: Sequence[str], wanted: Wanted, place: str) -> Parts:
    """Return which of some keys or columns hold inputs, labels and owners.

    >>> parts_of(["img", "label", "id"], Wanted(), "these")
    Parts(x='img', y='label', device=None)
    """
    for given in wanted:
        if given is not None and given not in keys:
            raise EbbflowError(
                f"{place} has no {given!r}, only {listed(list(keys))}: name one of these"
            )

    def only(given: str | None, usual: Sequence[str], what: str, argument: str) -> str:
        found = [key for key in keys if key in usual] if given is None else [given]
        if len(found) != 1:
            several = f"several that may be the {what} ({', '.join(found)})"
            none = f"none that is called like {what} ({', '.join(usual)})"
            raise EbbflowError(
                f"{place} has {listed(list(keys))}, {several if found else none}: name the right "
                f"one, as in ebbflow.dataset(data, {argument}=...)"
            )
        return found[0]

    device = wanted.device or (DEVICE if DEVICE in keys else None)
    return Parts(
        only(wanted.column, INPUTS, "inputs", "column"),
        only(wanted.label, LABELS, "labels", "label"),
        device,
    )


def gather(
    data: Any, split: str, wanted: Wanted | None = None, like: Gathered | None = None
) -> Gathered:
    """Read every item of a torch data set: ``(x, y)``, ``(x, y, device)`` or a mapping.

    ``like`` are the training samples, whose form the test samples have to have.
    """
    if isinstance(data, TensorDataset) and len(data.tensors) in _sizes(like):
        # Copies, so that a run does not change if the caller changes the tensors later.
        x, y, *owners = (to_numpy(tensor).copy() for tensor in data.tensors)
        return Gathered(_split(split, x, y, owners[0] if owners else None), pictures=False)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise EbbflowError(
            f"The {split} data of type {type(data).__name__} have no length or cannot be indexed; "
            "give a map-style data set with __len__ and __getitem__."
        )
    parts = None if like is None else like.parts
    samples = []
    for index in range(len(data)):
        which = f"Item {index} of the {split} data"
        item = data[index]
        if isinstance(item, Mapping):
            parts = parts or parts_of([str(key) for key in item], wanted or Wanted(), which)
            samples.append(_from_mapping(item, parts, which))
        else:
            if wanted is not None and any(wanted):
                raise EbbflowError(
                    f"{which} is a {type(item).__name__}, whose parts have no names, such as "
                    f"{next(name for name in wanted if name)!r}: give dictionaries, or leave the "
                    "name out"
                )
            samples.append(_from_sequence(item, which, _sizes(like)))
    gathered = stack(samples, split, like)
    return gathered._replace(parts=parts)


def _sizes(like: Gathered | None) -> tuple[int, ...]:
    """Return how many parts an item may have: test samples have owners only if others do."""
    return (2, 3) if like is None or like.split.owners is not None else (2,)


def _from_sequence(item: object, which: str, sizes: tuple[int, ...]) -> Sample:
    if not isinstance(item, Sequence) or isinstance(item, str) or len(item) not in sizes:
        size = f" of {len(item)}" if isinstance(item, Sequence) else ""
        triples = ", or (x, y, device)" if 3 in sizes else ""
        raise EbbflowError(f"{which} is a {type(item).__name__}{size}; give pairs (x, y){triples}.")
    return Sample(*item)


def _from_mapping(item: Mapping[Any, Any], parts: Parts, which: str) -> Sample:
    lacking = [name for name in parts if name is not None and name not in item]
    if lacking:
        raise EbbflowError(
            f"{which} has no {lacking[0]!r}, which others have; give all items the same keys."
        )
    return Sample(item[parts.x], item[parts.y], item[parts.device] if parts.device else None)


def stack(samples: Sequence[Sample], split: str, like: Gathered | None = None) -> Gathered:
    """Bring samples into arrays, if all of them have one form."""
    inputs: list[Any] = []
    labels: list[Any] = []
    owners: list[Any] = []
    texts = pictures = False
    if samples and isinstance(samples[0].x, Mapping | tuple):
        return _with_several_inputs(samples, split, like)
    if like is not None:
        texts, pictures = like.split.x.dtype == object, like.pictures
    elif samples:
        texts, pictures = isinstance(samples[0].x, str), is_picture(samples[0].x)
    for index, sample in enumerate(samples):
        which = f"Item {index} of the {split} data"
        x = _input(sample.x, which, texts, pictures)
        if inputs and not texts and (x.shape, x.dtype) != (inputs[0].shape, inputs[0].dtype):
            raise EbbflowError(
                f"{which} is {x.dtype} of shape {x.shape} and item 0 is "
                f"{inputs[0].dtype} of shape {inputs[0].shape}; bring all inputs to one form."
            )
        inputs.append(x)
        labels.append(_truth(sample.y, which))
        if sample.device is not None:
            owners.append(_name_or_number(sample.device, which, "device", "device"))
    if owners and len(owners) != len(inputs):
        raise EbbflowError(
            f"{len(owners)} of the {len(inputs)} items of the {split} data say whose they are; let "
            "all of them do so, or none."
        )
    nothing = np.empty((0, 1), np.float32)
    x = texts_array(inputs) if texts else np.stack(inputs) if inputs else nothing
    whose = _as_array(owners, f"the devices of the {split} data") if owners else None
    y = _truths(labels, f"the labels of the {split} data")
    return Gathered(_split(split, x, y, whose), pictures)


def _with_several_inputs(samples: Sequence[Sample], split: str, like: Gathered | None) -> Gathered:
    """Bring samples with several inputs, by name or in order, into one array."""
    first = samples[0].x
    names = list(first) if isinstance(first, Mapping) else list(range(len(first)))
    columns = []
    for name in names:
        picked = []
        for index, sample in enumerate(samples):
            try:
                picked.append(sample._replace(x=sample.x[name]))
            except (KeyError, IndexError, TypeError):
                raise EbbflowError(
                    f"Item {index} of the {split} data lacks the input {name!r}, which item 0 has; "
                    "give all items the same inputs."
                ) from None
        columns.append(stack(picked, split))
    named = isinstance(first, Mapping)
    arrays = {str(name): each.split.x for name, each in zip(names, columns, strict=True)}
    x, layout = packed(arrays if named else list(arrays.values()), f"the {split} data")
    return columns[0]._replace(split=columns[0].split._replace(x=x), layout=layout)


def _truth(value: Any, which: str) -> Any:
    """Return what is to be predicted of a sample: a class, or else numbers."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        return to_numpy(value) if isinstance(value, Tensor) else value
    if isinstance(value, Tensor | np.ndarray):
        value = value.item()
    if isinstance(value, float | list):
        return np.asarray(value)
    return _name_or_number(value, which, "label", "class")


def _truths(values: list[Any], what: str) -> Array:
    if not any(isinstance(value, np.ndarray) for value in values):
        return _as_array(values, what)
    shapes = {np.shape(value) for value in values}
    if len(shapes) > 1 or any(isinstance(value, str) for value in values):
        raise EbbflowError(f"{what} are not all of one form; give every sample as many numbers.")
    return np.stack([np.asarray(value) for value in values])


def _split(split: str, x: Array, y: Array, owners: Array | None) -> Split:
    return Split(x, y, f"x of {split}", f"y of {split}", owners, f"device of {split}")


def _input(x: Any, which: str, texts: bool, pictures: bool) -> Any:
    if texts and isinstance(x, str):
        return x
    if pictures and is_picture(x):
        return picture_array(x, which)
    if texts or pictures or not isinstance(x, Tensor | np.ndarray | list):
        others = ", where others are texts" if texts else ", where others are pictures"
        raise EbbflowError(
            f"{which} has an input of type {type(x).__name__}"
            f"{others if texts or pictures else ''}; "
            "give a tensor, for images by a transform such as ToTensor."
        )
    if isinstance(x, list):
        try:
            return np.asarray(x)
        except ValueError:
            raise EbbflowError(
                f"{which} is a list whose rows differ in length; give all rows the same length."
            ) from None
    return to_numpy(x) if isinstance(x, Tensor) else x


def _name_or_number(value: Any, which: str, what: str, of: str) -> int | str:
    if isinstance(value, Tensor | np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, str):
        return value
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise EbbflowError(
            f"{which} has a {what} of type {type(value).__name__}; give the {of} as an int."
        )
    return int(value)


def _as_array(values: list[Any], what: str) -> Array:
    kinds = {isinstance(value, str) for value in values}
    if len(kinds) > 1:
        odd = next(value for value in values if isinstance(value, str))
        raise EbbflowError(
            f"{what} are numbers and texts such as {odd!r}; give only one of the two."
        )
    if kinds == {True}:
        return np.array(values)
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise EbbflowError(f"{what} do not fit into 64 bits; number them from 0.") from None


def is_picture(x: object) -> bool:
    """Whether an input is a picture of pillow's."""
    return hasattr(x, "mode") and hasattr(x, "getbands")


def picture_array(picture: Any, which: str) -> Array:
    """Return a picture's pixels, uint8 ``[C, H, W]``."""
    if picture.mode not in ("L", "RGB"):
        raise EbbflowError(
            f"{which} is a picture of mode {picture.mode}; convert all pictures to L (grey) or "
            "RGB, as with picture.convert('RGB')."
        )
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def channels_first(x: Array) -> Array:
    """Give uint8 images torch's layout; return any other array unchanged."""
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] in (1, 3):
        return np.moveaxis(x, -1, 1)
    return x


def to_numpy(tensor: Tensor) -> Array:
    """Return a tensor as an array."""
    tensor = tensor.detach().cpu()
    # numpy has no bfloat16; every floating type becomes float32 in the end.
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return array
