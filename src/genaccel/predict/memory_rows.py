"""Peak memory of published training runs, whose software keeps other things than genaccel's own loop.

What is in ``memory.py`` follows genaccel's loop to the byte. Runs of others are known by a few words, so that this is coarser:
states by strategy and precision, activations of 34 bytes a token, layer and hidden channel (the share that selective
checkpointing keeps is fitted), and the losses' copies of the logits.
"""

from __future__ import annotations

from genaccel.predict.rows import Row
from genaccel.predict.training import TrainingStep

FACTOR = 1.25
"""The 80 % interval: published peaks were within this factor."""
KEPT = 34.0
"""Bytes a token, layer and hidden channel that a gated layer of the usual proportions keeps in 16 bits."""
LOGITS = 14.0
"""Bytes of a logit at the peak: in 16 and 32 bits, their softmax and its gradient."""
FUSED = 0.78
"""What a compiler leaves of activations and logits."""


def predicted_memory(row: Row) -> tuple[float, float]:
    """(predicted peak in the row's unit, factor of its 80 % interval)."""
    assert row.question is not None
    step = row.question.asked
    assert isinstance(step, TrainingStep)
    total = training_bytes(step, row.cells["notes"], row.cells["method"])
    gibi = "gib" in row.cells["unit"].lower()
    return total / (2**30 if gibi else 1e9), FACTOR


def training_bytes(step: TrainingStep, notes: str = "", method: str = "full") -> float:
    """Bytes of one card at the peak of a step."""
    model = step.model
    per_card = model.num_weights / (step.tensor * step.pipeline)
    sharded = step.strategy.startswith("fsdp") or step.strategy == "zero3"
    shards = step.copies * step.context if sharded else 1
    half = step.stack == "torchtune"
    weights = 0.55 if method == "qlora" else 2.0 if half else 4.0
    if step.lora:
        states = per_card * weights / shards + 2.0 * model.head_weights * (method == "qlora")
    else:
        moments = 2.0 if "8bit" in notes else 4.0 if half else 8.0
        states = per_card * (weights + (2.0 if half else 4.0) + moments) / shards
    tokens = step.micro_batch * step.length / step.context / step.tensor
    channel = tokens * model.hidden_size * model.num_layers / step.pipeline
    again = step.checkpointing
    kept = KEPT * channel * (1 - again if again >= 1 else 1 - 1.2 * again)
    if again >= 1:
        kept = 2.0 * channel + KEPT * tokens * model.hidden_size
        if "act offload" in notes:
            kept /= 3
    chunked = half and (again >= 1 or "chunked" in notes)
    logits = LOGITS * tokens * model.vocab_size * (0.1 if chunked else 1.0)
    if step.compiled:
        kept, logits = kept * FUSED, logits * FUSED
    gathered = 4.0 * (model.attention_weights + model.expert_weights) if sharded else 0.0
    return states + kept + logits + gathered + 6e8
