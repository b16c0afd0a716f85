"""FLOPs of training a decoder language model, in closed form. A multiplication and an addition count as two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from genaccel.shapes import ModelShape


@dataclass(frozen=True)
class Work:
    """FLOPs of one optimizer step by part; ``recomputed`` is what activation checkpointing computes again."""

    linear: float
    attention: float
    head: float
    adapters: float
    recomputed: float = 0.0

    @property
    def model(self) -> float:
        """What the mathematics of the model needs: the numerator of MFU."""
        return self.linear + self.attention + self.head + self.adapters

    @property
    def hardware(self) -> float:
        """What is really computed."""
        return self.model + self.recomputed


def attended_pairs(lengths: Iterable[int], window: int | None = None) -> int:
    """Pairs of a token and one that it looks at, itself included, in documents of these lengths.

    Token t (from 1) looks at t tokens, or at the last ``window`` of them.
    """
    total = 0
    for n in lengths:
        short = n if window is None else min(n, window)
        total += short * (short + 1) // 2 + (n - short) * short
    return total


def attention_flops(shape: ModelShape, lengths: Sequence[int]) -> float:
    """Scores and weighted values of all layers, forward: two products of ``head_dim`` for every attended pair and head."""
    sliding = round(shape.num_layers * shape.sliding_share)
    pairs = (shape.num_layers - sliding) * attended_pairs(lengths)
    pairs += sliding * attended_pairs(lengths, shape.sliding_window)
    return 2.0 * 2.0 * shape.head_dim * shape.num_heads * pairs


def training_work(
    shape: ModelShape,
    document_lengths: Sequence[int],
    num_targets: int | None = None,
    lora_rank: int | None = None,
    lora_targets: tuple[str, ...] = (),
    activation_checkpointing: bool = False,
) -> Work:
    """FLOPs of forward and backward pass over documents of these lengths.

    A weight that is trained costs 2 FLOPs a token forward and 4 backward; one that is frozen 2 backward, for the
    gradient of its input alone (the first layer's too, though nothing below it is trained). The head is counted for
    ``num_targets`` positions, by default all. Recomputation stops at the last tensor that was wanted: the last product of
    a layer is not repeated unless a norm, dropout (as in GPT-2) or an adapter reads what it gives or gets. Of a mixture
    those experts count that a token is sent to, and every token's router.
    """
    tokens = sum(document_lengths)
    scored = tokens if num_targets is None else num_targets
    backward = 2.0 if lora_rank is None else 1.0
    linear = 2.0 * tokens * shape.num_layers * shape.active_layer_weights
    head = 2.0 * scored * shape.embedding_weights
    attention = attention_flops(shape, document_lengths)
    adapters = 0.0 if lora_rank is None else 2.0 * tokens * shape.active_adapter_weights(lora_rank, lora_targets)
    again = linear + attention + adapters if activation_checkpointing else 0.0
    adapted = lora_rank is not None and "down_proj" in (lora_targets or ("down_proj",))
    followed = shape.norms_per_layer > 2 or not shape.gated_mlp
    # A mixture's experts end in a product with the router's weight, which wants what they give.
    if activation_checkpointing and not (followed or adapted or shape.num_experts > 1):
        outputs, inputs = shape.linear_shapes["down_proj"]
        again -= 2.0 * tokens * shape.num_layers * outputs * inputs
    return Work((1 + backward) * linear, 3 * attention, (1 + backward) * head, 3 * adapters, again)
