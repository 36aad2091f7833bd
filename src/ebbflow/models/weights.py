"""Loads weights from a file: a past model of a run, or published weights of a ResNet.

Only safetensors files, since reading one never runs code from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ebbflow.core import vector
from ebbflow.core.errors import EbbflowError
from ebbflow.core.types import Model, ModelState

_PREFIXES = ("theta/", "buffers/", "backbone.", "module.", "model.")
_SHOWN = 3  # names in a message


def load_weights(model: Model, initial: ModelState, path: Path) -> tuple[ModelState, list[str]]:
    """Return ``initial`` with every tensor that the file holds, and the names of those it lacks.

    Names may be plain (``conv1.weight``), those of a history file (``theta/conv1.weight``), or
    carry one of the prefixes ``backbone.``, ``module.``, ``model.``. The last layer of ImageNet
    (``fc.*``) and integer counters are ignored. The file must hold every part of the model (all
    tensors that begin with the same word, such as ``layer1.``) completely or not at all, and
    nothing else: otherwise a ResNet-34 would half fit a ResNet-18.

    Args:
        model: The model that the weights are for.
        initial: Supplies the tensors that the file lacks.
        path: A safetensors file, the configuration's ``model.weights``.
    """
    theta, buffers = initial.theta.clone(), initial.buffers.clone()
    places = vector.unflatten(theta, model.layout) | vector.unflatten(buffers, model.buffer_layout)
    given = _by_our_names(_read(path), places, model, path)
    lacking = [name for name in places if name not in given]
    _check_whole(given, lacking, model, path)
    for name, tensor in given.items():
        _check_values(name, tensor, places[name], path)
        places[name].copy_(tensor)  # a view of theta or of the buffers
    return ModelState(theta, buffers), lacking


def lacking_warnings(model: Model, path: Path, lacking: list[str]) -> list[str]:
    """Return a sentence about the tensors that a file lacks, if it lacks any."""
    if not lacking:
        return []
    count = len(model.layout.names) + len(model.buffer_layout.names)
    return [
        f'model.weights = "{path}" lacks {len(lacking)} of the {count} tensors of the model '
        f"{model.name} ({_some(lacking)}): they start as in a new model; add them to the file if "
        "they should not"
    ]


def _refused(path: Path, why: str) -> EbbflowError:
    return EbbflowError(f'model.weights = "{path}" {why}')


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise _refused(path, "is no file: name a safetensors file")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise _refused(
            path,
            f"cannot be read as safetensors ({error}): save the weights with "
            "`save_file` of safetensors",
        ) from None


def _by_our_names(
    tensors: Mapping[str, Tensor], places: Mapping[str, Tensor], model: Model, path: Path
) -> dict[str, Tensor]:
    given: dict[str, Tensor] = {}
    strange = []
    for full_name, tensor in tensors.items():
        name = _plain(full_name, places)
        if name in given:
            raise _refused(path, f"holds {name} twice, once as {full_name}: keep one of the two")
        if name in places:
            given[name] = tensor
        elif not _passed_over(name):
            strange.append(full_name)
    if not given:
        raise _refused(
            path,
            f"holds no tensor of the model {model.name}, whose first is {next(iter(places))}, but "
            f"{_some(list(tensors)) or 'nothing'}: it belongs to another model",
        )
    if strange:
        raise _refused(
            path,
            f"holds {_some(strange)}, which the model {model.name} has no place for: choose the "
            "model that the weights belong to",
        )
    return given


def _plain(name: str, places: Mapping[str, Tensor]) -> str:
    """Return the name without prefixes in front of one of the model's names."""
    while name not in places:
        prefix = next((p for p in _PREFIXES if name.startswith(p)), None)
        if prefix is None:
            break
        name = name.removeprefix(prefix)
    return name


def _passed_over(name: str) -> bool:
    return name.startswith(("fc.", "signature/")) or name.endswith("num_batches_tracked")


def _check_whole(given: Mapping[str, Tensor], lacking: list[str], model: Model, path: Path) -> None:
    begun = {name.split(".")[0] for name in given}
    torn = [name for name in lacking if name.split(".")[0] in begun]
    if torn:
        raise _refused(
            path,
            f"holds only part of the model {model.name} and lacks {_some(torn)}: choose the model "
            "that the weights belong to",
        )


def _check_values(name: str, tensor: Tensor, place: Tensor, path: Path) -> None:
    if tensor.shape != place.shape:
        raise _refused(
            path,
            f"holds {name} with the shape {list(tensor.shape)} where the model has "
            f"{list(place.shape)}: choose the model and data set that the weights belong to",
        )
    if not tensor.is_floating_point() or not bool(tensor.float().isfinite().all()):
        raise _refused(path, f"holds numbers in {name} that are not finite floats: it is damaged")


def _some(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
