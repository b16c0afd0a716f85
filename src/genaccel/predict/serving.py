"""Time of generating text: a prefill and as many decoding steps as new tokens, on one card or several.

Weights and cache are read once a step; products are bound by arithmetic or memory; a step, a layer and a sequence cost the
host or the scheduler something; tensor parallelism sums two activations a layer. A batch whose keys and values do not
fit goes through in as many waves as it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from genaccel.predict.chips import Chip
from genaccel.predict.communication import all_reduce_bytes
from genaccel.predict.constants import Array, Constant, Key, TimeModel
from genaccel.predict.decoder import Decoder
from genaccel.predict.roofline import longer

MEMORY_SHARE = 0.92
"""Of a card's memory that servers use for weights and cache."""
MOST_AT_ONCE = 2048
"""Sequences that a server with continuous batching takes into a step unless told otherwise."""


@dataclass(frozen=True)
class Format:
    """How a weight is stored and computed with. ``widens``: it is turned into 16 bits before it is multiplied."""

    bytes_per_weight: float
    arithmetic: str
    widens: bool = False


FORMATS = {
    "fp32": Format(4, "fp32"),
    "tf32": Format(4, "tf32"),
    "bf16": Format(2, "bf16"),
    "fp16": Format(2, "fp16"),
    "fp8": Format(1, "fp8"),
    "int8": Format(1, "int8"),
    "fp4": Format(0.5625, "fp4"),
    "int8-weights": Format(1.0, "bf16", True),
    "int4-weights": Format(0.55, "bf16", True),
}


@dataclass(frozen=True)
class Request:
    """What is asked: ``batch`` sequences (None: as many as fit) of ``prompt`` tokens, each getting ``new`` more.

    ``weights`` are (format, share of the weights). ``shards`` cards hold one copy of the model; ``replicas`` copies work on
    batches of their own. ``beams`` sequences are decoded for each that is asked for.
    """

    model: Decoder
    chip: Chip
    stack: str
    batch: float | None
    prompt: float
    new: float
    weights: tuple[tuple[str, float], ...] = (("bf16", 1.0),)
    cache_element: float = 2.0
    shards: int = 1
    replicas: int = 1
    beams: int = 1
    lenient: bool = False
    asks: str = "request"

    @property
    def key(self) -> Key:
        """Whose constants apply."""
        return Key(self.chip.family, self.chip.name, self.stack)

    @property
    def weight_bytes(self) -> float:
        """Bytes of an average weight."""
        return sum(FORMATS[name].bytes_per_weight * share for name, share in self.weights)

    @property
    def cache_bytes(self) -> float:
        """Keys and values of one sequence at its longest, on one card."""
        per_token = self.model.cache_bytes_per_token(self.cache_element, self.shards)
        return per_token * self.model.looked_back(self.prompt + self.new) * self.beams

    @property
    def room(self) -> float:
        """Bytes of one card left for keys and values."""
        return MEMORY_SHARE * self.chip.memory_bytes - self.model.num_weights * self.weight_bytes / self.shards

    @property
    def most_sequences(self) -> float:
        """Sequences whose keys and values fit at once."""
        return max(self.room, 0.0) / self.cache_bytes

    @property
    def sequences(self) -> float:
        """Sequences asked of one replica."""
        return min(max(self.most_sequences, 1.0), MOST_AT_ONCE) if self.batch is None else self.batch

    @property
    def memory_bytes(self) -> float:
        """Weights, cache and workspace of one card."""
        kept = min(self.sequences, max(self.most_sequences, 1.0))
        workspace = 8 * min(self.sequences * self.prompt, 16_384) * self.model.hidden_size
        return self.model.num_weights * self.weight_bytes / self.shards + kept * self.cache_bytes + workspace + 6e8


