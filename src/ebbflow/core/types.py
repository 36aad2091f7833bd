"""The nouns of ebbflow: what a model, a batch, a session and an upload are.

A model is one vector. ``theta`` has shape ``[P]`` and holds every trained parameter; ``buffers``
has shape ``[Q]`` and holds what a forward pass updates without a gradient (BatchNorm's running
means and variances). Everything the method does with models is then vector algebra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ebbflow.core.packing import InputLayout
from ebbflow.core.tasks import CLASSES, Task

Theta = Tensor
"""All trained parameters of one model, one after another: ``[P]``."""
Buffers = Tensor
"""All floating-point buffers of one model, one after another: ``[Q]``, often empty."""
Gradient = Tensor
"""The derivative of a loss in every entry of theta: ``[P]``."""
Labels = Tensor
"""Class numbers of a batch: ``[B]``, int64."""
Indices = NDArray[np.int64]
"""Row numbers in the training set."""
State = dict[str, Tensor]
"""What an algorithm remembers, by name; empty for FedAvg."""


class Output(NamedTuple):
    """What a forward pass gives: class scores, and the representation that MOON contrasts."""

    logits: Tensor
    features: Tensor


class Layout(NamedTuple):
    """Where each named tensor of a module lies in its flat vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of entries of each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def total(self) -> int:
        """Length of the flat vector."""
        return sum(self.sizes)

    def slices(self) -> dict[str, slice]:
        """Return the range of the flat vector that each tensor takes."""
        ends = list(accumulate(self.sizes))
        starts = [0, *ends[:-1]]
        return {n: slice(a, b) for n, a, b in zip(self.names, starts, ends, strict=False)}


class ModelState(NamedTuple):
    """A model as it travels: parameters and buffers."""

    theta: Theta
    buffers: Buffers


Forward = Callable[[Theta, Buffers, Tensor, Tensor | None, bool], tuple[Output, Buffers]]
"""``forward(theta, buffers, x, noise, train)`` gives the output and the updated buffers. ``noise``
holds uniform draws from [0, 1) for the model's random layers, which draw nothing themselves; it is
None where the model has none and outside training."""
Pullback = Callable[[Theta, Tensor, Output], Gradient]
"""``pullback(theta, x, cotangent)``: the gradient from the loss's derivative in the outputs."""
Cotangent = Callable[[Output], Output]
"""The loss's derivative in the outputs, as a function of them."""
Differentiate = Callable[
    [Theta, Buffers, Tensor, Tensor | None, Cotangent], tuple[Gradient, Buffers]
]
"""``gradient(theta, buffers, x, noise, cotangent)``: a forward and backward pass in one call. It
returns the loss's gradient, a new tensor that the caller may change, and the updated buffers."""
Precision = Literal["fp32", "bf16"]
"""The type that the products of a training step are computed in; the rest is float32."""


class BagOfWords(NamedTuple):
    """A text model that averages word vectors: theta is a table of word vectors, then a small tail.

    ``shares(x, dtype) [B, length]`` is the weight of each token in its text's mean, zero for
    padding: the features are the sum of share times word vector. ``head(tail, features)`` gives the
    logits. ``pull(tail, features, cotangent)`` takes the loss's derivative in the outputs to the
    derivatives in the features and in the tail. ``subset(texts)`` is the same model restricted to
    the words of these texts.
    """

    vocabulary: int
    width: int
    shares: Callable[[Tensor, torch.dtype], Tensor]
    head: Callable[[Tensor, Tensor], Tensor]
    pull: Callable[[Tensor, Tensor, Output], tuple[Tensor, Tensor]]
    subset: Callable[[Sequence[Tensor]], WordSubset]


class WordSubset(NamedTuple):
    """A text model restricted to some of its words.

    ``words`` are their numbers in ascending order, padding first. ``texts`` are the texts with
    words renumbered by their place in ``words``. ``model`` is the restricted model: the rows of its
    table are those of ``words``, in that order.
    """

    words: Tensor
    texts: list[Tensor]
    model: Model


