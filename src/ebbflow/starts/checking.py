"""Leave out groups of devices whose answers contradict each other.

Honest answers come from one function. Asked twice about a mixture, it has the same loss, which is
not negative; its Gauss-Newton matrix has no negative eigenvalue; and between two mixtures its loss
changes as its derivatives say. With g and h the first and second derivative along the step from a
to b, this is the corrected trapezoidal rule,

    L(b) - L(a) = (g(a) + g(b)) / 2 + (h(a) - h(b)) / 12 + an error of fifth order in the step.

Where models are trained to the end, cross-entropy looks like a hinge on a long step, and that error
is anything. But a convex loss, as softmax regression has, lies above all its tangents, however long
the step: L(b) >= L(a) + g(a). So a group has to break both rules, the second one anywhere, before
it is left out. If most groups break the second one, the loss is that of a network and not convex,
and neither rule says anything about this step.

A device that makes its answers up breaks these rules within a few questions, and the sums of its
group break them too. A device that answers truthfully for wrong data is not found this way, unless
none of its answers is a number while those of other groups are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ebbflow.core.survey import Array, Expansion, Half, LossSums, Panel

Groups = NDArray[np.bool_]
"""Which of the groups, ``[G]``."""

MOST = 0.5
"""The largest part of a change in loss that may disagree with the derivatives."""
TIMES = 3.0
"""How many times the median of all other groups that part must be: a step may just be long."""
ROUNDING = 1e-3
"""Differences up to this part are put down to 32-bit arithmetic."""
CONCAVE = 0.02
"""The part of a curvature that may be negative: each device rounds, and in a direction of its own,
so that a sum of theirs may be several times as wrong as one of them (`mixtures.ROUNDING`)."""

DIGITLESS = float(np.finfo(np.float32).tiny)
"""Curvatures below this have lost their digits in 32-bit arithmetic."""


def from_trusted_groups(panel: Panel, search: Callable[[Panel], Array]) -> tuple[Array, int]:
    """Return what a search finds among the groups that do not contradict themselves.

    The second value is the number of groups that do. A minority of the groups at most is left out:
    if more contradict themselves, it is the rules that do not fit the model. Any number of groups
    may be left out whose answers are no numbers, but not all.
    """
    checked = _CheckedPanel(panel)
    while True:
        try:
            return search(checked), checked.left_out
        except _ContradictionError:
            continue  # from the beginning, without what those groups have said


class _ContradictionError(Exception):
    """Groups have just been left out: what was learnt from their answers is to be forgotten."""


class _CheckedPanel:
    """A panel that leaves groups out once their answers contradict each other.

    The question that shows it raises `_ContradictionError`. What has been asked is not asked again.
    """

    def __init__(self, panel: Panel) -> None:
        self.share, self.noisy = panel.share, panel.noisy
        self._panel = panel
        self._trusted: Groups = np.ones(0, dtype=bool)
        self._sums: dict[tuple[bytes, Half], LossSums] = {}
        self._expansions: dict[tuple[bytes, Half], Expansion] = {}
        self._known: dict[tuple[bytes, Half], Array] = {}
        self._tangents: dict[bytes, tuple[Array, Expansion]] = {}
        self._last: tuple[Array, Expansion] | None = None

    @property
    def left_out(self) -> int:
        """The number of groups that are not trusted."""
        return int((~self._trusted).sum())

    def losses(self, mixtures: Sequence[Array], half: Half) -> LossSums:
        """Return sums of the losses at several mixtures, over each trusted group."""
        key = np.stack(mixtures).tobytes(), half
        if key not in self._sums:
            self._sums[key] = self._panel.losses(mixtures, half)
        weight, loss, products = self._sums[key]
        self._leave_out(np.asarray(~np.isfinite(loss).any(1)), weight, least=0.0)
        wrong = np.asarray((loss < 0).any(1))
        for mixture, said in zip(mixtures, loss.T, strict=True):
            wrong |= self._says_otherwise(mixture, half, said / weight)
        self._leave_out(wrong, weight)
        return LossSums(weight[self._trusted], loss[self._trusted], products)

    def expansion(self, mixture: Array, half: Half) -> Expansion:
        """Return the loss, expanded around a mixture, over each trusted group."""
        key = mixture.tobytes(), half
        if key not in self._expansions:
            self._expansions[key] = self._panel.expansion(mixture, half)
        around = self._expansions[key]
        means = _means(around)
        wrong = (around.loss < 0) | _concave(means.curvature)
        wrong |= self._says_otherwise(mixture, half, means.loss)
        if half == "learn":
            self._tangents[mixture.tobytes()] = mixture, means
            if self._last is not None:
                otherwise = _contradicting(mixture - self._last[0], self._last[1], means)
                if otherwise.any():
                    wrong |= otherwise & self._below_tangents()
            self._last = mixture, means
        self._leave_out(wrong, around.weight)
        return Expansion(*(sums[self._trusted] for sums in around))

    def _says_otherwise(self, mixture: Array, half: Half, loss: Array) -> Groups:
        """Return which groups have said before that a mixture has another loss."""
        before = self._known.setdefault((mixture.tobytes(), half), loss)
        with np.errstate(invalid="ignore"):  # no number differs from itself
            return np.asarray(np.abs(loss - before) > ROUNDING * (np.abs(before) + 1))

    def _below_tangents(self) -> Groups:
        """Return which groups say of some mixture that it is better than one of their tangents.

        Most groups do so only if their loss is not convex; then those count that do so near by,
        among the mixtures of the search itself, or nobody if these are most groups, too.
        """
        tangents = list(self._tangents.values())
        known = self._known.items()
        everywhere = [(np.frombuffer(at), loss) for (at, half), loss in known if half == "learn"]
        for points in (everywhere, [(at, around.loss) for at, around in tangents]):
            found = np.zeros(len(points[0][1]), dtype=bool)
            with np.errstate(invalid="ignore"):  # what is no number is not below
                for at, around in tangents:
                    for mixture, loss in points:
                        tangent = around.loss + around.slope @ (mixture - at)
                        rounding = ROUNDING * (np.abs(around.loss) + np.abs(loss) + 1)
                        found |= loss < tangent - rounding
            if found.sum() <= len(found) / 2:
                return found
        return np.zeros_like(found)

    def _leave_out(self, wrong: Groups, weight: Array, least: float = 0.5) -> None:
        """Leave groups out, if any still trusted is wrong and more than this part remains."""
        if not len(self._trusted):
            self._trusted = np.ones(len(weight), dtype=bool)
        remain = self._trusted & ~wrong
        if remain.sum() < self._trusted.sum() and remain.sum() > least * len(weight):
            self.share *= float(weight[remain].sum() / weight[self._trusted].sum())
            self._trusted, self._last = remain, None
            raise _ContradictionError


def _means(sums: Expansion) -> Expansion:
    """Return the mean loss, slope and curvature of each group."""
    weight, loss, slope, curvature = sums
    each = weight[:, None]
    return Expansion(weight, loss / weight, slope / each, curvature / each[:, :, None])


def _concave(curvature: Array) -> Groups:
    """Return which groups claim that their loss curves downwards somewhere."""
    values = np.linalg.eigvalsh(np.nan_to_num(curvature))
    return np.asarray(values.min(1) < -CONCAVE * np.abs(values).max(1) - DIGITLESS)


def _contradicting(step: Array, here: Expansion, there: Expansion) -> Groups:
    """Return which groups' losses change otherwise than their derivatives say."""
    with np.errstate(invalid="ignore", divide="ignore"):  # no loss at all is divided by nothing
        slopes = np.stack([here.slope @ step, there.slope @ step])
        curved = step @ here.curvature @ step - step @ there.curvature @ step
        change = there.loss - here.loss
        size = np.abs(change) + np.abs(slopes).mean(0)
        rounding = ROUNDING * (np.abs(here.loss) + np.abs(there.loss))
        part = np.abs(change - slopes.mean(0) - curved / 12) / (size + rounding)
    part = np.nan_to_num(part, nan=0.0, posinf=0.0)
    others = [np.median(np.delete(part, g)) if len(part) > 1 else np.inf for g in range(len(part))]
    return np.asarray((part > MOST) & (part > TIMES * np.array(others)))
