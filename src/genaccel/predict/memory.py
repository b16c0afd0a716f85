"""Memory of one process in training, part by part: an estimate, made before anything is loaded.

What is counted follows ``train/``: fp32 weights with autocast under single and DDP, fp32 shards gathered in half
precision under FSDP, DeepSpeed's fp32 copy beside half-precision weights under ZeRO. Activations are those that
PyTorch keeps for the backward pass of transformers' Llama-like layers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from genaccel.shapes import ModelShape

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
RUNTIME_BYTES = 600_000_000
"""Interpreter, torch, transformers and their buffers on a host (measured: 0.5 to 0.7 GB); CUDA's context is alike."""
BUCKET_BYTES = 25_000_000
LORA_INPUTS = 1.0


@dataclass(frozen=True)
class TrainingPlan:
    """A run as the estimate sees it. ``lora_rank`` is None for full fine-tuning; ``attention`` flash keeps no scores."""

    strategy: str
    processes: int
    micro_batch: int
    length: int
    precision: str = "fp32"
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    activation_checkpointing: bool = False
    attention: str = "auto"


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one process at its peak, by part. Predicted."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    communication: float
    runtime: float

    @property
    def total_bytes(self) -> float:
        """The sum of all parts."""
        return float(sum(asdict(self).values()))

    def largest_parts(self, num: int = 3) -> list[tuple[str, float]]:
        """The parts that matter most."""
        return sorted(asdict(self).items(), key=lambda part: -part[1])[:num]

    def as_dict(self) -> dict[str, Any]:
        """For records."""
        return asdict(self) | {"total": self.total_bytes}


def estimate(shape: ModelShape, plan: TrainingPlan) -> MemoryEstimate:
    """The memory that a process of ``plan`` needs to train a model of ``shape``."""
    half = BYTES[plan.precision]
    everything = shape.num_parameters
    trained = everything if plan.lora_rank is None else shape.adapter_weights(plan.lora_rank, plan.lora_targets)
    frozen = 0 if plan.lora_rank is None else everything
    shards = {"fsdp": (True, True, True), "zero3": (True, True, True), "zero2": (False, True, True)}.get(
        plan.strategy, (False, False, plan.strategy == "zero1")
    )
    share_weights, share_gradients, share_optimizer = (1 / plan.processes if s else 1.0 for s in shards)
    zero = plan.strategy.startswith("zero")
    # DeepSpeed computes on half-precision weights and updates fp32 ones; in fp32 it keeps a second copy all the same.
    # Frozen weights are held in the precision that is computed with.
    weights = share_weights * ((half if zero else 4) * trained + half * frozen)
    master = 4.0 * trained * share_optimizer if zero else 0.0
    return MemoryEstimate(
        weights=weights,
        gradients=share_gradients * (half if zero else 4) * trained,
        optimizer=master + 8.0 * trained * share_optimizer,
        activations=_activations(shape, plan),
        logits=_logits(shape, plan),
        communication=_communication(shape, plan, trained),
        runtime=RUNTIME_BYTES,
    )


def _activations(shape: ModelShape, plan: TrainingPlan) -> float:
    """What the backward pass needs, of all layers or, with checkpointing, of one layer and every layer's input."""
    tokens, element = plan.micro_batch * plan.length, BYTES[plan.precision]
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    # Two norms keep their input in fp32 and its normalized form; linear layers keep their input; rotary embedding and
    # attention keep queries, keys, values and output; the gated MLP keeps gate, its activation, up and their product.
    norms = shape.norms_per_layer * (4 + element) * shape.hidden_size
    attention = element * (3 * queries + 4 * keys)
    mlp = element * (4 if shape.gated_mlp else 2) * shape.intermediate_size
    residual = 2 * element * shape.hidden_size
    layer: float = tokens * (norms + attention + mlp + residual)
    if plan.attention == "math" or shape.attention_softcap is not None:
        layer += 2 * element * plan.micro_batch * shape.num_heads * plan.length**2
    if plan.lora_rank is not None:
        shapes = shape.linear_shapes
        inputs = sum(shapes[name][1] for name in plan.lora_targets or shapes if name in shapes)
        layer += LORA_INPUTS * tokens * (4 * plan.lora_rank * len(shapes) + (4 - element) * inputs)
    if plan.activation_checkpointing:
        return layer + shape.num_layers * tokens * element * shape.hidden_size
    return shape.num_layers * layer


def _logits(shape: ModelShape, plan: TrainingPlan) -> float:
    """Logits in the computing precision and in fp32, their softmax, and the gradient: 3 fp32 copies at the peak."""
    extra = 0 if plan.precision == "fp32" else BYTES[plan.precision]
    return float(plan.micro_batch * plan.length * shape.vocab_size * (3 * 4 + extra))


def _communication(shape: ModelShape, plan: TrainingPlan, trained: int) -> float:
    """DDP's buckets; the layers that FSDP has gathered (this one, the next, and the embedding); ZeRO's buckets."""
    element = BYTES[plan.precision]
    if plan.strategy == "ddp":
        return float(min(4 * trained, BUCKET_BYTES))
    if plan.strategy == "fsdp":
        gathered = element * (2 * shape.layer_weights + shape.embedding_weights * (1 if shape.tied_embeddings else 2))
        reduced = 4 * max(shape.layer_weights, shape.embedding_weights) if plan.lora_rank is None else 0
        return float(gathered + reduced)
    if plan.strategy.startswith("zero"):
        live = element * (2 * shape.layer_weights + shape.embedding_weights) if plan.strategy == "zero3" else 0
        return float(live + 2 * element * min(50_000_000, trained))
    return 0.0
