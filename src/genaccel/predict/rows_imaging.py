"""Rows about drawing images and training what draws them, and about the image networks of older benchmarks."""

from __future__ import annotations

import re

from genaccel.predict.chips import published_chip
from genaccel.predict.imaging import Drawing, drawing_of, in_latents
from genaccel.predict.published_models import find_image_network
from genaccel.predict.rows import Cells, Question, Unpredictable, in_notes, number_in, slug
from genaccel.predict.rows_serving import cards_of
from genaccel.predict.unet import ImageWork
from genaccel.unets import UNetShape

STACKS = {
    "mlperf training": "mlperf-training",
    "mlperf": "mlperf",
    "mosaic": "mosaic",
    "optimum-habana": "optimum-habana",
    "huggingface/blog": "optimum-habana",
    "lambdalabs": "lambda-diffusers",
    "lambdal": "lambda-pytorch",
}
IMAGES_TO_CONVERGE = {512: 2.6e6, 1024: 2.75e6, 2048: 4.05e6}
"""MLPerf's Stable Diffusion: images until its target by global batch, in steps of the 512,000 between evaluations."""
PER_CARD = {"mlperf": 8.0, "mosaic": 2048.0}
"""Batches that a protocol has where a row gives none: of a card; mosaic's over all cards."""


def imaging_question(cells: Cells) -> Question:
    """What a row about images asks. Raises ``Unpredictable`` with the reason."""
    chip = published_chip(cells["device"])
    if chip is None:
        raise Unpredictable(f"the device {cells['device']} is not in the catalogue")
    network = find_image_network(cells["model"])
    trains = "train" in cells["workload"] or "finetune" in cells["workload"]
    if network is None:
        raise Unpredictable(f"the network of {cells['model']} is not known")
    stack, cards = _stack(cells), cards_of(cells)
    batch = _batch(cells, cards, trains, stack)
    precision, more = _precision(cells, stack), {}
    if isinstance(network, ImageWork):
        drawing = Drawing(network, chip, stack, batch, cards, precision, 1.0, False, trains=True)
    else:
        steps = in_notes(r"(\d+) steps", cells) or re.search(r"(\d+) steps", cells["model"])
        if steps:
            more["passes"] = float(steps.group(1))
        fused = "no-xformers" not in cells["notes"]
        drawing = drawing_of(
            network,
            chip,
            stack,
            batch,
            cards=cards,
            precision=precision,
            trains=trains,
            size=_size(cells, network),
            fused_attention=fused,
            **more,
        )
    return _answer(cells, drawing)


def _stack(cells: Cells) -> str:
    source = cells["source"].lower()
    found = next((stack for part, stack in STACKS.items() if part in source), slug(source))
    if found == "lambda-diffusers":
        return found + ("" if "no-xformers" in cells["notes"] else "-xformers")
    return found


def _size(cells: Cells, network: UNetShape) -> int:
    """Pixels of a latent, from the size of the image in the model's name; versions 1 and 2 drew 512 before they drew 768."""
    found = re.search(r"(\d{3,4})x\1", cells["model"])
    if found:
        return int(found.group(1)) // (8 if in_latents(network) else 1)
    return 64 if network.name.startswith("stable-diffusion") else network.size


def _batch(cells: Cells, cards: int, trains: bool, stack: str) -> float:
    """Images of one card."""
    given = number_in(cells["batch"])
    if given is not None:
        return given / cards if trains else given  # a training row has the batch of all cards
    if stack == "mosaic":
        return PER_CARD["mosaic"] / cards
    return PER_CARD.get(stack, 1.0)


def _precision(cells: Cells, stack: str) -> str:
    text = cells["precision"].lower()
    if text.startswith("fp32") and "/" not in text:
        return "fp32"
    if stack == "mlperf":
        return "fp8"
    return "bf16" if "bf16" in text else "fp16"


def _answer(cells: Cells, drawing: Drawing) -> Question:
    metric, unit = cells["metric"], cells["unit"].lower()
    if "latency" in metric:
        return Question(drawing, 1 / drawing.batch * (1e3 if unit.startswith("ms") else 1.0), False)
    if metric.startswith("time_to_train"):
        batch = drawing.images
        images = IMAGES_TO_CONVERGE[min(IMAGES_TO_CONVERGE, key=lambda b: abs(b - batch))]
        return Question(drawing, images / batch / 60, False)
    if "throughput" in metric or "per_second" in metric:
        return Question(drawing, drawing.images, True)
    raise Unpredictable(f"the metric {metric} is not known")
