"""UNets: parameter counts equal the published ones, and those of genaccel's own networks built without memory."""

from __future__ import annotations

import pytest
import torch

from genaccel.superres.network import SIZES, UNet
from genaccel.unets import unet_shapes


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Totals of the checkpoints on the hub.
        ("stable-diffusion-1.5", 859_520_964),
        ("stable-diffusion-2.1", 865_910_724),
        ("sdxl", 2_567_463_684),
    ],
)
def test_published_parameter_counts(name, parameters):
    assert unet_shapes()[name].num_parameters == parameters


@pytest.mark.parametrize("preset", sorted(SIZES))
def test_the_presets_of_super_resolution_are_in_the_catalogue(preset):
    shape = unet_shapes()[f"superres-{preset}"]
    assert (shape.channels, shape.blocks) == (SIZES[preset].channels, SIZES[preset].blocks)
    with torch.device("meta"):
        network = UNet(SIZES[preset], shape.inputs, shape.outputs)
    assert shape.num_parameters == sum(p.numel() for p in network.parameters())
