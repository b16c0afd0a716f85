"""The shape of a diffusion UNet: what its arithmetic and memory follow from, without its weights.

Two families: latent diffusion (Rombach et al. 2022, and its successors), with transformers on the pixels of some levels,
which read text; and genaccel's own super-resolution networks, of residual blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from genaccel.hardware import read_catalogue


@dataclass(frozen=True)
class UNetShape:
    """Sizes of a UNet. ``channels`` and ``depths`` are by level, from fine to coarse.

    ``blocks`` residual blocks a level on the way down; of latent diffusion, each is followed by a transformer of as many
    blocks as the level's depth (0: none), and the way up has one more. ``text_width`` is that of the text that
    transformers read, ``added_width`` that of further conditions beside the time. ``fold``: pixels along a side that are
    folded into channels first. ``size``: pixels along a side of what it was trained on.
    """

    name: str
    family: Literal["latent-diffusion", "superres"]
    source: str
    inputs: int
    outputs: int
    channels: tuple[int, ...]
    blocks: int
    size: int
    depths: tuple[int, ...] = ()
    middle_depth: int = 0
    text_width: int = 0
    added_width: int = 0
    fold: int = 1
    hub_ids: tuple[str, ...] = ()

    @property
    def num_parameters(self) -> int:
        """All parameters, of convolutions, linear layers and norms."""
        return sum(_latent(self) if self.family == "latent-diffusion" else _superres(self))


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _conv(inputs: int, outputs: int, side: int = 3) -> int:
    return side**2 * inputs * outputs + outputs


def _residual(inputs: int, outputs: int, time: int) -> int:
    """Two group norms and convolutions, the time in between, and a shortcut where the width changes."""
    shortcut = _conv(inputs, outputs, 1) if inputs != outputs else 0
    return (
        2 * inputs + _conv(inputs, outputs) + _linear(time, outputs) + 2 * outputs + _conv(outputs, outputs) + shortcut
    )


def _transformer(width: int, depth: int, text: int) -> int:
    """A group norm, a way in and out, and blocks of attention to pixels, attention to text, and a gated MLP."""
    if depth == 0:
        return 0
    own = 3 * _linear(width, width, bias=False) + _linear(width, width)
    read = _linear(width, width, bias=False) + 2 * _linear(text, width, bias=False) + _linear(width, width)
    mlp = _linear(width, 2 * 4 * width) + _linear(4 * width, width)
    return 2 * width + 2 * _linear(width, width) + depth * (3 * 2 * width + own + read + mlp)


def _latent(shape: UNetShape) -> Iterator[int]:
    """Parameters of each part of a latent diffusion model's UNet."""
    first, text = shape.channels[0], shape.text_width
    time = 4 * first
    yield _linear(first, time) + _linear(time, time)
    if shape.added_width:
        yield _linear(shape.added_width, time) + _linear(time, time)
    yield _conv(shape.inputs, first)
    kept, width, last = [first], first, len(shape.channels) - 1
    for level, (channels, depth) in enumerate(zip(shape.channels, shape.depths, strict=True)):
        for _ in range(shape.blocks):
            yield _residual(width, channels, time) + _transformer(channels, depth, text)
            kept.append(channels)
            width = channels
        if level < last:
            yield _conv(width, width)  # halves the sides
            kept.append(width)
    yield 2 * _residual(width, width, time) + _transformer(width, shape.middle_depth, text)
    for level in range(last, -1, -1):
        channels, depth = shape.channels[level], shape.depths[level]
        for _ in range(shape.blocks + 1):
            yield _residual(width + kept.pop(), channels, time) + _transformer(channels, depth, text)
            width = channels
        if level:
            yield _conv(width, width)  # follows a doubling of the sides
    yield 2 * width + _conv(width, shape.outputs)


def _plain(inputs: int, outputs: int, time: int) -> int:
    """A block of the super-resolution networks: norms with a gain alone, the time as a shift and a scale."""
    shortcut = _conv(inputs, outputs, 1) if inputs != outputs else 0
    return inputs + outputs + _conv(inputs, outputs) + _conv(outputs, outputs) + _linear(time, 2 * outputs) + shortcut


def _superres(shape: UNetShape) -> Iterator[int]:
    """Parameters of each part of a super-resolution network; sides are halved and doubled without any."""
    first, folded = shape.channels[0], shape.fold**2
    time = 4 * first
    yield _linear(first, time) + _linear(time, time)
    yield _conv(shape.inputs * folded, first)
    kept, width = [], first
    for channels in shape.channels:
        for _ in range(shape.blocks):
            yield _plain(width, channels, time)
            kept.append(channels)
            width = channels
    yield _plain(width, width, time)
    for channels in reversed(shape.channels):
        for _ in range(shape.blocks):
            yield _plain(width + kept.pop(), channels, time)
            width = channels
    yield width + _conv(width, shape.outputs * folded)


@cache
def unet_shapes() -> dict[str, UNetShape]:
    """All UNets of the catalogue, and of the user's folder, by name."""
    return read_catalogue("unets", UNetShape)