class Linear(NamedTuple):
    """The layer W h + b: where W ``[outputs, inputs]`` and b lie in theta; b may be missing."""

    weight: slice
    bias: slice | None
    outputs: int
    inputs: int


class Masked(NamedTuple):
    """Dropout: in training, units are multiplied by ``factors(noise, units) [B, units]``.

    ``rate`` is the share of units that are dropped, and ``place`` says which of a sample's draws
    the factors depend on.
    """

    rate: float
    place: int
    factors: Callable[[Tensor, int], Tensor]


class Normalised(NamedTuple):
    """Batch normalisation: units get the mean zero and the variance one over the mini-batch.

    ``mean`` and ``variance`` say where the running statistics lie in the buffers. They follow the
    mini-batches by ``momentum``, and take their place outside training.
    """

    weight: slice | None
    bias: slice | None
    mean: slice
    variance: slice
    units: int
    epsilon: float
    momentum: float


DenseStage = Linear | Masked | Normalised | Literal["relu", "tanh"]
"""What a dense network does to the numbers that come from the stage before."""


class DenseNetwork(NamedTuple):
    """A network that is a chain of linear layers and of functions of single units.

    ``features`` is the number of stages after which its values are the representation.
    ``flattens`` is whether it makes one row of a sample of any shape. With ``zero_first`` a column
    of zeros is put before the last values, the score of a first class.
    """

    stages: tuple[DenseStage, ...]
    features: int
    flattens: bool
    zero_first: bool = False


@dataclass(frozen=True)
class EngineHints:
    """What an engine may use to train a model faster; a model without any is trained correctly.

    Attributes:
        vectorise: Whether mapping over devices pays.
        vectorise_on_gpu: Whether it pays on a GPU, where that differs.
        own_draws: Whether the model has random layers that draw from torch's global generator, so
            that only the sequential engine can train it.
        linear: Whether the model is logits = W x + b with theta = (W, b), which the fused kernel
            computes.
        dense: The stages of a dense network, whose gradient has a closed form.
        at_precision: Returns the same model with another precision of its training step, where
            float32 is not the only one.
        bag_of_words: The parts of a model that averages word vectors; its devices can be trained
            without a copy of the table.
    """

    vectorise: bool = True
    vectorise_on_gpu: bool | None = None
    own_draws: bool = False
    linear: bool = False
    dense: DenseNetwork | None = None
    at_precision: Callable[[Precision], Model] | None = None
    bag_of_words: BagOfWords | None = None

    def maps(self, on_gpu: bool) -> bool:
        """Return whether mapping over devices pays there."""
        if on_gpu and self.vectorise_on_gpu is not None:
            return self.vectorise_on_gpu
        return self.vectorise


@dataclass(frozen=True)
class Model:
    """A model as pure functions of its vectors.

    Attributes:
        name: What messages call it.
        layout: Where each parameter lies in theta.
        buffer_layout: Where each floating-point buffer lies in the buffers' vector.
        initial: Draws fresh weights.
        forward: The forward pass.
        pullback: The gradient from the derivative in the outputs, where there is a closed form.
        gradient: A faster way to the gradient of a single device, which ``vmap`` cannot map (see
            `mapped`). With neither this nor ``pullback``, the gradient is the vector-Jacobian
            product of ``forward``.
        batch_statistics: Whether the result depends on the batch as a whole, so that padding a
            batch would change it.
        noise: The shape of the uniform draws that one sample needs in training.
        hints: What makes training faster on some engines.
        task: What its outputs are compared with, and how.
    """

    name: str
    layout: Layout
    buffer_layout: Layout
    initial: Callable[[torch.Generator], ModelState]
    forward: Forward
    pullback: Pullback | None = None
    gradient: Differentiate | None = None
    batch_statistics: bool = False
    noise: tuple[int, ...] | None = None
    hints: EngineHints = EngineHints()
    task: Task = CLASSES

    def mapped(self) -> Model:
        """Return the model as ``vmap`` can map it over devices."""
        return replace(self, gradient=None)


