"""Models that published rows name: decoders from the catalogue, from a table of public configurations, or by their size."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib import resources

from genaccel.predict.decoder import Decoder, approximate_decoder, decoder_of
from genaccel.predict.unet import ImageWork
from genaccel.shapes import model_shapes
from genaccel.unets import UNetShape, find_unet


@cache
def known_decoders() -> dict[str, Decoder]:
    """Decoders by name in lower case; the catalogue's go before the table's."""
    file = resources.files("genaccel").joinpath("catalogue/published/models.csv")
    found: dict[str, Decoder] = {}
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        names = row.pop("names").split("|")
        row.pop("source")
        numbers = {key: int(value) for key, value in row.items()}
        flags = {key: bool(numbers.pop(key)) for key in ("tied_embeddings", "gated_mlp")}
        for name in names:
            found[name.lower()] = Decoder(names[0], **numbers, **flags)  # type: ignore[arg-type]
    for shape in model_shapes().values():
        decoder = decoder_of(shape)
        for name in (shape.name, *shape.hub_ids):
            found[name.lower()] = decoder
    return found


def find_decoder(name: str, billions: float | None) -> tuple[Decoder, tuple[str, ...]]:
    """The decoder of a published row, and what had to be assumed.

    Without a configuration its size decides (from the row, or from the name), and proportions are usual ones. Raises
    ``Unpredictable`` when not even its size is known.
    """
    from genaccel.predict.rows import Unpredictable

    known = known_decoders()
    for candidate in _spellings(name):
        if candidate in known:
            return known[candidate], ()
    size = billions or _size_in(name)
    if size is None:
        raise Unpredictable(f"neither the configuration nor the size of {name} is known")
    near = [
        d for d in known.values() if abs(d.num_weights / (size * 1e9) - 1) < 0.03 and _family(d.name) == _family(name)
    ]
    if near:
        return near[0], (f"{name} is taken to be shaped like {near[0].name}",)
    return approximate_decoder(name, size), (f"the shape of {name} follows from its size alone",)


def _spellings(name: str) -> list[str]:
    """The name, without its maker, and without what says only how it was tuned."""
    lower = name.strip().lower()
    bare = lower.rsplit("/", 1)[-1]
    plain = re.sub(r"[-_ ](instruct|chat|hf|base|it|v\d+(\.\d+)?|fp8|awq|gptq|bf16)\b", "", bare)
    endings = {key.rsplit("/", 1)[-1]: key for key in known_decoders()}
    plains = {re.sub(r"[-_ ](instruct|chat|hf|base|it|v\d+(\.\d+)?)\b", "", key): full for key, full in endings.items()}
    found = [lower, endings.get(bare, ""), plains.get(plain, ""), plains.get(plain.replace("meta-", ""), "")]
    return [f for f in found if f]


def _size_in(name: str) -> float | None:
    """Billions of parameters that a name tells: 'Llama-2-13b' -> 13, '8x7B' -> 47 of a mixture."""
    mixture = re.search(r"(\d+)x(\d+(?:\.\d+)?)b\b", name.lower())
    if mixture:
        return 0.83 * int(mixture.group(1)) * float(mixture.group(2))
    found = re.search(r"(\d+(?:\.\d+)?)\s?(b|m)\b", name.lower())
    return float(found.group(1)) / (1 if found.group(2) == "b" else 1000) if found else None


def _family(name: str) -> str:
    return re.split(r"[-_.\d ]", name.lower().rsplit("/", 1)[-1].removeprefix("meta-"))[0]


DDPM = UNetShape(
    name="ddpm-256",
    family="latent-diffusion",
    source="Ho et al., 2020: pixels instead of latents, no text",
    inputs=3,
    outputs=3,
    channels=(128, 128, 256, 256, 512, 512),
    depths=(0,) * 6,
    blocks=2,
    size=256,
)
IMAGE_NETWORKS: tuple[tuple[str, UNetShape | ImageWork | str], ...] = (
    (r"test_|tester|controlnet", ImageWork()),
    (r"sdxl|xl-base|-xl\b|stable-diffusion-xl", "sdxl"),
    (r"stable-diffusion-2|sd2|sd v2|sd-v2|stable diffusion 2", "stable-diffusion-2.1"),
    (r"stable-diffusion-v?1|sd1|sd v1|stable diffusion v?1", "stable-diffusion-1.5"),
    (r"ddpm", DDPM),
    # FLOPs of a forward pass over one image (He et al., 2016; Liu et al., 2016 on ResNet-50 of stride 8), and activations.
    (r"resnet-?50", ImageWork(convolution=8.2e9, streamed=4.4e7, kernels=350, parameters=2.56e7)),
    (r"ssd300", ImageWork(convolution=4.03e10, streamed=1.1e8, kernels=450, parameters=2.3e7)),
)
"""Networks, or their names in the catalogue, by what names of models contain; the first that matches."""


def find_image_network(name: str) -> UNetShape | ImageWork | None:
    """The network that a published row names; None for one that is not known."""
    for pattern, network in IMAGE_NETWORKS:
        if re.search(pattern, name.lower()):
            found = find_unet(network) if isinstance(network, str) else network
            return None if found == ImageWork() else found
    return None