def request_features(r: Request) -> dict[str, float]:
    """Seconds at the chip's peaks, and counts, of a prefill and of an average decoding step of one wave."""
    model, chip = r.model, r.chip
    fitting = max(r.most_sequences, 1.0)
    at_once = min(r.sequences, fitting)
    rows = at_once * r.beams
    rate = chip.memory_bytes_per_second
    wide = all(FORMATS[name].arithmetic in ("fp32", "tf32") for name, _ in r.weights)
    attends = chip.rate("attention", FORMATS[r.weights[0][0]].arithmetic if wide else "bf16")
    arithmetic = sum(share / chip.peak(FORMATS[name].arithmetic, r.lenient) for name, share in r.weights)
    widened = sum(share for name, share in r.weights if FORMATS[name].widens)
    streamed = (4.0 if wide else 2.0) * model.num_layers * (14 * model.hidden_size + 6 * model.mlp_width / r.shards)
    streamed /= chip.elementwise_rate()
    head = model.head_weights
    context = model.looked_back(r.prompt + r.new / 2)
    cached = rows * context
    kept = model.cache_bytes_per_token(r.cache_element, r.shards)
    unshared = 2.0 * model.num_layers * model.num_heads * model.head_dim * r.cache_element / r.shards
    reduced = 2.0 * model.hidden_size * 2.0 * model.num_layers
    wire = all_reduce_bytes(reduced, r.shards) / chip.links.rate(r.shards) if r.shards > 1 else 0.0

    def products(tokens: float, scored: float) -> tuple[float, float]:
        flops = 2.0 * (tokens * model.layer_weights_per_token + scored * head) * arithmetic / r.shards
        read = (model.layer_weights_read(tokens) + head) * r.weight_bytes / r.shards / chip.weights_rate(tokens)
        return flops, read

    prompt_tokens = at_once * r.prompt
    prefill_flops, prefill_read = products(prompt_tokens, at_once)
    decode_flops, decode_read = products(rows, rows)
    experts = model.num_experts * model.num_layers
    return {
        "prefill_flops": prefill_flops,
        "prefill_read": prefill_read,
        "prefill_attention": model.attention_flops(at_once * model.causal_pairs(r.prompt)) / r.shards / attends,
        "prefill_streamed": prompt_tokens * streamed,
        "prefill_wire": prompt_tokens * wire,
        "prefill_sequences": at_once,
        "decode_flops": decode_flops,
        "decode_read": decode_read,
        "decode_cache": cached * kept / rate,
        "decode_heads": cached * max(unshared - kept, 0.0) / rate,
        "decode_streamed": rows * streamed,
        "decode_wire": rows * wire,
        "widened": 2.0 * model.num_weights * widened / r.shards / rate,
        "layers": model.num_layers * chip.seconds_to_start,
        "experts": float(experts),
        "rows": rows,
        "collectives": 2.0 * model.num_layers * chip.links.rounds(r.shards),
        "steps": float(r.new if r.asks == "request" else (1.0 if r.asks == "step" else 0.0)),
        "prefills": 0.0 if r.asks == "step" else 1.0,
        "serial": float(chip.serial),
        "waves": r.sequences / at_once if r.asks == "request" else 1.0,
    }


CONSTANTS = (
    Constant("matrix", 0.7, 0.6, "share of the peak that large matrix products reach", 0.95),
    Constant("bandwidth", 0.85, 0.4, "share of the memory bandwidth with which weights are read", 1.0),
    Constant("cache", 0.75, 1.0, "share of the memory bandwidth with which keys and values are read", 0.2),
    Constant(
        "heads", 0.05, 1.5, "cost of a query head that shares its keys, as a share of reading keys of its own", 1.0
    ),
    Constant("attention", 0.3, 0.6, "share of the peak that attention among prompt tokens reaches", 1.0),
    Constant("stream", 0.8, 0.6, "share of the memory bandwidth in norms, activations and sums", 1.0),
    Constant("step", 1e-3, 1.5, "seconds of a step that do not depend on its size"),
    Constant("layer", 25e-6, 1.0, "seconds of starting a layer's kernels", 250.0),
    Constant("sequence", 1e-5, 1.5, "seconds of a sequence in a step: scheduling, sampling, text"),
    Constant("collective", 12e-6, 1.0, "seconds of a round of a collective that do not depend on its size"),
    Constant("link", 0.5, 0.6, "share of the links' rate that collectives reach", 1.0),
    Constant("expert", 4e-7, 2.0, "seconds of starting one expert of one layer"),
    Constant(
        "widen",
        20.0,
        4.0,
        "share of the memory bandwidth with which narrow weights are widened; above 1 when kernels do it on the way",
    ),
)


def _step_parts(c: Mapping[str, Array], f: Mapping[str, Array], kind: str, times: Array) -> dict[str, Array]:
    """Seconds by part of the prefills (``kind`` prefill) or decoding steps, of which there are ``times``."""
    sequences = f["prefill_sequences"] if kind == "prefill" else f["rows"]
    computed, read = f[f"{kind}_flops"] / c["matrix"], f[f"{kind}_read"] / c["bandwidth"]
    products = np.where(f["serial"] > 0, computed + read, longer(computed, read))
    host = c["step"] + f["layers"] * c["layer"] + f["experts"] * c["expert"] + sequences * c["sequence"]
    found = {
        "matrix products": times * (products + f["widened"] / c["widen"]),
        "streaming": times * f[f"{kind}_streamed"] / c["stream"],
        "communication": times * (f[f"{kind}_wire"] / c["link"] + f["collectives"] * c["collective"]),
        "host": times * host,
    }
    if kind == "prefill":
        found["attention"] = times * f["prefill_attention"] / c["attention"]
    else:
        found["attention"] = times * (f["decode_cache"] + f["decode_heads"] * c["heads"]) / c["cache"]
    return found


def _parts(c: Mapping[str, Array], f: Mapping[str, Array]) -> dict[str, Array]:
    prefill = _step_parts(c, f, "prefill", f["waves"] * f["prefills"])
    decode = _step_parts(c, f, "decode", f["waves"] * f["steps"])
    return {f"prefill: {k}": v for k, v in prefill.items()} | {f"decode: {k}": v for k, v in decode.items()}


FEATURES = (
    "prefill_flops",
    "prefill_read",
    "prefill_attention",
    "prefill_streamed",
    "prefill_wire",
    "prefill_sequences",
    "decode_flops",
    "decode_read",
    "decode_cache",
    "decode_heads",
    "decode_streamed",
    "decode_wire",
    "widened",
    "layers",
    "experts",
    "rows",
    "collectives",
    "steps",
    "prefills",
    "waves",
    "serial",
)
SERVING = TimeModel("serving", CONSTANTS, FEATURES, _parts)
