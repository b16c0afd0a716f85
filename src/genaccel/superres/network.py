"""A UNet for maps of any height and width.

Pixels are folded into channels first (pixel-unshuffle), so that the widest layers work on a quarter of them; a map whose
sides do not divide is reflected to the next multiple and cut again. The same network regresses the mean (t = 0) and
drives the diffusion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import nn

from genaccel.errors import unknown

FOLD = 2


@dataclass(frozen=True)
class Size:
    """Channels at each resolution, from fine to coarse, and residual blocks at each."""

    channels: tuple[int, ...]
    blocks: int


SIZES = {
    "tiny": Size((32, 64, 64), 1),
    "small": Size((64, 128, 192), 2),
    "base": Size((128, 256, 384, 384), 2),
}


def find_size(name: str) -> Size:
    """The preset called ``name``, or a ``UserError`` that lists them."""
    if name not in SIZES:
        raise unknown("size", name, SIZES)
    return SIZES[name]


class ChannelNorm(nn.Module):
    """Every pixel's channels divided by their root mean square, times a gain.

    Norms that average over pixels would make a pixel depend on the whole map, and a tile differ from the map it is of.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6)
        return x * scale * self.gain[:, None, None]


class Block(nn.Module):
    """Normalize, activate, convolve, twice, with a shift and scale by time, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = ChannelNorm(inputs), ChannelNorm(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, 2 * outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        nn.init.zeros_(self.conv2.weight)  # a new block changes nothing yet

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(time)[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        out: torch.Tensor = self.shortcut(x) + self.conv2(F.silu(h))
        return out


class UNet(nn.Module):
    """F(x, t, c) [maps, outputs, height, width]: ``t`` [maps]; ``x`` and ``c`` [maps, any, height, width] are the inputs."""

    def __init__(self, size: Size, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        first, time = size.channels[0], 4 * size.channels[0]
        self.num_levels, self.num_frequencies = len(size.channels), first
        self.time = nn.Sequential(nn.Linear(first, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.first = nn.Conv2d(num_inputs * FOLD**2, first, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        kept, width = [first], first
        for channels in size.channels:
            level = nn.ModuleList()
            for _ in range(size.blocks):
                level.append(Block(width, channels, time))
                kept.append(channels)
                width = channels
            self.down.append(level)
        self.middle = Block(width, width, time)
        for channels in reversed(size.channels):
            level = nn.ModuleList()
            for _ in range(size.blocks):
                level.append(Block(width + kept.pop(), channels, time))
                width = channels
            self.up.append(level)
        self.norm = ChannelNorm(width)
        self.last = nn.Conv2d(width, num_outputs * FOLD**2, 3, padding=1)
        nn.init.zeros_(self.last.weight)
        assert self.last.bias is not None
        nn.init.zeros_(self.last.bias)

    @property
    def multiple(self) -> int:
        """What height and width are reflected to a multiple of."""
        return int(FOLD * 2 ** (self.num_levels - 1))

    def forward(self, x: torch.Tensor, t: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        h = self.first(F.pixel_unshuffle(_reflected(torch.cat([x, c], dim=1), self.multiple), FOLD))
        time = self.time(_frequencies(t, self.num_frequencies))
        kept = []
        for number, level in enumerate(self.down):
            if number:
                h = F.avg_pool2d(h, 2)
            for block in cast(nn.ModuleList, level):
                h = block(h, time)
                kept.append(h)
        h = self.middle(h, time)
        for number, level in enumerate(self.up):
            if number:
                h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            for block in cast(nn.ModuleList, level):
                h = block(torch.cat([h, kept.pop()], dim=1), time)
        out = F.pixel_shuffle(self.last(F.silu(self.norm(h))), FOLD)
        return out[..., :height, :width]


def _frequencies(t: torch.Tensor, number: int) -> torch.Tensor:
    """Sines and cosines of t, [maps, number]."""
    scales = torch.exp(torch.arange(number // 2, device=t.device) * (-math.log(1000.0) / (number // 2)))
    angles = 1000.0 * t[:, None].float() * scales
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(t.dtype)


def _reflected(x: torch.Tensor, multiple: int) -> torch.Tensor:
    """Reflect on the right and below to a multiple; what is too narrow to be reflected is repeated."""
    height, width = x.shape[-2:]
    below, right = -height % multiple, -width % multiple
    if not below and not right:
        return x
    mode = "reflect" if below < height and right < width else "replicate"
    return F.pad(x, (0, right, 0, below), mode=mode)
