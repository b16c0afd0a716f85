"""FLOPs, bytes, kernels and parameters of a diffusion UNet with attention to text, and of its image decoder.

The network is that of Rombach et al., High-Resolution Image Synthesis with Latent Diffusion Models (2022), and its
successors: residual blocks, transformers on the pixels of some levels, skip connections from the way down to the way up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class UNet:
    """``channels`` and ``depths`` (transformer blocks after each residual block) by level; sizes of what it reads."""

    name: str
    channels: tuple[int, ...]
    depths: tuple[int, ...]
    middle_depth: int
    text_width: int
    size: int
    blocks_per_level: int = 2
    latent_channels: int = 4
    text_tokens: int = 77
    decodes: bool = True
    num_steps: int = 50
    guided: bool = True


@dataclass(frozen=True)
class Part:
    """One block: ``kind`` is conv, residual or transformer; a transformer's ``inputs`` are its depth."""

    kind: str
    inputs: int
    outputs: int
    size: int


@dataclass(frozen=True)
class ImageWork:
    """Of one pass over one image: FLOPs by kind, numbers read and written between kernels, kernels, parameters."""

    convolution: float = 0.0
    linear: float = 0.0
    attention: float = 0.0
    streamed: float = 0.0
    kernels: float = 0.0
    parameters: float = 0.0

    @property
    def flops(self) -> float:
        """All multiplications and additions."""
        return self.convolution + self.linear + self.attention


def parts(unet: UNet, size: int | None = None) -> Iterator[Part]:
    """The blocks in the order in which an image of ``size`` (the network's own by default) goes through them."""
    side, width = size or unet.size, unet.channels[0]
    skips, last = [width], len(unet.channels) - 1
    yield Part("conv", unet.latent_channels, width, side)
    for level, channels in enumerate(unet.channels):
        for _ in range(unet.blocks_per_level):
            yield Part("residual", width, channels, side)
            width = channels
            if unet.depths[level]:
                yield Part("transformer", unet.depths[level], width, side)
            skips.append(width)
        if level < last:
            side //= 2
            yield Part("conv", width, width, side)
            skips.append(width)
    yield Part("residual", width, width, side)
    if unet.middle_depth:
        yield Part("transformer", unet.middle_depth, width, side)
    yield Part("residual", width, width, side)
    for level in reversed(range(len(unet.channels))):
        for _ in range(unet.blocks_per_level + 1):
            yield Part("residual", width + skips.pop(), unet.channels[level], side)
            width = unet.channels[level]
            if unet.depths[level]:
                yield Part("transformer", unet.depths[level], width, side)
        if level:
            side *= 2
            yield Part("conv", width, width, side)
    yield Part("conv", width, unet.latent_channels, side)


def unet_work(unet: UNet, size: int | None = None) -> ImageWork:
    """Of one pass over one image or latent of ``size`` pixels a side."""
    total = [0.0] * 6
    embedding = 4 * unet.channels[0]
    for part in parts(unet, size):
        found = {"conv": _conv, "residual": _residual, "transformer": _transformer}[part.kind](part, unet, embedding)
        total = [a + b for a, b in zip(total, found, strict=True)]
    total[5] += unet.channels[0] * embedding + embedding**2 + 2 * embedding + 2 * unet.channels[0]
    return ImageWork(*total)


def _conv(part: Part, unet: UNet, embedding: int) -> tuple[float, ...]:
    pixels = part.size**2
    weights = 9 * part.inputs * part.outputs
    return 2.0 * weights * pixels, 0.0, 0.0, 2.0 * pixels * part.outputs, 2.0, weights + part.outputs


