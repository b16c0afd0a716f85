"""Ask for super-resolution, or drawing images, on cards that are not here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from genaccel.errors import UserError, unknown
from genaccel.predict.chips import Chip, chip_for, cluster_with
from genaccel.predict.constants import check_stack
from genaccel.predict.imaging import IMAGING, Drawing, drawing_of, in_latents
from genaccel.predict.prediction import Known, Prediction, predict
from genaccel.predict.unet import unet_work
from genaccel.unets import UNetShape, find_unet

STACKS = {"cuda": "lambda-diffusers-xformers", "hpu": "optimum-habana"}
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
    network = find_unet(ask.model)
    if ask.cards < 1 or ask.batch < 1:
        raise UserError(f"{ask.cards} cards with {ask.batch} images each draw nothing.", "Both must be at least 1.")
    if ask.precision not in PRECISIONS:
        raise unknown("precision", ask.precision, PRECISIONS)
    chip.peak(ask.precision, lenient=ask.precision == "fp32" or chip.runtime == "cpu")
    multiple = 8 if in_latents(network) else network.fold
    if ask.size is not None and (ask.size < 16 or ask.size % multiple):
        raise UserError(
            f"Images of {ask.size} pixels cannot be folded.", f"Choose a multiple of {multiple}, 16 or more."
        )
    if ask.steps is not None and ask.steps < 1:
        raise UserError(f"{ask.steps} steps draw nothing.", "Choose --steps 1 or more.")
    check_stack(IMAGING, ask.stack)


def drawing_for(ask: Superresolving, chip: Chip) -> Drawing:
    """The question as its time model sees it."""
    stack = ask.stack or STACKS.get(chip.runtime or "cuda", "genaccel")
    network = find_unet(ask.model)
    if network.family == "latent-diffusion":
        more = {} if ask.steps is None else {"passes": float(ask.steps)}
        return drawing_of(
            network,
            chip,
            stack,
            ask.batch,
            size=size_of(ask, network) // 8,
            cards=ask.cards,
            precision=ask.precision,
            trains=ask.train,
            **more,
        )
    size = size_of(ask, network)
    # A regression of mean and scale beside the diffusion, which sees the map, the condition and that mean.
    regression = unet_work(replace(network, inputs=network.inputs - 1, outputs=2 * network.outputs), size)
    work = unet_work(network, size) + regression if ask.train else unet_work(network, size)
    passes = float(ask.steps or 10) + 1  # and one of the regression
    return Drawing(work, chip, stack, ask.batch, ask.cards, ask.precision, passes, guided=False, trains=ask.train)


def size_of(ask: Superresolving, network: UNetShape) -> int:
    """Pixels of a side of the image: those that are asked for, or the network's own."""
    return ask.size or network.size * (8 if in_latents(network) else 1)


def memory_of(d: Drawing) -> float:
    """Bytes of one card: weights, what training keeps, and numbers between kernels (all of them when training)."""
    element = 4 if d.precision == "fp32" else 2
    states = d.work.parameters * (16 if d.trains else element)
    live = d.batch * d.work.streamed * element * (0.6 if d.trains else 0.06 * (2 if d.guided else 1))
    return float(states + live + 6e8)


def _batch_that_would_do(d: Drawing) -> str:
    """A hint: the largest power of two that fits."""
    sizes = (2**i for i in reversed(range(int(d.batch).bit_length())))
    fitting = next((n for n in sizes if memory_of(replace(d, batch=n)) <= 0.95 * d.chip.memory_bytes), None)
    return f"--batch {fitting} would do." if fitting else "Not even one image fits: choose a smaller --size."


def predict_superresolving(ask: Superresolving) -> Prediction:
    """Time, memory and the rest of one configuration."""
    cluster_with(ask.cluster, ask.cards)
    chip = chip_for(ask.on, ask.cluster, max(1, ask.cards))
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
                "size": size_of(ask, find_unet(ask.model)),
                "does": "train"
                if ask.train
                else f"draw in {ask.steps or drawing.passes - (not drawing.guided):.0f} steps",
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
            hint="" if fits else _batch_that_would_do(drawing),
        ),
    )
