"""Gains by wavenumber: powers of white noise, filters that do nothing or what they say, and draws set right."""

from __future__ import annotations

import pytest
import torch

from genaccel.superres.calibration import BOUNDS, NUM_RINGS, calibrate, filtered, gains_of, ring_powers


def white(number, side=64, seed=0):
    return torch.randn(number, 1, side, side, generator=torch.Generator().manual_seed(seed))


def test_white_noise_has_the_same_power_in_every_ring():
    powers = ring_powers(white(64))
    assert powers.shape == (NUM_RINGS,)
    assert (powers / powers.mean() - 1).abs().max() < 0.1


def test_gains_of_one_change_nothing_and_others_no_shape():
    maps = white(2, side=5)  # smaller than the filter
    torch.testing.assert_close(filtered(maps, torch.ones(NUM_RINGS)), maps)
    constant = torch.full((1, 1, 20, 30), 2.0)
    out = filtered(constant, torch.linspace(1.0, 1.5, NUM_RINGS))
    torch.testing.assert_close(out, out[..., :1, :1].expand_as(out))


def test_a_filter_has_its_gains():
    gains = torch.tensor([1.0, 1.0, 1.05, 1.1, 1.15, 1.2, 1.2, 1.2])
    maps = white(64)
    found = (ring_powers(filtered(maps, gains)) / ring_powers(maps)).sqrt()
    torch.testing.assert_close(found, gains, atol=0.03, rtol=0)
    torch.testing.assert_close(gains_of(maps, filtered(maps, gains)), found)
    assert gains_of(maps, 100 * maps).eq(BOUNDS[1]).all()


def test_rings_that_small_maps_do_not_have_are_left_alone():
    gains = gains_of(white(64, side=8), 1.5 * white(64, side=8))
    assert set(gains.round(decimals=3).tolist()) == {1.0, 1.5}


class WeakAtSmallScales:
    """A resolver without a network: what it draws is noise as it should be, but for the amplitude of its small scales."""

    scale = 0.25

    def __init__(self):
        self.gains, self.wrong = torch.ones(NUM_RINGS), torch.tensor([1.0] * 3 + [0.95] + [0.85] * 4)

    def enlarge(self, low):
        return torch.nn.functional.interpolate(low, scale_factor=4.0)

    def draw_residual(self, large, noise, num_steps):
        return filtered(noise, self.wrong), large, torch.full_like(large, self.scale)


def test_draws_that_are_weak_at_small_scales_are_set_right():
    resolver, low = WeakAtSmallScales(), torch.full((48, 1, 16, 16), 3.0)
    truth = 3.0 + resolver.scale * white(48, seed=1)
    calibrate(resolver, low, truth, seed=2, num_steps=4)
    x, _, _ = resolver.draw_residual(resolver.enlarge(low), white(48, seed=3), 4)
    assert (ring_powers(filtered(x, resolver.gains)) / ring_powers(white(48, seed=4)) - 1).abs().max() < 0.1
    before = resolver.gains.clone()
    calibrate(resolver, low, truth, seed=2, num_steps=4)  # again: from the start, not on top
    assert resolver.gains.tolist() == pytest.approx(before.tolist())
