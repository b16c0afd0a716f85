"""Tokens per second of prefill and of decoding, on one device.

Prefill: a batch of fresh random prompts through the model, logits of the last position only; prompt tokens per second.
Decoding: greedy, one token per step for the whole batch with a KV cache behind a prompt; new tokens per second, the
prompt's time left out. Every repeat has prompts of its own, so that no cache can serve them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from genaccel.errors import UserError
from genaccel.measure import SPREAD_WARNING, Samples, repeat
from genaccel.models import LoadedModel

if TYPE_CHECKING:
    from genaccel.devices import Device


@dataclass(frozen=True)
class ThroughputProtocol:
    """Batch, prompt and new tokens (lengths in tokens), repeats after warm-up."""

    batch: int = 1
    prompt_tokens: int = 256
    new_tokens: int = 32
    num_warmup: int = 1
    num_repeats: int = 5

    def describe(self, what: str) -> str:
        """The protocol's name for ``what`` ('prefill' or 'decode')."""
        lengths = f"{self.prompt_tokens} prompt tokens" + (
            f", {self.new_tokens} new tokens" if what == "decode" else ""
        )
        return (
            f"{what}, batch {self.batch}, {lengths}, 1 device, median of {self.num_repeats}, {self.num_warmup} warm-up"
        )

    def check(self, max_positions: int | None) -> None:
        """Raise ``UserError`` for lengths below 1 or beyond the model's context."""
        if min(self.batch, self.prompt_tokens, self.new_tokens, self.num_repeats) < 1:
            raise UserError(
                "Batch, prompt, new tokens and repeats must be at least 1.", "Check the throughput options."
            )
        if max_positions is not None and self.prompt_tokens + self.new_tokens > max_positions:
            raise UserError(
                f"{self.prompt_tokens} prompt and {self.new_tokens} new tokens exceed the model's context of {max_positions}.",
                "Use shorter ones.",
            )


@dataclass(frozen=True)
class Throughput:
    """Samples in tokens per second."""

    prefill: Samples
    decode: Samples

    def warnings(self) -> list[str]:
        """A sentence for each rate whose spread is high."""
        return [
            f"{name} tokens/s spread over {samples.spread:.0%} of their median (interquartile): the machine was not quiet"
            for name, samples in (("prefill", self.prefill), ("decode", self.decode))
            if samples.spread > SPREAD_WARNING
        ]


@torch.inference_mode()
def measure_throughput(loaded: LoadedModel, device: Device, protocol: ThroughputProtocol) -> Throughput:
    """Measure prefill and decoding by ``protocol``."""
    protocol.check(loaded.max_positions)
    model = loaded.model
    vocabulary = model.config.get_text_config().vocab_size
    place = device.torch_device()
    generator = torch.Generator().manual_seed(0)

    def prompts() -> torch.Tensor:
        return torch.randint(vocabulary, (protocol.batch, protocol.prompt_tokens), generator=generator).to(place)

    repeats = {"num_warmup": protocol.num_warmup, "num_repeats": protocol.num_repeats}
    prefill = repeat(lambda: _prefill(model, prompts(), use_cache=False), device, **repeats)
    return Throughput(
        prefill.map(lambda seconds: protocol.batch * protocol.prompt_tokens / seconds),
        _decode_seconds(model, device, protocol, prompts).map(
            lambda seconds: protocol.batch * protocol.new_tokens / seconds
        ),
    )


def _decode_seconds(model: Any, device: Device, protocol: ThroughputProtocol, prompts: Any) -> Samples:
    """Seconds for all new tokens of a batch, each repeat behind a prompt of its own that is not counted."""
    values: list[float] = []
    # transformers is renaming past_key_values to cache.
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    for _ in range(protocol.num_warmup + protocol.num_repeats):
        output = _prefill(model, prompts(), use_cache=True)
        state = {"cache": output[cache_name], "token": output.logits[:, -1:].argmax(-1)}

        def generate(state: dict[str, Any] = state) -> None:
            for _ in range(protocol.new_tokens):
                output = model(input_ids=state["token"], use_cache=True, **{cache_name: state["cache"]})
                state["token"] = output.logits[:, -1:].argmax(-1)

        values.extend(repeat(generate, device, num_warmup=0, num_repeats=1).values)
    return Samples(tuple(values[protocol.num_warmup :]), protocol.num_warmup)


def _prefill(model: Any, ids: torch.Tensor, use_cache: bool) -> Any:
    last_only = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}
    return model(input_ids=ids, use_cache=use_cache, **last_only)
