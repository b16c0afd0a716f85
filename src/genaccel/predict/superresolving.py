"""Ask for super-resolution, or drawing images, on cards that are not here."""

from __future__ import annotations

from dataclasses import dataclass

from genaccel.errors import UserError, unknown
from genaccel.hardware import accelerators
from genaccel.predict.chips import Chip
from genaccel.predict.finetuning import chip_for
from genaccel.predict.imaging import Drawing, drawing_of
from genaccel.predict.prediction import Known, Prediction, predict
from genaccel.predict.published_models import SD1, SD2, SDXL
from genaccel.predict.unet import ImageWork, UNet, plain_unet_work

STACKS = {"cuda": "lambda-diffusers-xformers", "hpu": "optimum-habana"}
PRESETS = {"tiny": ((32, 64, 64), 1), "small": ((64, 128, 192), 2), "base": ((128, 256, 384, 384), 2)}
"""Channels by level and blocks of genaccel's own networks, as ``superres/network.py`` has them; a test compares."""
NETWORKS: dict[str, UNet] = {"stable-diffusion-1": SD1, "stable-diffusion-2": SD2, "stable-diffusion-xl": SDXL}
PRECISIONS = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class Superresolving:
    """What is asked. ``batch`` images on each card; ``size`` pixels a side; ``train`` instead of drawing.

    A draw of one image takes ``steps`` passes.
    """

    model: str
    on: str
    cards: int = 1
    batch: int = 16
    size: int | None = None
    steps: int | None = None
    train: bool = True
    precision: str = "bf16"
    stack: str | None = None
    cluster: str | None = None


def check(ask: Superresolving, chip: Chip) -> None:
    """Raise ``UserError`` for the first thing that cannot be."""
    if ask.model not in (*PRESETS, *NETWORKS):
        raise unknown("image network", ask.model, (*PRESETS, *NETWORKS))
    if ask.cards < 1 or ask.batch < 1:
        raise UserError(f"{ask.cards} cards with {ask.batch} images each draw nothing.", "Both must be at least 1.")
    if ask.precision not in PRECISIONS:
        raise unknown("precision", ask.precision, PRECISIONS)
    chip.peak(ask.precision, lenient=ask.precision == "fp32" or chip.runtime == "cpu")
    multiple = 8 if ask.model in NETWORKS else 2
    if ask.size is not None and (ask.size < 16 or ask.size % multiple):
        raise UserError(
            f"Images of {ask.size} pixels cannot be folded.", f"Choose a multiple of {multiple}, 16 or more."
        )
    if ask.steps is not None and ask.steps < 1:
        raise UserError(f"{ask.steps} steps draw nothing.", "Choose --steps 1 or more.")


def drawing_for(ask: Superresolving, chip: Chip) -> Drawing:
    """The question as its time model sees it."""
    stack = ask.stack or STACKS.get(chip.runtime or "cuda", "genaccel")
    if ask.model in NETWORKS:
        network = NETWORKS[ask.model]
        more = {} if ask.steps is None else {"passes": float(ask.steps)}
        size = (ask.size or network.size * 8) // 8
        return drawing_of(
            network,
            chip,
            stack,
            ask.batch,
            size=size,
            cards=ask.cards,
            precision=ask.precision,
            trains=ask.train,
            **more,
        )
    channels, blocks = PRESETS[ask.model]
    size = ask.size or 64
    # A regression of mean and scale beside the diffusion, which sees the map, the condition and that mean.
    both = [plain_unet_work(channels, blocks, size, inputs, outputs) for inputs, outputs in ((2, 2), (3, 1))]
    work = both[1] if not ask.train else _sum(*both)
    return Drawing(
        work, chip, stack, ask.batch, ask.cards, ask.precision, float(ask.steps or 10), guided=False, trains=ask.train
    )


def _sum(a: ImageWork, b: ImageWork) -> ImageWork:
    return ImageWork(
        a.convolution + b.convolution,
        a.linear + b.linear,
        a.attention + b.attention,
        a.streamed + b.streamed,
        a.kernels + b.kernels,
        a.parameters + b.parameters,
    )


def memory_of(d: Drawing) -> float:
    """Bytes of one card: weights, what training keeps, and numbers between kernels (all of them when training)."""
    element = 4 if d.precision == "fp32" else 2
    states = d.work.parameters * (16 if d.trains else element)
    live = d.batch * d.work.streamed * element * (0.6 if d.trains else 0.06 * (2 if d.guided else 1))
    return float(states + live + 6e8)


def predict_superresolving(ask: Superresolving) -> Prediction:
    """Time, memory and the rest of one configuration."""
    if ask.cluster is None and ask.on not in accelerators():
        raise unknown("accelerator in the catalogue", ask.on, accelerators())
    chip = chip_for(ask.on, ask.cluster)
    check(ask, chip)
    drawing = drawing_for(ask, chip)
    memory = memory_of(drawing)
    fits = not chip.memory_bytes or memory <= 0.95 * chip.memory_bytes
    return predict(
        "superres",
        drawing,
        Known(
            settings={
                "model": ask.model,
                "on": chip.name,
                "cards": ask.cards,
                "batch": ask.batch,
                "size": ask.size or (NETWORKS[ask.model].size * 8 if ask.model in NETWORKS else 64),
                "does": "train" if ask.train else f"draw in {drawing.passes:.0f} steps",
                "precision": ask.precision,
            },
            chip=chip,
            cards=ask.cards,
            precision=ask.precision,
            flops=drawing.model_flops * ask.cards,
            rates={"images_per_second": drawing.images},
            memory_bytes=memory,
            problem=None
            if fits
            else f"{ask.batch} images need {memory / 1e9:.0f} GB, but {chip.name} has {chip.memory_bytes / 1e9:.0f} GB",
        ),
    )
