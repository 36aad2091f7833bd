"""What is to be predicted: how outputs are compared with the truth, in training and in tests.

A task is a record. All algorithms, starts and engines go through it: the loss that devices lower,
its derivatives in the outputs for the learned start, and the measures that tests report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ebbflow.core import measures
from ebbflow.core.errors import EbbflowError
from ebbflow.core.judging import JUDGES, MEASURES, Judge
from ebbflow.core.measures import Measure
from ebbflow.core.names import is_name

Loss = Callable[[Tensor, Tensor], Tensor]
"""The loss of every sample, ``[B]``, from outputs ``[B, ...]`` and truth ``[B, ...]``."""
Divergence = Callable[[Tensor, Tensor, float], Tensor]
"""How far a student's outputs are from a teacher's, ``[B]``, at a temperature."""


class Slopes(NamedTuple):
    """A loss's derivatives in a sample's outputs, flattened to ``[B, O]``.

    ``slope`` is the first one. The Gauss-Newton matrix is diag(``diagonal``) minus the outer
    product of ``ray`` with itself within every one of the ``blocks`` that outputs fall into. There
    the squares of ``ray`` over ``diagonal`` add up to one, or all are zero.
    """

    slope: Tensor
    diagonal: Tensor
    ray: Tensor | None = None
    blocks: int = 1


@dataclass(frozen=True)
class Task:
    """A kind of prediction.

    Attributes:
        name: What settings call it.
        loss: What training lowers.
        slopes: The loss's derivatives in the outputs.
        divergence: For distillation: how far a student is from a teacher.
        known: The measures that can be reported, by name.
        labels: Whether the truth is one class for each sample, so that samples can be divided and
            tested by label.
        kept: What is kept of a test sample's outputs until measures are taken.
        metrics: The names of the measures that are reported; starts are judged by the first.
        scale: Means and standard deviations by which numbers were standardised, to report in the
            user's units.
        expanded: For a loss of one's own, its first and second derivative in the flattened outputs
            of every sample, ``[B, O]`` and ``[B, O, O]``, in place of ``slopes``.
    """

    name: str
    loss: Loss
    slopes: Callable[[Tensor, Tensor], Slopes]
    divergence: Divergence
    known: Mapping[str, Measure]
    labels: bool = False
    kept: Callable[[Tensor, Tensor], Tensor] = lambda outputs, truth: outputs
    metrics: tuple[str, ...] = ()
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    expanded: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    @property
    def counted(self) -> bool:
        """Whether counting the samples that are right is all that is needed."""
        return self.labels and self.metrics in ((), ("accuracy",))

    def measured(self, outputs: Tensor, truth: Tensor) -> dict[str, float]:
        """Return every measure of what was kept of the outputs, in the user's units.

        Where outputs are not finite, a measure has its worst value; not a number where it has none.
        """
        if not bool(torch.isfinite(outputs).all()):
            return {name: JUDGES[name].worst for name in self.metrics}
        found, true = outputs.double().cpu().numpy(), truth.cpu().numpy()
        if self.scale is not None:
            mean, deviation = map(np.array, self.scale)
            found, true = found * deviation + mean, true * deviation + mean
        return {name: self.known[name](found, true) for name in self.metrics}


# --- one class for each sample -------------------------------------------------------------------


def _class_loss(outputs: Tensor, truth: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, truth, reduction="none")


def _class_slopes(outputs: Tensor, truth: Tensor) -> Slopes:
    predicted = functional.softmax(outputs, -1)
    return Slopes(predicted - functional.one_hot(truth, outputs.shape[-1]), predicted, predicted)


def _class_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    wanted = functional.softmax(teacher / temperature, -1)
    log_q = functional.log_softmax(student / temperature, -1)
    divergence: Tensor = (torch.special.xlogy(wanted, wanted) - wanted * log_q).sum(-1)
    return divergence


CLASSES = Task(
    "classes",
    _class_loss,
    _class_slopes,
    _class_divergence,
    {
        "accuracy": measures.accuracy,
        "balanced_accuracy": measures.balanced_accuracy,
        "f1": measures.f1,
        "auc": measures.auc,
    },
    labels=True,
)
BINARY = replace(CLASSES, name="binary")


# --- several labels for each sample --------------------------------------------------------------


def _labels_loss(outputs: Tensor, truth: Tensor) -> Tensor:
    each = functional.binary_cross_entropy_with_logits(outputs, truth, reduction="none")
    return each.flatten(1).mean(1)


def _labels_slopes(outputs: Tensor, truth: Tensor) -> Slopes:
    found, count = torch.sigmoid(outputs), outputs.shape[-1]
    return Slopes((found - truth) / count, found * (1 - found) / count)


def _labels_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    wanted = torch.sigmoid(teacher / temperature)
    crossed = functional.binary_cross_entropy_with_logits(
        student / temperature, wanted, reduction="none"
    )
    own = functional.binary_cross_entropy_with_logits(
        teacher / temperature, wanted, reduction="none"
    )
    return (crossed - own).mean(-1)


MULTILABEL = Task(
    "multilabel",
    _labels_loss,
    _labels_slopes,
    _labels_divergence,
    {
        "f1": measures.label_f1,
        "auc": measures.label_auc,
        "accuracy": measures.label_accuracy,
    },
)


# --- numbers -------------------------------------------------------------------------------------


def _squared_loss(outputs: Tensor, truth: Tensor) -> Tensor:
    return (outputs - truth).square().flatten(1).mean(1)


def _squared_slopes(outputs: Tensor, truth: Tensor) -> Slopes:
    count = outputs.shape[-1]
    return Slopes(2 / count * (outputs - truth), torch.full_like(outputs, 2 / count))


def _squared_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    return (student - teacher).square().flatten(1).mean(1) / temperature**2


REGRESSION = Task(
    "regression",
    _squared_loss,
    _squared_slopes,
    _squared_divergence,
    {"rmse": measures.rmse, "mae": measures.mae, "r2": measures.r2},
)


# --- a token after each token --------------------------------------------------------------------

PADDING = -100
"""The truth of a place that does not count."""


def _token_loss(outputs: Tensor, truth: Tensor) -> Tensor:
    each = functional.cross_entropy(
        outputs.movedim(-1, 1), truth, reduction="none", ignore_index=PADDING
    )
    return each.sum(-1) / _tokens(truth)


def _tokens(truth: Tensor) -> Tensor:
    return (truth != PADDING).sum(-1).clamp_min(1)


def _token_slopes(outputs: Tensor, truth: Tensor) -> Slopes:
    real = (truth != PADDING).unsqueeze(-1) / _tokens(truth)[:, None, None]
    predicted = functional.softmax(outputs, -1)
    hot = functional.one_hot(truth.clamp_min(0), outputs.shape[-1])
    # diag(p) - p p^T, times the share of a token: the ray takes the share's root.
    return Slopes(
        (predicted - hot) * real, predicted * real, predicted * real.sqrt(), outputs.shape[1]
    )


def _token_divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    return _class_divergence(student, teacher, temperature).mean(-1)


def _token_kept(outputs: Tensor, truth: Tensor) -> Tensor:
    """Keep the log probability of the true token, and whether it is the likeliest one."""
    chances = functional.log_softmax(outputs, -1)
    own = chances.gather(-1, truth.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    return torch.stack([own, (outputs.argmax(-1) == truth).to(own)], -1)


TOKENS = Task(
    "tokens",
    _token_loss,
    _token_slopes,
    _token_divergence,
    {"accuracy": measures.token_accuracy, "perplexity": measures.perplexity},
    kept=_token_kept,
)

TASKS: dict[str, Task] = {
    task.name: task for task in (CLASSES, BINARY, MULTILABEL, REGRESSION, TOKENS)
}


LOSSES: dict[str, Loss] = {}
"""Losses of your own, by the names you registered them under."""


def register_loss(name: str, loss: Loss) -> None:
    """Give a loss of your own a name, for the setting ``loss``.

    Args:
        name: What the setting calls it.
        loss: Returns the loss of every sample, ``[B]``, from the outputs ``[B, ...]`` and the truth
            ``[B, ...]``; made of torch's functions, so that it can be differentiated and mapped.
    """
    check_new(name, LOSSES, "loss")
    LOSSES[name] = loss


def register_metric(
    name: str,
    function: Measure,
    tasks: Sequence[str] = tuple(MEASURES),
    *,
    higher: bool = True,
    percent: bool = False,
    title: str = "",
) -> None:
    """Give a measure of your own a name, for the setting ``metrics``.

    Args:
        name: What the setting and records call it.
        function: From outputs and truth of all test samples, arrays of numpy, to a number. Outputs
            of ``tokens`` are (log probability of the true token, whether it is the likeliest).
        tasks: The tasks that have it.
        higher: Whether more is better.
        percent: Whether it lies between 0 and 100.
        title: What tables call it; by default its name.
    """
    check_new(name, JUDGES, "metric")
    JUDGES[name] = Judge(name, title or name, higher, percent)
    for task in tasks:
        MEASURES[task] = (*MEASURES[task], name)
        TASKS[task] = replace(TASKS[task], known={**TASKS[task].known, name: function})


def check_new(name: str, known: Mapping[str, object], what: str) -> None:
    """Raise an error if a name is no name, or taken."""
    if not is_name(name):
        raise EbbflowError(f"{name!r} is no name for a {what}: use letters, digits, - and _")
    if name in known:
        raise EbbflowError(f"there is a {what} called {name!r} already: choose another name")


def with_loss(task: Task, loss: Loss) -> Task:
    """Return a task that lowers another loss; its measures stay.

    The learned start takes derivatives of the loss in the outputs, and what is negative of the
    second one as zero.
    """
    from torch.func import grad, hessian, vmap  # noqa: PLC0415 - slow to import

    def alone(outputs: Tensor, truth: Tensor) -> Tensor:
        return loss(outputs.unsqueeze(0), truth.unsqueeze(0))[0]

    def expanded(outputs: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
        slope = vmap(grad(alone))(outputs, truth).flatten(1)
        size = slope.shape[1]
        curved = vmap(hessian(alone))(outputs, truth).reshape(len(outputs), size, size)
        values, vectors = torch.linalg.eigh(curved)
        return slope, (vectors * values.clamp_min(0).unsqueeze(1)) @ vectors.mT

    return replace(task, loss=loss, labels=False, expanded=expanded)


def expanded_loss(
    task: Task, outputs: Tensor, truth: Tensor, counts: Tensor, jacobian: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of slopes ``[K]`` and of Gauss-Newton matrices ``[K, K]`` in alpha.

    ``jacobian [B, ..., K]`` is the derivative of the outputs in alpha, ``counts [B]`` what each
    sample counts.
    """
    size = jacobian.shape[-1]
    if task.expanded is not None:
        own, curved = task.expanded(outputs, truth)
        flat = jacobian.reshape(len(outputs), -1, size)
        first = torch.einsum("b,bo,bok->k", counts, own, flat)
        return first, torch.einsum("b,bop,bok,bpl->kl", counts, curved, flat, flat)
    slope, diagonal, ray, blocks = task.slopes(outputs, truth)
    along = jacobian.reshape(len(outputs), -1, size)
    first = torch.einsum("b,bo,bok->k", counts, slope.reshape(len(outputs), -1), along)
    diagonal = diagonal.reshape(len(outputs), -1, 1)
    if ray is not None:
        # With u = ray / diagonal, D - r r^T = (1 - u r^T)^T D (1 - u r^T), which cannot be negative
        # by rounding: the difference itself can, where predictions are all but certain.
        along = along.view(len(outputs), blocks, -1, size)
        ray, by_block = ray.reshape(*along.shape[:3], 1), diagonal.view(*along.shape[:3], 1)
        mean = (ray * along).sum(2, keepdim=True)
        along = along - torch.where(by_block > 0, ray / by_block, 0.0) * mean
        along = along.reshape(len(outputs), -1, size)
    return first, torch.einsum("b,bok,bol->kl", counts, diagonal * along, along)
