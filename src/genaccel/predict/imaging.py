"""Time of drawing images with a diffusion model, and of training one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

import numpy as np

from genaccel.predict.chips import Chip
from genaccel.predict.communication import all_reduce_bytes
from genaccel.predict.constants import Array, Constant, Key, TimeModel
from genaccel.predict.roofline import exposed, longer
from genaccel.predict.unet import ImageWork, decoder_work, unet_work
from genaccel.unets import UNetShape


@dataclass(frozen=True)
class Drawing:
    """``batch`` images on each of ``cards``: drawn (``num_steps`` passes, twice as many when guided) or trained on."""

    work: ImageWork
    chip: Chip
    stack: str
    batch: float
    cards: int = 1
    precision: str = "fp16"
    passes: float = 50.0
    guided: bool = True
    trains: bool = False
    decoder: ImageWork | None = None
    fused_attention: bool = True

    @property
    def key(self) -> Key:
        """Whose constants apply."""
        return Key(self.chip.family, self.chip.name, self.stack)

    @property
    def images(self) -> float:
        """Images of all cards together."""
        return self.batch * self.cards

    @property
    def model_flops(self) -> float:
        """What one card's images need."""
        if self.trains:
            return 3 * self.batch * self.work.flops
        decoded = self.decoder.flops if self.decoder else 0.0
        return self.batch * (self.passes * (2 if self.guided else 1) * self.work.flops + decoded)


def in_latents(unet: UNetShape) -> bool:
    """Whether it reads text and draws latents, as Stable Diffusion does: in about 50 steps, guided, and then decoded."""
    return unet.text_width > 0


def drawing_of(unet: UNetShape, chip: Chip, stack: str, batch: float, **more: object) -> Drawing:
    """Draw with ``unet`` as it is usually sampled; ``size`` of a latent, and fields of ``Drawing``, may be given."""
    size = int(more.pop("size", unet.size))  # type: ignore[call-overload]
    latents = in_latents(unet)
    given = {"passes": 50.0 if latents else 1000.0, "guided": latents, **more}
    decoder = decoder_work(size) if latents and not given.get("trains") else None
    return Drawing(unet_work(unet, size), chip, stack, batch, decoder=decoder, **given)  # type: ignore[arg-type]


def drawing_features(d: Drawing) -> dict[str, float]:
    """Seconds at the chip's peaks, and counts, for one card's images."""
    chip, work, decoder = d.chip, d.work, d.decoder or ImageWork()
    wide = d.precision in ("fp32", "tf32")
    element = 4 if wide else 2
    matrix = chip.peak("tf32" if wide else d.precision, lenient=True)
    sixteen = matrix if wide else chip.peak("bf16", lenient=True)
    convolves = chip.rate("convolution", "tf32" if wide and "tf32" in chip.peak_flops else d.precision)
    attends = chip.rate("attention", "fp32" if wide else "bf16") if chip.reached else sixteen
    rate = chip.memory_bytes_per_second
    images = d.batch * (3.0 if d.trains else d.passes * (2 if d.guided else 1))
    passes = 3.0 if d.trains else d.passes
    scores = 0.0 if d.fused_attention else images * 3 * element * work.attention / 160  # a score costs 4 x width
    return {
        "convolution": images * work.convolution / convolves + d.batch * decoder.convolution / sixteen,
        "linear": images * work.linear / matrix,
        "attention": (images * work.attention + d.batch * decoder.attention) / attends,
        "streamed": ((images * work.streamed + d.batch * decoder.streamed) * element + scores) / rate,
        "weights": (passes * element * work.parameters + (30 * work.parameters if d.trains else 0)) / rate,
        "kernels": (passes * work.kernels + decoder.kernels) * chip.seconds_to_start,
        "wire": all_reduce_bytes(2 * work.parameters, d.cards) / chip.links.rate(d.cards) if d.trains else 0.0,
        "nodes": log2(max(1.0, d.cards / chip.links.cards_per_node)) if d.trains else 0.0,
        "wide": float(wide),
        "trains": float(d.trains),
        "serial": float(chip.serial),
    }


CONSTANTS = (
    Constant("convolution", 0.45, 0.6, "share of the peak that convolutions reach", 0.85),
    Constant("matrix", 0.65, 0.6, "share of the peak that matrix products reach", 0.9),
    Constant("attention", 0.35, 0.8, "share of the peak that attention reaches", 1.0),
    Constant("stream", 0.5, 0.6, "share of the memory bandwidth between kernels", 0.4),
    Constant("wide", 1.0, 1.0, "gain or loss of 32-bit arithmetic against its peak"),
    Constant("kernel", 8e-6, 1.0, "seconds in which the host starts a kernel", 1.5),
    Constant("link", 0.6, 0.5, "share of the links' rate that collectives reach", 1.0),
    Constant("nodes", 0.03, 1.0, "loss for every doubling of the nodes"),
    Constant("request", 0.03, 1.0, "seconds of a request that do not depend on its size", 2e-3),
    Constant("step", 0.01, 1.0, "seconds of a training step that do not depend on its size", 5e-3),
)
FEATURES = (
    "convolution",
    "linear",
    "attention",
    "streamed",
    "weights",
    "kernels",
    "wire",
    "nodes",
    "wide",
    "trains",
    "serial",
)


def _parts(c: Mapping[str, Array], f: Mapping[str, Array]) -> dict[str, Array]:
    gain = np.where(f["wide"] > 0, c["wide"], 1.0)
    convolution = f["convolution"] / c["convolution"] / gain
    products = f["linear"] / c["matrix"] / gain
    attention = f["attention"] / c["attention"] / gain
    streaming = f["streamed"] / c["stream"] + f["weights"] / 0.8
    card = convolution + products + attention + streaming
    started = f["kernels"] * c["kernel"]
    computed = np.where(f["serial"] > 0, card + started, longer(card, started, 4.0))
    wire = f["wire"] / c["link"]
    return {
        "convolutions": convolution,
        "matrix products": products,
        "attention": attention,
        "streaming": streaming,
        "host": computed - card + np.where(f["trains"] > 0, c["step"], c["request"]),
        "waiting for nodes": computed * c["nodes"] * f["nodes"],
        "communication": np.where(f["serial"] > 0, wire, exposed(wire, computed, 0.7)),
    }


IMAGING = TimeModel("imaging", CONSTANTS, FEATURES, _parts)
