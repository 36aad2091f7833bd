"""Client-level privacy: what leaves the server, and what it costs."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from ebbflow import experiment
from ebbflow.analysis.privacy import Asked, epsilon, privacy_spent
from ebbflow.core.algorithm import Upload
from ebbflow.core.errors import EbbflowError
from ebbflow.core.survey import SurveyPlan
from ebbflow.core.types import Dataset, Examples
from ebbflow.simulation.building import build_world
from ebbflow.simulation.privacy import PrivatePanel, private_total
from ebbflow.simulation.surveys import SimulatedPanel
from ebbflow.simulation.world import World, draw_round
from tests.callbacks import StopAfter, Stopped
from tests.configs import with_keys
from tests.test_cli import ebbflow

SMALL: dict[str, Any] = {
    "methods": ["learned", "warm_start", "previous"],
    "seeds": [1],
    "sessions": 4,
    "rounds": 3,
    "partition.devices": 8,
    "data.limit_train": 400,
    "privacy.clip": 0.5,
}


def world_of(**keys: Any) -> World:
    config = with_keys(SMALL, keys)
    return build_world(config, experiment.prepared(config, None), 1)


def uploads(moved: torch.Tensor, samples: float = 5.0) -> list[Upload]:
    one, count = torch.tensor(1.0), torch.tensor(samples)
    none = torch.zeros(0)
    return [Upload(count * row, none, count, one, {"c": count * row}) for row in moved]


def mean_of(world: World, moved: torch.Tensor) -> torch.Tensor:
    cohort = draw_round(world, world.sessions[0], 1)
    total = private_total(world, cohort, uploads(moved))
    assert float(total.samples) == sum(cohort.samples)
    return torch.cat([total.delta, *total.extras.values()]) / total.samples


def test_without_noise_it_is_the_mean_of_clipped_messages_over_all_that_were_asked() -> None:
    world = world_of(**{"privacy.noise": 0.0})
    moved = torch.tensor([[0.1, 0.0], [30.0, 40.0]])
    message = torch.cat([moved, moved], 1)  # what an algorithm sends besides counts, too
    short = 0.5 * message[1] / message[1].norm()
    torch.testing.assert_close(mean_of(world, moved), (message[0] + short) / 8)


def test_one_device_moves_the_mean_by_no_more_than_twice_the_clip() -> None:
    world = world_of()
    moved = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    usual = mean_of(world, moved)
    for other in (torch.full((3,), 1e20), torch.full((3,), -1e-20), torch.full((3,), torch.nan)):
        changed = mean_of(world, torch.cat([moved[:-1], other[None]]))
        assert float((changed - usual).norm()) <= 2 * 0.5 / 8 + 1e-6


def test_the_noise_is_as_strong_as_it_should_be_and_drawn_by_name() -> None:
    world = world_of(**{"privacy.noise": 3.0})
    silent = torch.zeros(8, 40_000)
    noise = mean_of(world, silent) * 8
    assert float(noise.std()) == pytest.approx(3.0 * 0.5, rel=0.02)
    assert stats.kstest(noise[:5000].numpy() / 1.5, "norm").pvalue > 1e-4
    assert torch.equal(noise, mean_of(world_of(**{"privacy.noise": 3.0}), silent) * 8)
    later = private_total(world, draw_round(world, world.sessions[0], 2), uploads(silent))
    assert not torch.equal(later.delta, noise[:40_000])


# --- the account ---------------------------------------------------------------------------------


def exact_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a Gaussian mechanism of sensitivity mu (Balle and Wang, 2018)."""

    def excess(eps: float) -> float:
        first, second = stats.norm.cdf(mu / 2 - eps / mu), stats.norm.logcdf(-mu / 2 - eps / mu)
        return float(first - math.exp(eps + second) - delta)

    return float(optimize.brentq(excess, 0.0, 1e4))


@pytest.mark.parametrize("rounds", [1, 10, 100])
@pytest.mark.parametrize("noise", [1.0, 4.0, 20.0])
def test_epsilon_is_close_above_the_exact_one_where_everybody_takes_part(
    rounds: int, noise: float
) -> None:
    ours = epsilon(Counter({Asked(10, 10, 1): rounds}), noise, 1e-5)
    exact = exact_epsilon(math.sqrt(rounds) * 2 / noise, 1e-5)
    assert exact <= ours <= 1.25 * exact + 0.1
    # Several questions to the same devices are as many rounds of all.
    assert epsilon(Counter({Asked(10, 10, rounds): 1}), noise, 1e-5) == pytest.approx(ours)


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_with_fewer_devices_drawn() -> None:
    def of(drawn: int, rounds: int, noise: float) -> float:
        return epsilon(Counter({Asked(drawn, 1000, 1): rounds}), noise, 1e-5)

    assert of(50, 10, 8.0) < of(50, 100, 8.0) < of(1000, 100, 8.0)
    assert of(50, 100, 16.0) < of(50, 100, 8.0)
    assert epsilon(Counter({Asked(1, 2, 1): 1}), 0.0, 1e-5) == math.inf


