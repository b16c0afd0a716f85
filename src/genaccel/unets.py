"""The shape of a diffusion UNet: what its arithmetic and memory follow from, without its weights.

Two families: latent diffusion (Rombach et al. 2022, and its successors), with transformers on the pixels of some levels,
which read text; and genaccel's own super-resolution networks, of residual blocks alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from genaccel.errors import unknown
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
        return _around(self) + sum(_parameters(self, part) for part in parts(self))


@dataclass(frozen=True)
class Part:
    """One block of a network, on maps whose sides were halved ``level`` times.

    ``kind``: conv (3 x 3), residual (of either family), or transformer, whose ``depth`` blocks are ``outputs`` wide.
    """

    kind: Literal["conv", "residual", "transformer"]
    inputs: int
    outputs: int
    level: int
    depth: int = 0


def parts(shape: UNetShape) -> Iterator[Part]:
    """The blocks in the order in which an image goes through them."""
    return _latent(shape) if shape.family == "latent-diffusion" else _superres(shape)


def _latent(shape: UNetShape) -> Iterator[Part]:
    """Blocks of a latent diffusion model's UNet. Convolutions halve the sides and follow their doubling."""
    width, last = shape.channels[0], len(shape.channels) - 1
    kept = [width]
    yield Part("conv", shape.inputs, width, 0)
    for level, (channels, depth) in enumerate(zip(shape.channels, shape.depths, strict=True)):
        for _ in range(shape.blocks):
            yield Part("residual", width, channels, level)
            width = channels
            if depth:
                yield Part("transformer", width, width, level, depth)
            kept.append(width)
        if level < last:
            yield Part("conv", width, width, level + 1)
            kept.append(width)
    yield Part("residual", width, width, last)
    if shape.middle_depth:
        yield Part("transformer", width, width, last, shape.middle_depth)
    yield Part("residual", width, width, last)
    for level in range(last, -1, -1):
        channels, depth = shape.channels[level], shape.depths[level]
        for _ in range(shape.blocks + 1):
            yield Part("residual", width + kept.pop(), channels, level)
            width = channels
            if depth:
                yield Part("transformer", width, width, level, depth)
        if level:
            yield Part("conv", width, width, level - 1)
    yield Part("conv", width, shape.outputs, 0)


def _superres(shape: UNetShape) -> Iterator[Part]:
    """Blocks of a super-resolution network; sides are halved and doubled without any weights."""
    folded, last = shape.fold**2, len(shape.channels) - 1
    kept, width = list[int](), shape.channels[0]
    yield Part("conv", shape.inputs * folded, width, 0)
    for level, channels in enumerate(shape.channels):
        for _ in range(shape.blocks):
            yield Part("residual", width, channels, level)
            kept.append(channels)
            width = channels
    yield Part("residual", width, width, last)
    for level in range(last, -1, -1):
        for _ in range(shape.blocks):
            yield Part("residual", width + kept.pop(), shape.channels[level], level)
            width = shape.channels[level]
    yield Part("conv", width, shape.outputs * folded, 0)


def _around(shape: UNetShape) -> int:
    """Parameters of no block: what makes the time a vector, further conditions, the last norm."""
    first = shape.channels[0]
    time = 4 * first
    added = _linear(shape.added_width, time) + _linear(time, time) if shape.added_width else 0
    norm = first if shape.family == "superres" else 2 * first
    return _linear(first, time) + _linear(time, time) + added + norm


def _parameters(shape: UNetShape, part: Part) -> int:
    if part.kind == "conv":
        return _conv(part.inputs, part.outputs)
    if part.kind == "transformer":
        return _transformer(part.outputs, part.depth, shape.text_width)
    residual = _residual if shape.family == "latent-diffusion" else _plain
    return residual(part.inputs, part.outputs, 4 * shape.channels[0])


def _linear(inputs: int, outputs: int, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _conv(inputs: int, outputs: int, side: int = 3) -> int:
    return side**2 * inputs * outputs + outputs


def _residual(inputs: int, outputs: int, time: int) -> int:
    """Two group norms and convolutions, the time in between, and a shortcut where the width changes."""
    shortcut = _conv(inputs, outputs, 1) if inputs != outputs else 0
    norms = 2 * inputs + 2 * outputs
    return norms + _conv(inputs, outputs) + _linear(time, outputs) + _conv(outputs, outputs) + shortcut


def _transformer(width: int, depth: int, text: int) -> int:
    """A group norm, a way in and out, and blocks of attention to pixels, attention to text, and a gated MLP."""
    own = 3 * _linear(width, width, bias=False) + _linear(width, width)
    read = _linear(width, width, bias=False) + 2 * _linear(text, width, bias=False) + _linear(width, width)
    mlp = _linear(width, 2 * 4 * width) + _linear(4 * width, width)
    return 2 * width + 2 * _linear(width, width) + depth * (3 * 2 * width + own + read + mlp)


def _plain(inputs: int, outputs: int, time: int) -> int:
    """A block of the super-resolution networks: norms with a gain alone, the time as a shift and a scale."""
    shortcut = _conv(inputs, outputs, 1) if inputs != outputs else 0
    return inputs + outputs + _conv(inputs, outputs) + _conv(outputs, outputs) + _linear(time, 2 * outputs) + shortcut


@cache
def unet_shapes() -> dict[str, UNetShape]:
    """All UNets of the catalogue, and of the user's folder, by name."""
    return read_catalogue("unets", UNetShape)


def find_unet(name: str) -> UNetShape:
    """The UNet of the catalogue called ``name``: its name, a hub id, or a preset of super-resolution; or a ``UserError``."""
    for shape in unet_shapes().values():
        if name.lower() in (shape.name, shape.name.removeprefix("superres-"), *(i.lower() for i in shape.hub_ids)):
            return shape
    raise unknown("image network", name, [n.removeprefix("superres-") for n in unet_shapes()])
