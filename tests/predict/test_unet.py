"""UNets in closed form, against parameter counts of the published networks and torch's counter on genaccel's own."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from genaccel.predict.published_models import SD1, SD2, SDXL
from genaccel.predict.superresolving import PRESETS
from genaccel.predict.unet import decoder_work, plain_unet_work, unet_work
from genaccel.superres.network import SIZES, UNet


@pytest.mark.parametrize(
    ("network", "millions", "tolerance"), [(SD1, 859.5, 0.001), (SD2, 865.9, 0.001), (SDXL, 2567.5, 0.004)]
)
def test_parameters_of_the_published_networks(network, millions, tolerance):
    assert unet_work(network).parameters / 1e6 == pytest.approx(millions, rel=tolerance)


def test_stable_diffusion_needs_what_others_count():
    # 0.8 TFLOP a pass of 64 x 64 (401 billion multiplications), 2.5 TFLOP to decode: diffusers' and calflops' figures.
    assert unet_work(SD1).flops == pytest.approx(0.803e12, rel=0.01)
    assert decoder_work(64).flops == pytest.approx(2.5e12, rel=0.05)


def test_attention_grows_with_the_fourth_power_of_the_side():
    small, large = unet_work(SD2, 64), unet_work(SD2, 128)
    assert large.convolution == 4 * small.convolution
    assert 8 < large.attention / small.attention < 16


@pytest.mark.parametrize("name", list(SIZES))
@pytest.mark.parametrize(("conditions", "outputs"), [(1, 2), (2, 1)])
def test_genaccels_network_as_torch_counts_it(name, conditions, outputs):
    size, pixels = SIZES[name], 64
    assert PRESETS[name] == (size.channels, size.blocks)
    with torch.device("meta"):
        network = UNet(size, 1 + conditions, outputs)
        x, c = torch.zeros(1, 1, pixels, pixels), torch.zeros(1, conditions, pixels, pixels)
        with FlopCounterMode(display=False) as counter:
            network(x, torch.zeros(1), c)
    work = plain_unet_work(size.channels, size.blocks, pixels, 1 + conditions, outputs)
    assert work.parameters == sum(p.numel() for p in network.parameters())
    assert work.flops == pytest.approx(counter.get_total_flops())
