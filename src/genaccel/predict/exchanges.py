"""What the cards of a training step send each other, by the strategy that divides them. Bytes and seconds of one card.

DDP sums gradients once a step; ZeRO-3 and FSDP gather every weight for each forward and backward pass and scatter every
gradient; ZeRO-1 and -2 scatter gradients and gather the updated weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genaccel.predict.communication import all_reduce_bytes, gather_bytes

if TYPE_CHECKING:
    from genaccel.predict.training import TrainingStep


def shards_optimizer(t: TrainingStep) -> bool:
    """Whether a card updates its share of the weights only."""
    return t.strategy.startswith(("fsdp", "zero", "megatron"))


def data_seconds(t: TrainingStep, mine: float) -> float:
    """For what a card sends to those that see other data, ``mine`` being the weights that it would hold unsharded."""
    cards, links = t.copies * t.context, t.chip.links
    rate = links.rate(cards, t.tensor)
    gathering = links.gathering or rate
    gradients = t.element * mine * t.trained / t.model.num_weights
    if t.strategy == "ddp" and t.casts:
        gradients *= 2  # of weights in fp32
    if t.strategy.startswith("fsdp") or t.strategy == "zero3":
        gathers = 1 if t.strategy == "fsdp-grad" else 2
        gathered, summed = gather_bytes(gathers * t.element * mine, cards), gather_bytes(gradients, cards)
        return t.accumulation * (gathered / gathering + summed / rate)
    if t.strategy.startswith("zero"):
        summed = (all_reduce_bytes if _sums_whole(t) else gather_bytes)(gradients, cards)
        return t.accumulation * summed / rate + gather_bytes(gradients, cards) / gathering
    return all_reduce_bytes(gradients, cards) / rate


def unhidden_share(t: TrainingStep) -> float:
    """Of what is sent for the data: nothing is computed while the first layer's weights are gathered, or updated ones."""
    if t.strategy.startswith("fsdp") or t.strategy == "zero3":
        return 1.0 / t.model.num_layers
    if _sums_whole(t):  # and "overlap_comm": false
        return 1.0
    # ZeRO-1 and -2 gather the updated weights when there is nothing left to compute in the step.
    return 1.0 / (t.accumulation + 1) if t.strategy.startswith("zero") else 0.0


def messages(t: TrainingStep) -> float:
    """Collectives of a step, each of which has to start, whatever its size.

    DDP has buckets of 25 MB, ZeRO gathers as well what it reduces, FSDP and ZeRO-3 gather and reduce every layer.
    """
    gradients = t.element * t.trained
    if t.copies * t.context == 1:
        return 0.0
    if t.strategy.startswith("fsdp") or t.strategy == "zero3":
        return 3.0 * t.model.num_layers * t.accumulation
    buckets = max(1.0, gradients / 25e6)
    return buckets * (1 + t.accumulation) if t.strategy.startswith("zero") else buckets


def tensor_bytes(t: TrainingStep) -> float:
    """Sums of activations over tensor-parallel cards: two a layer forward, two backward, two when computed again."""
    if t.tensor == 1:
        return 0.0
    tokens = t.samples / t.copies * t.length / t.context
    sums = (4 + 2 * (t.checkpointing >= 1)) * t.model.num_layers / t.pipeline
    return sums * all_reduce_bytes(t.element * tokens * t.model.hidden_size, t.tensor)


def context_bytes(t: TrainingStep) -> float:
    """Keys and values that go round the cards which share a sequence; attention hides two thirds of it."""
    if t.context == 1:
        return 0.0
    tokens = t.samples / t.copies * t.length / t.context
    return (
        0.3
        * 3
        * t.model.num_layers
        * tokens
        * (t.context - 1)
        * 2
        * t.element
        * t.model.num_kv_heads
        * t.model.head_dim
    )


def _sums_whole(t: TrainingStep) -> bool:
    """ZeRO-2 as optimum-habana configures it ("reduce_scatter": false): every card gets all sums, and keeps its share."""
    return t.strategy == "zero2" and t.stack.startswith("optimum-habana")
