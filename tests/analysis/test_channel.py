"""The channel against values worked out by hand, numerical integration and a plain loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad

from ebbflow.analysis import channel
from ebbflow.analysis.channel import (
    Fading,
    Link,
    break_point,
    correlation,
    ergodic_times,
    large_scale,
    mean_rate,
    noise_density,
    path_loss,
    rate,
    ring_distance,
    scaled_exp1,
    slot_times,
    slot_warning,
)
from ebbflow.core.errors import EbbflowError
from ebbflow.core.rng import generator

TAU = 0.5e-3


def generators(count: int, seed: int = 1) -> list[np.random.Generator]:
    return [generator("test-fading", seed, device) for device in range(count)]


# --- large scale ---------------------------------------------------------------------------------


def test_the_break_point_is_where_the_paper_has_it() -> None:
    # 4 x 9 m x 0.5 m x 3.5e9 / 3e8 = 18 x 35 / 3
    assert break_point(3.5e9, 10.0, 1.5, 1.0) == pytest.approx(210.0)


@pytest.mark.parametrize(
    ("distance", "loss"),
    [
        # 32.4 + 20 log10 3.5 = 43.2814, and d_3D^2 = d^2 + 8.5^2 = d^2 + 72.25.
        (10.0, 66.7610),  # d_3D 13.1244, log10 1.118080: 43.2814 + 21 x 1.118080
        (50.0, 79.0896),  # d_3D 50.7174, log10 1.705157: 43.2814 + 21 x 1.705157
        (100.0, 85.3142),  # d_3D 100.3606, log10 2.001563: 43.2814 + 21 x 2.001563
        (210.0, 92.0554),  # d_3D 210.1720, log10 2.322575: 43.2814 + 21 x 2.322575
        # Beyond the break point: 9.5 log10(210^2 + 72.25) = 44.1289.
        (250.0, 95.0801),  # d_3D 250.1445, log10 2.398191: 43.2814 + 40 x 2.398191 - 44.1289
    ],
)
def test_path_loss_by_hand(distance: float, loss: float) -> None:
    assert float(path_loss(distance)) == pytest.approx(loss, abs=1e-3)


def test_path_loss_does_not_jump_at_the_break_point() -> None:
    before, after = path_loss([210.0, 210.0 + 1e-9])
    assert after == pytest.approx(before, abs=1e-6)


@given(st.floats(10, 5000), st.floats(1.0, 100))
def test_path_loss_grows_with_distance_and_frequency(distance: float, more: float) -> None:
    assert float(path_loss(distance + more)) > float(path_loss(distance))
    assert float(path_loss(distance, carrier=2e9)) < float(path_loss(distance, carrier=2.1e9))


def test_positions_have_uniform_density_in_the_ring() -> None:
    uniform = generator("test-positions").random(100_000)
    distance = ring_distance(uniform, 10.0, 250.0)
    assert distance.min() >= 10.0
    assert distance.max() <= 250.0
    # F(d) = (d^2 - d_min^2) / (R^2 - d_min^2)
    for d in (50.0, 100.0, 200.0):
        share = (d**2 - 100) / (250**2 - 100)
        assert (distance <= d).mean() == pytest.approx(share, abs=0.006)


def test_shadowing_is_added_to_the_loss() -> None:
    assert large_scale(80.0, 10.0) == pytest.approx(1e-9)
    np.testing.assert_allclose(large_scale([80.0, 90.0]), [1e-8, 1e-9])


def test_noise_by_hand() -> None:
    # -174 dBm/Hz are -204 dBW/Hz: 10^-20.4 W/Hz
    assert noise_density(-174.0) == pytest.approx(3.98107e-21, rel=1e-5)


# --- small scale ---------------------------------------------------------------------------------


def test_the_correlation_by_hand() -> None:
    # f_d = 10 x 3.5e9 / 3e8 = 116.67 Hz, x = 2 pi f_d tau = 0.366519,
    # J_0(x) = 1 - x^2/4 + x^4/64 - ... = 1 - 0.033584 + 0.000282 - 0.000001
    assert float(correlation(10.0, 3.5e9, TAU)) == pytest.approx(0.966697, abs=1e-6)
    np.testing.assert_allclose(correlation([0.0, 10.0], 3.5e9, TAU), [1.0, 0.966697], atol=1e-6)


def test_a_slot_too_long_for_the_speed_is_told() -> None:
    assert slot_warning([1.0, 10.0], 3.5e9, TAU) is None
    assert slot_warning(0.0, 3.5e9, 1.0) is None
    told = slot_warning([1.0, 30.0], 3.5e9, TAU)
    # T_c = 0.423 / 350 Hz
    assert told is not None
    assert "coherence time of 1.21 ms at 30 m/s: shorten wireless.slot to 0.24 ms" in told


def test_fading_is_rayleigh_and_correlated_as_asked() -> None:
    gains = Fading(generators(200), 0.967).gains(4000)
    assert gains.mean() == pytest.approx(1.0, abs=0.01)
    assert (gains > 1).mean() == pytest.approx(math.exp(-1), abs=0.005)
    assert gains[:, 0].mean() == pytest.approx(1.0, abs=0.25)  # stationary from the first slot
    # |h|^2 of a complex Gaussian process with correlation rho has correlation rho^2.
    centred = gains - 1
    assert (centred[:, 1:] * centred[:, :-1]).mean() == pytest.approx(0.967**2, abs=0.02)


def test_fading_follows_the_recursion() -> None:
    rho = np.array([0.9, 0.5, 0.9, 1.0])
    found = Fading(generators(4), rho).gains(50)
    for device, draw in enumerate(generators(4)):
        noise = draw.standard_normal((50, 2)) @ np.array([1, 1j]) / math.sqrt(2)
        h = noise[0]
        for n in range(50):
            if n:
                h = rho[device] * h + math.sqrt(1 - rho[device] ** 2) * noise[n]
            assert found[device, n] == pytest.approx(abs(h) ** 2)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_how_many_slots_are_asked_for_at_a_time_changes_nothing(parts: list[int]) -> None:
    rho = [0.9, 1.0, 0.99]
    whole = Fading(generators(3), rho).gains(sum(parts))
    pieces = Fading(generators(3), rho)
    np.testing.assert_allclose(np.hstack([pieces.gains(n) for n in parts]), whole, rtol=1e-9)


def test_those_that_are_kept_go_on_as_before() -> None:
    whole = Fading(generators(3), [0.9, 0.8, 0.7]).gains(20)
    some = Fading(generators(3), [0.9, 0.8, 0.7])
    some.gains(5)
    some.keep(np.array([True, False, True]))
    np.testing.assert_allclose(some.gains(15), whole[[0, 2], 5:], rtol=1e-9)


# --- rates ---------------------------------------------------------------------------------------


def test_the_rate_by_hand() -> None:
    # 1 MHz, snr 3, |h|^2 = 1: log2(4) = 2 bit/s/Hz
    assert float(rate(1e6, 3.0, 1.0)) == pytest.approx(2e6)


@pytest.mark.parametrize("decibels", [-60, -30, -20, -10, 0, 10, 20, 40, 60])
def test_the_mean_rate_is_the_integral_of_the_ergodic_capacity(decibels: float) -> None:
    snr = 10 ** (decibels / 10)
    integral, _ = quad(lambda x: math.log2(1 + snr * x) * math.exp(-x), 0, np.inf)
    assert float(mean_rate(1.0, snr)) == pytest.approx(integral, rel=1e-6)


def test_the_mean_rate_of_a_weak_link_is_its_signal_over_the_noise() -> None:
    # log2(1 + snr x) tends to snr x / ln 2, whose mean is snr / ln 2.
    assert float(mean_rate(1.0, 1e-12)) == pytest.approx(1e-12 / math.log(2), rel=1e-9)


def test_the_closed_form_does_not_jump_where_its_series_begins() -> None:
    below, above = scaled_exp1([channel.LARGE, channel.LARGE * (1 + 1e-14)])
    assert above == pytest.approx(below, rel=1e-12)
    assert np.isfinite(scaled_exp1([1e-300, 700.0, 1e300])).all()


@given(st.floats(1e4, 1e9), st.floats(1.01, 10), st.floats(1e-3, 1e12))
def test_the_mean_rate_grows_with_bandwidth(width: float, factor: float, strength: float) -> None:
    # ``strength`` is P psi / N_0, the signal over the noise of one hertz.
    wide = width * factor
    assert float(mean_rate(wide, strength / wide)) >= float(mean_rate(width, strength / width))


# --- times ---------------------------------------------------------------------------------------


def naive_times(
    width: NDArray[np.float64],
    links: list[Link],
    draws: list[np.random.Generator],
    rho: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Go through the slots one by one, as the paper defines the times."""
    found = np.zeros((len(links), len(draws)))
    for k, draw in enumerate(draws):
        left = [float(link.bits[k]) for link in links]
        h, n = 0j, 0
        while any(bits > 0 for bits in left):
            real, imaginary = draw.standard_normal(2)
            noise = complex(real, imaginary) / math.sqrt(2)
            h = noise if n == 0 else rho[k] * h + math.sqrt(1 - rho[k] ** 2) * noise
            n += 1
            for i, link in enumerate(links):
                if left[i] > 0:
                    snr = float(link.snr[k])
                    left[i] -= width[k] * math.log2(1 + snr * abs(h) ** 2) * TAU
                    found[i, k] = n * TAU
    return found


