"""Ensembles: tiles against the whole, flux, masks, units; and a checkpoint that loads as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from genaccel.errors import UserError
from genaccel.superres.maps import Brightness, block_mean, made_map
from genaccel.superres.network import Size, UNet
from genaccel.superres.process import OneGenerator
from genaccel.superres.resolver import LAYOUT, LOG_BOUNDS, Resolver, ResolverInfo, load_resolver, save_resolver
from genaccel.superres.sampling import super_resolve
from genaccel.superres.synthetic import synthetic_dust

LOG = Brightness("log", 1.0, 0.0, 0.6)


def resolver(process="rectified-flow", brightness=LOG, seed=0, noise=0.02):
    torch.manual_seed(seed)
    made = Resolver(ResolverInfo("tiny", process, 4, brightness))
    with torch.no_grad():
        for p in made.parameters():  # as if it were trained: nothing is zero
            p.add_(noise * torch.randn_like(p))
        made.residual_scale.fill_(0.3)
    return made.eval()


@pytest.fixture(scope="module")
def low():
    values, _ = block_mean(synthetic_dust(1, 128)[0].values, 4)
    return made_map("low", values)


@pytest.mark.parametrize("process", ["rectified-flow", "edm", "sr3"])
def test_the_mean_flux_of_every_pixel_is_kept(low, process):
    found = super_resolve(resolver(process), low, 3, 4)
    assert found.members.shape == (3, 128, 128)
    for plane in (*found.members, found.regression):
        np.testing.assert_allclose(block_mean(plane, 4)[0], low.values, rtol=1e-6)
    assert found.deviation.max() > 0
    again = super_resolve(resolver(process), low, 3, 4)
    assert (again.members == found.members).all(), "the same seed, the same draws"


def test_tiles_equal_the_whole_within_their_tolerance():
    """The tolerance that the documentation states: 2 % of the map's spread, for a network that looks 8 pixels far."""
    values, _ = block_mean(synthetic_dust(1, 256)[0].values, 4)
    low, model = made_map("low", values), resolver(noise=0.005)
    whole = super_resolve(model, low, 1, 4, tile=1024, preserve_flux=False)
    tiled = super_resolve(model, low, 1, 4, tile=160, preserve_flux=False)
    difference = np.abs(LOG.forward(tiled.members) - LOG.forward(whole.members))
    assert difference.max() < 0.02 * LOG.forward(whole.members).std()


def test_masked_pixels_stay_masked_and_spoil_nothing_far_away(low):
    values = low.values.copy()
    values[0, 0] = np.nan
    found = super_resolve(resolver(), made_map("holed", values), 1, 4)
    whole = super_resolve(resolver(), low, 1, 4)
    assert np.isnan(found.members[0, :4, :4]).all()
    assert np.isfinite(found.members[0, 4:, 4:]).all()
    np.testing.assert_allclose(found.members[0, 64:, 64:], whole.members[0, 64:, 64:], rtol=0.05)


def test_flux_that_is_not_positive(low):
    negative = made_map("negative", low.values - 1.0)
    with pytest.raises(UserError, match="not positive"):
        super_resolve(resolver(), negative, 1, 4)
    bent = Brightness("asinh", 0.5, 0.0, 1.0)
    found = super_resolve(resolver(brightness=bent), negative, 1, 4)
    np.testing.assert_allclose(block_mean(found.members[0], 4)[0], negative.values, atol=1e-6)


def test_a_constant_map_stays_constant_where_nothing_was_learned():
    """A new network adds nothing to the regression, and flux is kept: only the process could add structure."""
    made = Resolver(ResolverInfo("tiny", "rectified-flow", 4, LOG)).eval()
    flat = made_map("flat", np.full((8, 8), 2.5))
    found = super_resolve(made, flat, 1, 4)
    np.testing.assert_allclose(found.regression, 2.5, rtol=1e-5)


def test_a_new_models_scale_is_the_global_one_and_what_it_learns_is_bounded(low):
    made = Resolver(ResolverInfo("tiny", "rectified-flow", 4, LOG))
    made.residual_scale.fill_(0.3)
    large = made.enlarge(torch.from_numpy(LOG.forward(low.values)).float()[None, None])
    assert (made.regress(large)[1] == made.residual_scale).all()
    for bias, bound in zip((-50.0, 50.0), LOG_BOUNDS, strict=True):
        with torch.no_grad():
            made.regression.last.bias.fill_(bias)
        torch.testing.assert_close(made.regress(large)[1], torch.full_like(large, 0.3 * math.exp(bound)))


class OnlyZero:
    """A process without a loss."""

    def loss(self, network, x, c, noise):
        return x.new_zeros(len(x))


def test_the_scale_learns_where_the_residual_is_large():
    """A residual of 0.25 on dark maps and 1 on bright ones: the likelihood's best scale is its size on each."""
    torch.manual_seed(0)
    made = Resolver(ResolverInfo("tiny", "rectified-flow", 2, LOG))
    made.process, made.regression = OnlyZero(), UNet(Size((8, 8), 1), 2, 2)
    low = torch.tensor([-1.0, 1.0]).reshape(2, 1, 1, 1).expand(-1, -1, 4, 4)
    sizes = torch.tensor([0.25, 1.0]).reshape(2, 1, 1, 1)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(made.regression.parameters(), 1e-2)
    for _ in range(150):
        high = made.enlarge(low) + sizes * torch.randn(2, 1, 8, 8, generator=generator)
        optimizer.zero_grad()
        made(low, high, OneGenerator(generator)).sum().backward()
        optimizer.step()
    found = made.regress(made.enlarge(low))[1]
    torch.testing.assert_close(found.mean(dim=(1, 2, 3)), sizes.flatten(), rtol=0.2, atol=0)


@pytest.mark.parametrize("shape", [(5, 9), (16, 8), (2, 2)])
def test_odd_and_oblong_maps(shape):
    values = np.exp(np.random.default_rng(0).standard_normal(shape))
    found = super_resolve(resolver(), made_map("m", values), 1, 2)
    assert found.mean.shape == (4 * shape[0], 4 * shape[1])
    assert np.isfinite(found.mean).all()


def test_a_saved_model_draws_the_same(tmp_path, low):
    made = resolver()
    save_resolver(tmp_path / "model", made)
    loaded = load_resolver(tmp_path / "model")
    assert loaded.info == made.info
    assert (super_resolve(loaded, low, 1, 4).members == super_resolve(made, low, 1, 4).members).all()
    info = tmp_path / "model" / "superres.json"
    info.write_text(info.read_text().replace(f'"schema_version": {LAYOUT}', '"schema_version": 1'))
    with pytest.raises(UserError, match=f"are of layout 1, and this version has {LAYOUT}"):
        load_resolver(tmp_path / "model")
    info.write_text("{}")
    with pytest.raises(UserError):
        load_resolver(tmp_path / "model")
    with pytest.raises(UserError, match="no super-resolution model"):
        load_resolver(tmp_path)