class Pixels(NamedTuple):
    """How raw images become inputs: (x/255 - mean)/std per channel, after an optional random crop.

    ``crop`` is the width of the black border from within which a window of the image's own size is
    cut at random in training; ``flip`` mirrors every second image, at random.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: int = 0
    flip: bool = False


@dataclass(frozen=True)
class Examples:
    """One split of a data set: inputs ``x [N, ...]`` and the truth ``y``.

    The truth is a class for each sample, ``[N]``, or what else the task is about: numbers ``[N,
    O]``, zeros and ones for several labels ``[N, C]``, token numbers ``[N, L]``.

    ``x`` is float32 and ready, int64 for token numbers (0 is padding), or, with ``pixels``, uint8
    images ``[N, C, H, W]`` that are normalised when they are used. ``device [N]`` says whose each
    sample is, where samples have owners: a number, int64 (see `Dataset.devices`).
    """

    x: Tensor
    y: Tensor
    pixels: Pixels | None = None
    device: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def kinds(self) -> Tensor:
        """The label of each sample, ``[N]``; zero for all where samples have no single label."""
        if self.labelled:
            return self.y
        return torch.zeros(len(self.y), dtype=torch.int64, device=self.y.device)

    @property
    def labelled(self) -> bool:
        """Whether the truth of a sample is a single label."""
        return self.y.dim() == 1 and not self.y.is_floating_point()


@dataclass(frozen=True)
class Dataset:
    """A data set ready to train on.

    Attributes:
        name: What messages and records call it.
        train: The samples that devices train on.
        test: The samples that models are tested on.
        classes: The number of labels, or else of outputs that a model needs.
        devices: The names of the devices that samples belong to, by number, if samples have owners.
        labels: The names of the labels, by number, if they have names.
        notes: Sentences on what was done to a user's data to make it this, for the user to read.
        scale: Means and standard deviations by which numbers to predict were standardised, if so.
        inputs: Where the inputs of a sample lie in its vector, if it has several.
    """

    name: str
    train: Examples
    test: Examples
    classes: int
    devices: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    inputs: InputLayout | None = None

    @property
    def kind_count(self) -> int:
        """The number of labels by which samples can be told apart; one if they have none."""
        return self.classes if self.train.labelled else 1


@dataclass(frozen=True)
class Session:
    """A session s: the devices K^(s) that are here, their samples D_k^(s), and its length T.

    ``devices`` are numbers that stay with a device for the whole run (a device that comes back has
    its old number and its old samples); ``labels`` are the classes that any of them holds;
    ``sizes`` are the lengths of the shards, where those are drawn when they are used.
    """

    index: int
    devices: tuple[int, ...]
    rounds: int
    labels: tuple[int, ...]
    shards: Mapping[int, Indices] = field(repr=False)
    sizes: Mapping[int, int] | None = field(default=None, repr=False)

    def samples(self, device: int) -> int:
        """Return D_k^(s)."""
        return len(self.shards[device]) if self.sizes is None else self.sizes[device]


class Sketch(NamedTuple):
    """A signature in few numbers (`ebbflow.core.sketch`), and its tensors' exact norms, float64."""

    values: Tensor
    norms: Tensor


@dataclass(frozen=True)
class PastSession:
    """A past session z: its final model w^(z,T+1) and, if it was probed, its signature G_z.

    ``start`` is the model w^(z,1) that it began with, if the method's start asked to keep it;
    ``devices`` are those that were there, where they are known. A history on disk has sessions that
    read models and signatures only when they are asked for.
    """

    number: int
    model: ModelState
    signature: Tensor | None = None
    start: ModelState | None = None
    devices: tuple[int, ...] = ()

    @property
    def signed(self) -> bool:
        """Whether there is a signature; reads none."""
        return self.signature is not None

    @property
    def started(self) -> bool:
        """Whether there is a starting model; reads none."""
        return self.start is not None

    @property
    def required_signature(self) -> Tensor:
        """The signature of a session that has one."""
        signature = self.signature
        if signature is None:
            raise ValueError(f"session {self.number} has no signature")
        return signature

    @property
    def sketch(self) -> Sketch | None:
        """The signature's sketch, if one lies beside it."""
        return None
