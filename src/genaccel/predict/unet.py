"""FLOPs, numbers moved and kernels of a diffusion UNet, from the blocks that its shape has, and of an image decoder."""

from __future__ import annotations

from dataclasses import dataclass

from genaccel.unets import Part, UNetShape, parts

TEXT_TOKENS = 77
"""Tokens of the text that transformers read: CLIP's context."""


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

    def __add__(self, other: ImageWork) -> ImageWork:
        """Both."""
        return ImageWork(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


def unet_work(shape: UNetShape, size: int | None = None) -> ImageWork:
    """Of one pass over one image or latent of ``size`` pixels a side, the network's own by default."""
    side, time = (size or shape.size) // shape.fold, 4 * shape.channels[0]
    total = ImageWork(parameters=float(shape.num_parameters))
    if shape.family == "superres":
        total += ImageWork(linear=2.0 * time * (shape.channels[0] + time))
    for part in parts(shape):
        pixels = (side >> part.level) ** 2
        if part.kind == "conv":
            total += _conv(part, pixels, plain=shape.family == "superres")
        elif part.kind == "transformer":
            total += _transformer(part, pixels, shape.text_width)
        else:
            total += (_plain if shape.family == "superres" else _residual)(part, pixels, time)
    return total


def _conv(part: Part, pixels: int, plain: bool) -> ImageWork:
    moved = (part.inputs + part.outputs) * pixels if plain else 2.0 * pixels * part.outputs
    return ImageWork(2.0 * 9 * part.inputs * part.outputs * pixels, streamed=moved, kernels=2.0)


def _residual(part: Part, pixels: int, time: int) -> ImageWork:
    """Two convolutions, each after a norm and an activation; a projected skip where the width changes."""
    c_in, c = part.inputs, part.outputs
    weights = 9 * (c_in * c + c * c) + (c_in * c if c_in != c else 0)
    return ImageWork(2.0 * weights * pixels, 2.0 * time * c, 0.0, pixels * (6.0 * c_in + 8.0 * c), 14.0)


def _plain(part: Part, pixels: int, time: int) -> ImageWork:
    """The same of a super-resolution network, whose norms are a dozen kernels and whose time is a shift and a scale."""
    c_in, c = part.inputs, part.outputs
    skip = c_in != c
    weights = 9 * (c_in * c + c * c) + (c_in * c if skip else 0)
    moved = (c_in + 3 * c + (c_in + c if skip else 0)) + 5 * c_in + 9 * c
    return ImageWork(2.0 * weights * pixels, 2.0 * time * 2 * c, 0.0, float(moved * pixels), 26.0 + 2 * skip)


def _transformer(part: Part, pixels: int, text_width: int) -> ImageWork:
    """Attention among pixels, attention to the text, and a gated MLP four times as wide, ``depth`` times."""
    c, depth = part.outputs, part.depth
    block, text = c * c * (4 + 2 + 12), 2 * text_width * c
    linear = 2.0 * pixels * (2 * c * c + depth * block) + depth * 2.0 * TEXT_TOKENS * text
    attention = depth * 4.0 * c * (pixels * pixels + pixels * TEXT_TOKENS)
    return ImageWork(0.0, linear, attention, pixels * c * (6.0 + 34.0 * depth), 8.0 + 30.0 * depth)


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
