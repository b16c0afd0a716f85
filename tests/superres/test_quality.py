"""Quality by closed forms and second implementations."""

from __future__ import annotations

import numpy as np
import pytest

from genaccel.superres import quality
from genaccel.superres.synthetic import gaussian_field

GENERATOR = np.random.default_rng(0)
TRUTH = gaussian_field((64, 64), np.random.default_rng(1))


def test_perfect_maps_score_perfectly():
    assert quality.psnr(TRUTH, TRUTH) == float("inf")
    assert quality.ssim(TRUTH, TRUTH) == pytest.approx(1)
    assert quality.crps(TRUTH[None], TRUTH) == 0
    assert quality.wasserstein(TRUTH, TRUTH) == 0
    assert quality.gradient_ratio(TRUTH, TRUTH) == 1


def test_psnr_by_hand():
    truth = np.array([[0.0, 4.0], [2.0, 2.0]])
    assert quality.psnr(truth + 1, truth) == pytest.approx(10 * np.log10(16))


def test_the_spectrum_of_white_noise_is_flat_at_its_variance():
    k, power = quality.power_spectrum(3 * np.random.default_rng(2).standard_normal((128, 128)))
    assert power.mean() == pytest.approx(9, rel=0.05)
    assert np.abs(power[5:] / 9 - 1).max() < 0.3
    assert (np.diff(k) > 0).all()


def test_a_wave_has_its_power_at_its_wavenumber():
    x = np.arange(64)
    wave = np.tile(np.sin(2 * np.pi * 0.25 * x), (64, 1))
    k, power = quality.power_spectrum(wave)
    assert k[power.argmax()] == pytest.approx(0.25, abs=0.02)


def test_mean_power_over_mean_power_is_right_where_the_mean_of_ratios_is_not():
    """Draws that are as good as can be: each is like its truth, whose size nobody can tell from what is seen."""
    generator = np.random.default_rng(5)

    def powers() -> np.ndarray:
        sizes = np.exp(0.3 * generator.standard_normal(500))
        fields = (size * generator.standard_normal((16, 16)) for size in sizes)
        return np.array([quality.band_power(field, 0.25, 0.5) for field in fields])

    draws, truths = powers(), powers()
    assert draws.sum() / truths.sum() == pytest.approx(1, abs=0.1)
    assert (draws / truths).mean() > 1.3


def test_blur_loses_power_and_gradients_but_not_psnr():
    from scipy.ndimage import gaussian_filter

    noisy = TRUTH + 0.3 * np.random.default_rng(3).standard_normal(TRUTH.shape)
    blurred = gaussian_filter(noisy, 1.5)
    assert quality.psnr(blurred, noisy) > 15
    assert quality.band_power(blurred, 0.25, 0.5) < 0.1 * quality.band_power(noisy, 0.25, 0.5)
    assert quality.gradient_ratio(blurred, noisy) < 0.5


def test_crps_equals_the_mean_over_all_pairs():
    members, truth = GENERATOR.standard_normal((5, 6, 7)), GENERATOR.standard_normal((6, 7))
    pairs = np.mean([np.abs(a - b).mean() for i, a in enumerate(members) for j, b in enumerate(members) if i != j])
    expected = np.abs(members - truth).mean() - pairs / 2
    assert quality.crps(members, truth) == pytest.approx(expected)


def test_crps_of_a_normal_ensemble_is_the_known_integral():
    """For a forecast N(0, 1) and a truth from it the expectation is 1 / sqrt(pi)."""
    members = np.random.default_rng(4).standard_normal((20, 200, 200))
    truth = np.random.default_rng(5).standard_normal((200, 200))
    assert quality.crps(members, truth) == pytest.approx(1 / np.sqrt(np.pi), rel=0.02)
    assert quality.spread_skill(members, truth) == pytest.approx(1, rel=0.02)
    assert quality.spread_skill(0.5 * members, truth) < 0.6


def test_bicubic_keeps_constants_and_lines():
    assert quality.bicubic(np.full((5, 7), 3.0), 4) == pytest.approx(3.0)
    line = np.tile(np.arange(40.0), (6, 1))
    inner = quality.bicubic(line, 2)[3, 30:50]
    np.testing.assert_allclose(np.diff(inner), 0.5, atol=1e-3)
