"""Warnings about suspicious data sets, and data that a model cannot use."""

from __future__ import annotations

from collections.abc import Iterator

from ebbflow.core.errors import EbbflowError
from ebbflow.core.names import listed
from ebbflow.core.types import Dataset
from ebbflow.data.sources import SOURCES

UNEVEN = 50.0
"""Warn if the standard deviations of two features differ by this factor. At the default rates for
a user's own data, two engines that round differently gave the same accuracies up to a factor of
30; from 100 on they were up to 50 points apart."""

_SHOWN = 10  # labels that a sentence lists
_OF_NUMBERS = frozenset({"softmax", "mlp", "cnn", "resnet18", "resnet34"})


def refuse_texts(dataset: Dataset, model: str) -> None:
    """Raise an error if samples are token numbers and the model computes with numbers.

    A model of a user's own may do with tokens whatever it likes.
    """
    train = dataset.train
    if model in _OF_NUMBERS and train.pixels is None and not train.x.is_floating_point():
        raise EbbflowError(
            f'model.kind = "{model}" computes with numbers, but the samples of {dataset.name} are '
            f'texts, token numbers up to {int(train.x.max())}: set model.kind to "embedding"'
        )


def data_warnings(dataset: Dataset, name: str) -> Iterator[str]:
    """Yield a sentence for everything that makes results doubtful.

    Args:
        dataset: The data to train on.
        name: The configuration's ``dataset``, which tells known data sets from a user's own.
    """
    if name not in SOURCES:
        yield from _uneven_features(dataset)
    yield from _untested_labels(dataset)


def _uneven_features(dataset: Dataset) -> Iterator[str]:
    x, pixels = dataset.train.x, dataset.train.pixels
    if pixels is not None or not x.is_floating_point():  # images and tokens
        return
    rows = x.reshape(len(x), -1)
    least, most = rows.aminmax(dim=0)
    if float(most.max()) <= 1 and float(least.min()) >= -1:
        return  # small inputs make small steps: at worst a feature is learnt slowly
    varying = (most > least).nonzero().flatten()
    if len(varying) < 2:
        return
    spread = rows.std(dim=0, correction=0)[varying]
    small, large = int(spread.argmin()), int(spread.argmax())
    ratio = float(spread[large]) / float(spread[small])
    if ratio >= UNEVEN:
        yield (
            f"the features of {dataset.name} differ by a factor of {ratio:,.0f} in their standard "
            f"deviations ({float(spread[large]):.3g} of feature {int(varying[large])}, "
            f"{float(spread[small]):.3g} of feature {int(varying[small])}), so that results may be "
            "a matter of rounding: standardise the features, by mean and standard deviation of the "
            "training set"
        )


def _untested_labels(dataset: Dataset) -> Iterator[str]:
    trained, tested = (set(split.kinds.tolist()) for split in (dataset.train, dataset.test))
    untested = sorted(trained - tested)
    if untested:
        names = listed(list(map(str, untested)), _SHOWN)
        labels = f"label{'s' if len(untested) > 1 else ''} {names}"
        yield (
            f"only the training set of {dataset.name} has samples of the {labels}: they are "
            "trained on and never tested; add some to the test set, or leave them out"
        )
