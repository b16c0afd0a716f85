"""The UNet: any size of map, gradients everywhere, and a new one that changes nothing."""

from __future__ import annotations

import pytest
import torch

from genaccel.errors import UserError
from genaccel.superres.network import SIZES, Size, UNet, find_size

SMALL = Size((8, 16, 16), 1)


@pytest.mark.parametrize("shape", [(64, 64), (28, 28), (17, 33), (1, 2), (7, 100), (3, 3)])
def test_any_height_and_width(shape):
    network = UNet(SMALL, 3, 1)
    x, c = torch.randn(2, 1, *shape), torch.randn(2, 2, *shape)
    assert network(x, torch.rand(2), c).shape == x.shape


def test_a_new_network_gives_zero_and_every_weight_learns():
    torch.manual_seed(0)
    network = UNet(SMALL, 2, 1)
    x, t = torch.randn(2, 1, 16, 16), torch.rand(2)
    assert network(x, t, x).abs().max() == 0
    optimizer = torch.optim.SGD(network.parameters(), 0.5)
    for _ in range(3):  # zeros at the end of blocks hold back what is before them for a step each
        optimizer.zero_grad()
        (network(x, t, x) - x).square().mean().backward()
        optimizer.step()
    dead = [name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    assert dead == []


def test_time_matters():
    torch.manual_seed(0)
    network = UNet(SMALL, 2, 1)
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn_like(p))
    x = torch.randn(1, 1, 16, 16)
    early, late = (network(x, torch.tensor([t]), x) for t in (0.1, 0.9))
    assert (early - late).abs().max() > 1e-3


def test_sizes_grow():
    counts = [sum(p.numel() for p in UNet(SIZES[name], 2, 1).parameters()) for name in ("tiny", "small", "base")]
    assert counts == sorted(counts)
    assert counts[0] < 1_500_000
    with pytest.raises(UserError):
        find_size("huge")
