"""Past models that cannot have been trained here, and a panel asked about part of its basis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ebbflow.core.types import ModelState, PastSession
from ebbflow.starts.learned import learned
from ebbflow.starts.strangers import PartOfBasis, explained, without_strangers
from tests.starts.panels import CurvePanel, quadratic
from tests.starts.test_learned import NOTHING, situation, vector


def related(seed: int) -> ModelState:
    """Return a model that has half of itself in common with others, as trained ones have."""
    return ModelState(vector(seed) + vector(0), NOTHING)


OWN = [related(seed) for seed in (1, 2, 3)]
_SPAN = torch.linalg.qr(torch.stack([model.theta for model in OWN]).T)[0]
STRANGER = ModelState(vector(77) - _SPAN @ (_SPAN.T @ vector(77)), NOTHING)


def poisoned(*, target: Tensor) -> tuple[object, list[str], tuple[str, ...]]:
    """Return what is chosen where the past session with the same devices is a stranger."""
    honest = PastSession(2, related(102), None, related(202), (7, 8))
    poison = PastSession(3, STRANGER, None, related(203), (0, 1))
    here = situation(honest, poison, devices=(0, 1), target=target)
    carried, initial, pilot = OWN
    point = learned().choose(replace(here, carried=carried, initial=initial, pilot=pilot))
    used = [name for name, weight in point.mixture.items() if weight]
    return point.model.theta, used, point.warnings


def test_a_model_that_was_not_trained_here_is_left_out_with_a_word() -> None:
    """Though it would help a little: the target lies some way in its direction."""
    _, used, warnings = poisoned(target=related(1).theta + 0.1 * STRANGER.theta)
    assert used and "final 3" not in used
    (warning,) = warnings
    assert warning.startswith("final 3 ")


def test_a_model_that_the_devices_like_is_no_stranger() -> None:
    """Whatever it has in common with others: a task of its own may look like that."""
    theta, used, warnings = poisoned(target=STRANGER.theta)
    assert isinstance(theta, Tensor) and torch.equal(theta, STRANGER.theta)
    assert (used, warnings) == (["final 3"], ())


def test_devices_are_asked_only_about_models_that_are_unlike_the_servers() -> None:
    panel = CurvePanel([quadratic(1.0, np.zeros(3), np.eye(3))])
    assert without_strangers(panel, [*OWN, related(5)], OWN, 1) == [0, 1, 2, 3]
    assert without_strangers(panel, [*OWN, STRANGER], OWN, None) == [0, 1, 2, 3]
    assert panel.compared == []


# Not weights so small that a model's entries lose their digits.
@given(
    st.lists(st.floats(-3, 3).filter(lambda w: not 0 < abs(w) < 1e-9), min_size=3, max_size=3),
    st.floats(0.01, 100),
)
def test_a_mixture_of_the_own_models_is_explained(weights: list[float], scale: float) -> None:
    own = [model.theta for model in OWN]
    theta = torch.stack(own).T @ torch.tensor(weights) * scale
    assert explained(theta, own) == pytest.approx(1, abs=1e-3)


def test_what_is_orthogonal_is_not_explained_and_length_does_not_matter() -> None:
    own = [torch.tensor([1.0, 0, 0]), torch.tensor([1.0, 1, 0]), torch.zeros(3)]
    for length in (1e-6, 1.0, 1e6):
        assert explained(torch.tensor([0.0, 0, length]), own) == 0
        assert explained(torch.tensor([0.0, length, length]), own) == pytest.approx(0.5)
    assert explained(torch.zeros(3), own) == 1


def test_models_that_diverged_are_compared_all_the_same() -> None:
    small, huge = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([3e37, -1e38, 2e38])
    assert explained(small, [huge, small]) == pytest.approx(1)
    assert explained(huge, [huge, small]) == pytest.approx(1)
    assert explained(torch.tensor([torch.inf, 0, 0]), [small]) == 0
    assert explained(small, [torch.full((3,), torch.nan), torch.zeros(3)]) == 0


def test_a_part_of_a_basis_is_asked_about_as_the_whole_with_weights_of_zero() -> None:
    draw = np.random.default_rng(1)
    root = draw.normal(size=(4, 4))
    panel = CurvePanel([quadratic(2.0, draw.normal(size=4), root @ root.T)])
    kept = [0, 1, 3]
    part = PartOfBasis(panel, kept, 4)
    mixture = np.array([0.5, 0.7, -0.2])
    whole = part.whole(mixture)
    assert whole.tolist() == [0.5, 0.7, 0.0, -0.2]
    around, everything = part.expansion(mixture, "learn"), panel.expansion(whole, "learn")
    assert np.array_equal(around.slope, everything.slope[:, kept])
    assert np.array_equal(around.curvature[0], everything.curvature[0][np.ix_(kept, kept)])
    losses = part.losses([mixture], "judge")
    assert np.array_equal(losses.loss, panel.losses([whole], "judge").loss)