@pytest.mark.parametrize("chunk", [1, 300, 1 << 17])
def test_slot_times_equal_a_loop_over_slots(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CHUNK", chunk)
    draw = generator("test-links", 3)
    count = 7
    width = draw.uniform(0.5e6, 2e6, count)
    down = Link(draw.uniform(1e5, 4e6, count), draw.uniform(10, 1e4, count))
    up = Link(draw.uniform(1e5, 4e6, count), draw.uniform(0.1, 1e3, count))
    down.bits[2] = 0  # nothing to receive
    rho = np.array([0.967, 0.967, 0.5, 0.0, 1.0, 0.999, 0.967])
    found = slot_times(width, [down, up], Fading(generators(count), rho), TAU)
    np.testing.assert_allclose(found, naive_times(width, [down, up], generators(count), rho))
    assert found[0][2] == 0
    assert found[1].max() > 100 * TAU


def test_a_single_slot_is_the_shortest_time() -> None:
    link = Link(np.array([1.0]), np.array([1e3]))
    (found,) = slot_times(1e6, [link], Fading(generators(1), 0.9), TAU)
    assert found.tolist() == [TAU]


def test_a_long_transfer_takes_the_ergodic_time() -> None:
    link = Link(np.full(20, 2e8), np.full(20, 300.0))
    (exact,) = slot_times(1e6, [link], Fading(generators(20), 0.967), TAU)
    np.testing.assert_allclose(exact, ergodic_times(1e6, link), rtol=0.01)


def test_a_transfer_without_end_is_refused() -> None:
    link = Link(np.array([1e12]), np.array([1e-9]))
    with pytest.raises(EbbflowError, match='set it to "ergodic"'):
        slot_times(1e6, [link], Fading(generators(1), 0.9), TAU)