def test_probes_and_questions_are_charged(tmp_path: Path) -> None:
    config = with_keys(SMALL, {"privacy.noise": 8.0})
    experiment.run(config, tmp_path / "run")
    spent, delta = privacy_spent(tmp_path / "run")
    assert delta == 1e-5
    by_method = {each.method: each for each in spent}
    previous, warm = by_method["previous"], by_method["warm_start"]
    # Sessions 1 and 3 have the same devices, as have 2 and 4: two sessions of three rounds each.
    plain = epsilon(Counter({Asked(8, 8, 1): 6}), 8.0, 1e-5)
    assert previous.epsilons == pytest.approx((plain,) * 16)
    assert len(previous.devices) == 16
    probed = epsilon(Counter({Asked(8, 8, 1): 8}), 8.0, 1e-5)
    assert warm.most == pytest.approx(probed)
    assert warm.most > plain
    assert by_method["learned"].most > plain
    told = ebbflow("privacy", str(tmp_path / "run"), "--delta", "1e-3")
    assert told.code == 0 and "delta = 0.001" in told.out
    assert '"epsilon"' in ebbflow("privacy", str(tmp_path / "run"), "--json").out
    assert ebbflow("privacy", str(tmp_path / "run"), "--delta", "2").code == 2


def test_a_run_without_privacy_has_none_to_tell(tmp_path: Path) -> None:
    config = with_keys({k: v for k, v in SMALL.items() if k != "privacy.clip"}, {})
    experiment.run(config, tmp_path / "run")
    with pytest.raises(EbbflowError, match=r"privacy\.clip"):
        privacy_spent(tmp_path / "run")


# --- surveys -------------------------------------------------------------------------------------


def test_without_noise_and_clip_a_survey_gives_means_over_devices() -> None:
    world = world_of(**{"privacy.noise": 0.0, "privacy.answers": 1e9})
    session = world.sessions[0]
    other = world.initial._replace(theta=world.initial.theta + 0.1)
    plan = SurveyPlan(devices=8, samples=8, groups=3, balance=0.5)
    private = PrivatePanel(world, session, [world.initial, other], plan)
    alone = plan._replace(groups=8, least=1, balance=0.0)
    single = SimulatedPanel(world, session, [world.initial, other], alone)
    mixtures = [np.array([1.0, 0.0]), np.array([0.3, 0.7])]
    found, expected = private.losses(mixtures, "judge"), single.losses(mixtures, "judge")
    assert found.weight.tolist() == [3, 3, 2]
    means = (expected.loss / expected.weight[:, None]).mean(0)
    np.testing.assert_allclose(found.means, means)
    at, of_single = private.expansion(mixtures[1], "learn"), single.expansion(mixtures[1], "learn")
    for ours, theirs in zip(at[1:], of_single[1:], strict=True):
        weights = of_single.weight.reshape(-1, *[1] * (theirs.ndim - 1))
        np.testing.assert_allclose(ours.sum(0) / 8, (theirs / weights).mean(0))


def test_answers_are_clipped_and_get_noise() -> None:
    def sums(**keys: Any) -> np.ndarray[Any, Any]:
        world = world_of(**keys)
        plan = SurveyPlan(devices=8, samples=8, groups=1)
        panel = PrivatePanel(world, world.sessions[0], [world.initial], plan)
        return panel.losses([np.array([1.0])] * 3, "judge").loss

    clipped = sums(**{"privacy.noise": 0.0, "privacy.answers": 0.1})
    assert float(np.linalg.norm(clipped)) == pytest.approx(8 * 0.1)
    noised = sums(**{"privacy.noise": 2.0, "privacy.answers": 0.1})
    assert not np.allclose(clipped, noised)


# --- runs ----------------------------------------------------------------------------------------


def test_a_private_run_is_resumed_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    config = with_keys(SMALL, {"checkpoint.seconds": 1e-9, "algorithm": ["fedavg", "scaffold"]})
    whole = experiment.run(config)
    with pytest.raises(Stopped):
        experiment.run(config, tmp_path / "run", callbacks=[StopAfter(7)])
    assert experiment.resume(tmp_path / "run").rounds == whole.rounds


def test_devices_that_diverge_count_as_zero() -> None:
    keys = {"faults.nan.devices": [0, 1, 2, 3, 4, 5], "methods": ["previous"]}
    world = world_of(**keys)
    with closing(experiment.engine_of(world)):
        outcome = experiment.run(world.config)
    refused = [e for e in outcome.events if e["event"] == "left_out"]
    assert refused and not any(e["abandoned"] for e in refused)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aggregation.rule", "median"),
        ("guard.norm", 3.0),
        ("guard.not_finite", "stop"),
        ("participation.weighting", "weighted"),
    ],
)
def test_what_nobody_could_account_for_is_refused(key: str, value: Any) -> None:
    with pytest.raises(EbbflowError, match=key.replace(".", r"\.")):
        with_keys(SMALL, {key: value})


def test_a_model_with_running_statistics_is_refused() -> None:
    config = with_keys(SMALL, {"model.kind": "resnet18"})
    pictures = Examples(torch.rand(400, 3, 8, 8), torch.arange(400) % 10)
    with pytest.raises(EbbflowError, match=r"running statistics"):
        experiment.prepared(config, Dataset("pictures", pictures, pictures, 10))


def test_where_noise_drowns_the_answers_the_learned_start_goes_on() -> None:
    keys = {"privacy.noise": 1.0, "partition.devices": 20, "methods": ["learned", "previous"]}
    records = experiment.run(with_keys(SMALL, keys))
    starts = [e for e in records.events if e["event"] == "start" and e["method"] == "learned"]
    mixtures = [e["mixture"] for e in starts if "mixture" in e]
    assert len(mixtures) >= 2
    assert all(mixture["carried"] == 1.0 for mixture in mixtures)
    assert [e for e in records.events if e["event"] == "warning"] == []
