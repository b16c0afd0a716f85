"""Peak memory of published training runs, whose software keeps other things than genaccel's own loop.

What is in ``memory.py`` follows genaccel's loop to the byte. Runs of others are known by a few words, so that this is coarser:
states by strategy and precision, activations of 34 bytes a token, layer and hidden channel (the share that selective
checkpointing keeps is fitted), and the losses' copies of the logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from genaccel.predict.recipes import recipe_of
from genaccel.predict.training import TrainingStep

if TYPE_CHECKING:  # rows of training ask here what fits
    from genaccel.predict.rows import Row

FACTOR = 1.13
"""The 80 % interval: published peaks were within this factor."""
KEPT = 34.0
"""Bytes a token, layer and hidden channel that a gated layer of the usual proportions keeps in 16 bits."""
LOGITS = 14.0
"""Bytes of a logit at the peak: in 16 and 32 bits, their softmax and its gradient."""
FUSED = {"torchtune": (0.78, 0.78)}
"""What a compiler leaves of activations and of logits; most software compiles the layers alone, ``FUSED_LAYERS``."""
FUSED_LAYERS = (0.87, 1.0)


def predicted_memory(row: Row) -> tuple[float, float]:
    """(predicted peak in the row's unit, factor of its 80 % interval)."""
    assert row.question is not None
    step = row.question.asked
    assert isinstance(step, TrainingStep)
    total = training_bytes(step, recipe_of(row.cells), row.cells["method"])
    gibi = "gib" in row.cells["unit"].lower()
    return total / (2**30 if gibi else 1e9), FACTOR


def training_bytes(step: TrainingStep, notes: str = "", method: str = "full") -> float:
    """Bytes that tensors of one card take at the peak of a step."""
    states, gradients = _state_bytes(step, notes, method)
    live = _live_bytes(step, notes)
    if step.checkpointing < 1:
        return states + live
    # Few activations are live, so that the peak is where gradients are whole: at the update.
    return max(states, states - gradients + live)


def _state_bytes(step: TrainingStep, notes: str, method: str) -> tuple[float, float]:
    """(weights, gradients and moments together, gradients alone) of one card."""
    model = step.model
    sharded = step.strategy.startswith("fsdp") or step.strategy == "zero3" or step.context > 1
    mine = model.num_weights / (step.tensor * step.pipeline) / (step.copies * step.context if sharded else 1)
    half = step.stack == "torchtune"
    weights = 0.55 if method == "qlora" else 2.0 if half else 4.0
    if step.lora:
        return mine * weights + 2.0 * model.head_weights * (method == "qlora"), 0.0
    gradients = mine * (2.0 if half else 4.0)
    moments = mine * (2.0 if "8bit" in notes else 4.0 if half else 8.0)
    if _paged(step, notes):  # recipe for one card: 8-bit moments that leave the card where they do not fit
        gradients, moments = 0.0, 2.0 * mine
        moments *= weights * mine + moments < 0.9 * step.chip.memory_bytes
    if "optimizer in bwd" in notes:
        gradients = 0.0
    return weights * mine + gradients + moments, gradients if half else 0.0


def _paged(step: TrainingStep, notes: str) -> bool:
    return step.stack == "torchtune" and step.cards == 1 and not step.lora and "ablation" not in notes


def _live_bytes(step: TrainingStep, notes: str) -> float:
    """Activations, logits and gathered weights of one card."""
    model = step.model
    tokens = step.micro_batch * step.length / step.context / step.tensor
    channel = tokens * model.hidden_size * model.num_layers / step.pipeline
    again = 1.0 if _paged(step, notes) else step.checkpointing
    kept = KEPT * channel * (1 - 1.2 * again) * step.pipeline  # so many micro-batches are in a pipeline at once
    if again >= 1:
        kept = 2.0 * channel / (3 if "act offload" in notes else 1) + KEPT * tokens * model.hidden_size
    chunked = step.stack == "torchtune" and ("ablation" not in notes or "chunked" in notes)
    logits = LOGITS * tokens * model.vocab_size * (0.1 if chunked else 1.0) / step.pipeline
    layers, losses = FUSED.get(step.stack, FUSED_LAYERS) if step.compiled else (1.0, 1.0)
    gathered = 4.0 * (model.attention_weights + model.expert_weights) * step.strategy.startswith(("fsdp", "zero3"))
    # An optimizer in the backward pass ends with the largest matrix, whose gradient and update are there at once.
    updated = 2 * 2.0 * model.head_weights * (not step.lora and ("optimizer in bwd" in notes or _paged(step, notes)))
    return kept * layers + logits * losses + gathered + updated
