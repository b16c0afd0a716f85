"""Time of an optimizer step of a decoder: products, attention, streaming, communication that nothing hides, updates.

Computation hides what it can of what a strategy sends (``exchanges.py``); tensor parallelism hides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

import numpy as np

from genaccel.predict.chips import Chip
from genaccel.predict.constants import Array, Constant, Key, TimeModel
from genaccel.predict.decoder import Decoder
from genaccel.predict.exchanges import (
    context_bytes,
    data_seconds,
    messages,
    shards_optimizer,
    tensor_bytes,
    unhidden_share,
)
from genaccel.predict.roofline import exposed, longer

BUILDING = 8.0
"""Times as long as starting a layer's kernels takes a host to build their graph: 3 ms, by steps that only differ in that."""
ADAPTER_SHARE = 0.003
"""Of the weights that LoRA trains, when its rank is not known."""


@dataclass(frozen=True)
class TrainingStep:
    """An optimizer step on ``cards`` = data-parallel copies x ``tensor`` x ``pipeline`` x ``context``.

    ``checkpointing`` is the share of the forward pass that is computed again; ``lora`` that the weights are frozen;
    ``casts`` that weights are kept in fp32 and cast in every micro-batch;
    ``head`` that tokens are scored over the vocabulary. ``trained_share`` of the weights is updated, where that is known;
    ``watched``: the loss of every step is read before the next one is built, so that the card waits (matters in Gaudi's lazy
    mode). ``backward_share`` of the layers goes backward: what lies below all that is trained does not.
    """

    model: Decoder
    chip: Chip
    stack: str
    strategy: str
    cards: int
    micro_batch: float
    accumulation: float
    length: float
    precision: str = "bf16"
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    interleaved: bool = False
    lora: bool = False
    checkpointing: float = 0.0
    compiled: bool = False
    casts: bool = False
    causal: bool = True
    head: bool = True
    flash: bool = True
    fewer_updates: bool = False
    watched: bool = False
    trained_share: float | None = None
    backward_share: float = 1.0

    @property
    def key(self) -> Key:
        """Whose constants apply."""
        return Key(self.chip.family, self.chip.name, self.stack)

    @property
    def copies(self) -> int:
        """Data-parallel copies."""
        return max(1, self.cards // (self.tensor * self.pipeline * self.context))

    @property
    def samples(self) -> float:
        """Sequences of a step, over all cards."""
        return self.micro_batch * self.accumulation * self.copies

    @property
    def tokens(self) -> float:
        """Tokens of a step, over all cards."""
        return self.samples * self.length

    @property
    def model_flops(self) -> float:
        """What the model's mathematics needs in a step: the numerator of MFU."""
        per_token = (2 + (2 if self.lora else 4) * self.backward_share) * (
            self.model.layer_weights_per_token + self.head * self.model.head_weights
        )
        pairs = self.samples * self._pairs
        return self.tokens * per_token + (1 + 2 * self.backward_share) * self.model.attention_flops(pairs)

    @property
    def element(self) -> int:
        """Bytes of a number that is computed with, kept and sent."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def trained(self) -> float:
        """Weights that are updated."""
        share = self.trained_share if self.trained_share is not None else (ADAPTER_SHARE if self.lora else 1.0)
        return self.model.num_weights * share

    @property
    def _pairs(self) -> float:
        return self.model.causal_pairs(self.length) if self.causal else self.length**2


def step_features(t: TrainingStep) -> dict[str, float]:
    """Seconds at the chip's peaks of one card's part of a step, and counts."""
    model, chip = t.model, t.chip
    rate, sixteen = chip.memory_bytes_per_second, chip.peak("bf16", lenient=True)
    narrow = t.precision in ("fp8", "fp4") and t.precision in chip.peak_flops
    peak = chip.peak(t.precision if narrow else "bf16", lenient=True)
    if t.precision in ("fp32", "tf32"):
        peak = sixteen = chip.peak(t.precision, lenient=True)
    tokens = t.tokens / t.cards
    again = 1 if t.checkpointing >= 1 else 0
    passes = 2 + (2 if t.lora else 4) * t.backward_share + 2 * t.checkpointing * t.backward_share
    attends = chip.rate("attention", t.precision if t.element == 4 else "bf16")
    streamed = model.num_layers * t.element * (22 * model.hidden_size + (8 if model.gated_mlp else 6) * model.mlp_width)
    scored = 6 * t.element * model.vocab_size if t.head else 0
    mine = model.num_weights / (t.tensor * t.pipeline)
    updates = t.trained / (t.tensor * t.pipeline) / (t.copies * t.context if shards_optimizer(t) else 1)
    scores = 0.0 if t.flash else t.samples / t.cards * _score_bytes(t)
    width = model.hidden_size / t.tensor
    return {
        "products": passes * tokens * model.layer_weights_per_token / peak,
        "head": passes * tokens * model.head_weights * t.head / sixteen,
        "attention": (1 + (2.5 + again) * t.backward_share)
        * model.attention_flops(t.samples * t._pairs)
        / t.cards
        / attends,
        "streamed": (tokens * (streamed * (1 + 0.35 * t.checkpointing) + scored) + scores)
        / chip.elementwise_rate(trains=True),
        "packed": (2 if t.lora else 3) * t.element * mine * t.accumulation / chip.weights_rate(t.length)
        if chip.serial
        else 0.0,
        "cast": 6 * mine * t.accumulation * t.casts / rate,
        "update": 0.0 if t.fewer_updates else 30 * updates / (0.8 * rate),
        "layers": model.num_layers
        / t.pipeline
        * t.accumulation
        * (1 + 0.35 * t.checkpointing)
        * _experts(model)
        * _host(t),
        "built": t.watched * model.num_layers / t.pipeline * (1 + 2 * t.backward_share) / 3 * _host(t),
        "data_wire": data_seconds(t, mine),
        "meetings": messages(t) * chip.links.seconds_to_meet,
        "first_wire": unhidden_share(t),
        "model_wire": tensor_bytes(t) / chip.links.rate(t.tensor)
        + context_bytes(t) / chip.links.rate(t.context, t.tensor),
        "bubble": _bubble(t),
        "nodes": log2(max(1.0, t.cards / chip.links.cards_per_node)),
        "width": width,
        "narrow": float(narrow),
        "compiled": float(t.compiled),
        "serial": float(chip.serial),
    }


def _score_bytes(t: TrainingStep) -> float:
    """Moved for a sequence's attention scores when no kernel keeps them on the chip, masked ones too.

    They are written and read by the products around a softmax that reads and writes them once: four passes forward, seven
    backward.
    """
    passes = 4 * (1 + t.checkpointing) + 7 * t.backward_share
    return passes * t.element * t.model.num_heads * t.model.num_layers * t.length**2


def _host(t: TrainingStep) -> float:
    """What a layer costs the host, relative to starting its kernels: on Gaudi it builds their graph anew in every step."""
    return t.chip.seconds_to_start * (BUILDING if t.chip.family == "gaudi" else 1.0)


def _experts(model: Decoder) -> float:
    """Kernels that a layer starts, relative to a dense one."""
    return 1.0 + 0.5 * model.num_experts / 8


def _bubble(t: TrainingStep) -> float:
    """The share of time in which a pipeline's stages wait."""
    return (t.pipeline - 1) / max(t.accumulation, 1.0) / (2 if t.interleaved else 1)


CONSTANTS = (
    Constant("matrix", 0.75, 0.5, "share of the peak that large matrix products reach", 0.9),
    Constant("attention", 0.4, 0.8, "share of the peak that attention reaches, forward and backward", 1.0),
    Constant("stream", 0.5, 0.6, "share of the memory bandwidth in norms, activations, sums and losses", 1.0),
    Constant("width", 250.0, 1.0, "hidden size at which products lose half: small matrices fill a chip badly", 10.0),
    Constant("narrow", 0.85, 0.5, "what is left of the gain of 8-bit products after scaling and casting"),
    Constant(
        "layer",
        4e-4,
        1.0,
        "seconds in which the host starts a layer's kernels, forward and backward; eight times that on Gaudi",
        250.0,
    ),
    Constant("compile", 1.1, 0.5, "gain in streaming when a compiler fuses kernels"),
    Constant("link", 0.7, 0.5, "share of the links' rate that collectives reach", 1.0),
    Constant("hide", 0.8, 0.5, "share of the computation's time that can hide communication"),
    Constant("contend", 0.08, 1.0, "share of hidden communication by which it slows the computation"),
    Constant("nodes", 0.015, 1.0, "loss for every doubling of the nodes: stragglers and jitter"),
    Constant("step", 5e-3, 1.0, "seconds of a step that do not depend on its size"),
)
FEATURES = (
    "products",
    "head",
    "attention",
    "streamed",
    "cast",
    "update",
    "layers",
    "built",
    "data_wire",
    "first_wire",
    "model_wire",
    "bubble",
    "nodes",
    "width",
    "narrow",
    "compiled",
    "meetings",
    "packed",
    "serial",
)


def _parts(c: Mapping[str, Array], f: Mapping[str, Array]) -> dict[str, Array]:
    """Seconds by part."""
    fits = (1 + c["width"] / f["width"]) / c["matrix"]
    products = f["products"] / np.where(f["narrow"] > 0, c["narrow"], 1.0) * fits + f["packed"]
    head = f["head"] * fits
    attention = f["attention"] / c["attention"]
    fused = np.where(f["compiled"] > 0, c["compile"], 1.0)
    streaming = (f["streamed"] + f["cast"]) / c["stream"] / fused
    card = products + head + attention + streaming
    started = f["layers"] * c["layer"]
    computed = np.where(f["serial"] > 0, card + started, longer(card, started, 4.0))
    hide = np.where(f["serial"] > 0, 0.0, c["hide"])
    contend = np.where(f["serial"] > 0, 0.0, c["contend"])
    wire = f["data_wire"] / c["link"]
    shown = exposed(wire, computed, hide) + contend * np.minimum(wire, computed)
    shown = np.where(f["serial"] > 0, wire, shown + wire * f["first_wire"]) + f["meetings"]
    return {
        "matrix products": products,
        "output head": head,
        "attention": attention,
        "streaming": streaming,
        "host": computed - card + c["step"] + f["built"] * c["layer"],
        "pipeline bubble": computed * f["bubble"],
        "waiting for nodes": computed * (1 + f["bubble"]) * c["nodes"] * f["nodes"],
        "communication": shown + f["model_wire"] / c["link"],
        "optimizer": f["update"],
    }


TRAINING = TimeModel("training", CONSTANTS, FEATURES, _parts)