def _residual(part: Part, unet: UNet, embedding: int) -> tuple[float, ...]:
    """Two convolutions, each after a norm and an activation; a projected skip where the width changes."""
    pixels, c_in, c = part.size**2, part.inputs, part.outputs
    skip = c_in * c if c_in != c else 0
    weights = 9 * (c_in * c + c * c) + skip
    others = embedding * c + c + 2 * c_in + 2 * c + 2 * c + (c if skip else 0)
    return 2.0 * weights * pixels, 2.0 * embedding * c, 0.0, pixels * (6.0 * c_in + 8.0 * c), 14.0, weights + others


def _transformer(part: Part, unet: UNet, embedding: int) -> tuple[float, ...]:
    """Attention among pixels, attention to the text, and a gated MLP four times as wide, ``inputs`` times."""
    pixels, c, depth = part.size**2, part.outputs, part.inputs
    block = c * c * (4 + 2 + 12)
    text = 2 * unet.text_width * c
    linear = 2.0 * pixels * (2 * c * c + depth * block) + depth * 2.0 * unet.text_tokens * text
    attention = depth * 4.0 * c * (pixels * pixels + pixels * unet.text_tokens)
    weights = 2 * c * c + 4 * c + depth * (block + text + 6 * c + 2 * c + 8 * c + c)
    return 0.0, linear, attention, pixels * c * (6.0 + 34.0 * depth), 8.0 + 30.0 * depth, weights


def decoder_work(size: int, channels: tuple[int, ...] = (512, 512, 256, 128)) -> ImageWork:
    """Of decoding a latent of ``size`` to an image eight times as large (the autoencoder of the same paper)."""
    width, side, streamed = channels[0], size, 0.0
    convolution = 2.0 * 9 * size**2 * (4 * width + 4 * width**2)
    for level, c in enumerate(channels):
        for _ in range(3):
            convolution += 2.0 * 9 * side**2 * (width * c + c * c)
            streamed += side**2 * (6.0 * width + 8.0 * c)
            width = c
        if level < len(channels) - 1:
            side *= 2
            convolution += 2.0 * 9 * side**2 * width**2
    return ImageWork(convolution, 0.0, 4.0 * size**4 * channels[0], streamed, 200.0)


def plain_unet_work(channels: tuple[int, ...], blocks: int, size: int, inputs: int, outputs: int = 1) -> ImageWork:
    """Of genaccel's own network (``superres/network.py``) on one map of ``size`` pixels a side.

    Pixels are folded into channels, levels are averaged down and repeated up, blocks have a shift and scale by time.
    """
    fold, first = 2, channels[0]
    side, time = size // fold, 4 * first
    convolution = linear = streamed = parameters = kernels = 0.0

    def conv(c_in: int, c_out: int, kernel: int = 3) -> None:
        nonlocal convolution, parameters, streamed, kernels
        convolution += 2.0 * kernel**2 * c_in * c_out * side**2
        parameters += kernel**2 * c_in * c_out + c_out
        streamed += (c_in + c_out) * side**2
        kernels += 2

    def block(c_in: int, c_out: int) -> None:
        nonlocal linear, parameters, streamed, kernels
        conv(c_in, c_out)
        conv(c_out, c_out)
        if c_in != c_out:
            conv(c_in, c_out, 1)
        linear += 2.0 * time * 2 * c_out
        parameters += (time + 1) * 2 * c_out + c_in + c_out
        streamed += (5 * c_in + 9 * c_out) * side**2
        kernels += 22

    linear += 2.0 * (first * time + time * time)
    parameters += (first + 1) * time + (time + 1) * time
    conv(inputs * fold**2, first)
    kept, width = [first], first
    for level, channel in enumerate(channels):
        side = side if level == 0 else side // 2
        for _ in range(blocks):
            block(width, channel)
            kept.append(channel)
            width = channel
    block(width, width)
    for level, channel in enumerate(reversed(channels)):
        side = side if level == 0 else side * 2
        for _ in range(blocks):
            block(width + kept.pop(), channel)
            width = channel
    parameters += width
    conv(width, outputs * fold**2)
    return ImageWork(convolution, linear, 0.0, streamed, kernels, parameters)
