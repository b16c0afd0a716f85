"""Work of UNets in closed form, against what others count and torch's counter on genaccel's own networks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from genaccel.predict.unet import decoder_work, unet_work
from genaccel.superres.network import SIZES, UNet
from genaccel.unets import find_unet


def test_stable_diffusion_needs_what_others_count():
    # 0.8 TFLOP a pass of 64 x 64 (401 billion multiplications), 2.5 TFLOP to decode: diffusers' and calflops' figures.
    assert unet_work(find_unet("stable-diffusion-1.5")).flops == pytest.approx(0.803e12, rel=0.01)
    assert decoder_work(64).flops == pytest.approx(2.5e12, rel=0.05)


def test_attention_grows_with_the_fourth_power_of_the_side():
    small, large = (unet_work(find_unet("stable-diffusion-2.1"), side) for side in (64, 128))
    assert large.convolution == 4 * small.convolution
    assert 8 < large.attention / small.attention < 16


@pytest.mark.parametrize("name", list(SIZES))
@pytest.mark.parametrize(("conditions", "outputs"), [(1, 2), (2, 1)])
def test_genaccels_network_as_torch_counts_it(name, conditions, outputs):
    size, pixels = SIZES[name], 64
    with torch.device("meta"):
        network = UNet(size, 1 + conditions, outputs)
        x, c = torch.zeros(1, 1, pixels, pixels), torch.zeros(1, conditions, pixels, pixels)
        with FlopCounterMode(display=False) as counter:
            network(x, torch.zeros(1), c)
    work = unet_work(replace(find_unet(name), inputs=1 + conditions, outputs=outputs), pixels)
    assert work.parameters == sum(p.numel() for p in network.parameters())
    assert work.flops == pytest.approx(counter.get_total_flops())
