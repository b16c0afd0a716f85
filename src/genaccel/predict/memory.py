"""Memory of one process in training, part by part: an estimate, made before anything is loaded.

What is counted follows ``train/``: fp32 weights with autocast under single and DDP, fp32 shards gathered in half
precision under FSDP, DeepSpeed's fp32 copy beside half-precision weights under ZeRO. Activations are the tensors that
PyTorch keeps for the backward pass of transformers' models; tests compare them with those that it really keeps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from genaccel.shapes import ModelShape

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
RUNTIME_BYTES = 600_000_000
"""Interpreter, torch, transformers and their buffers on a host (measured: 0.5 to 0.7 GB); CUDA's context is alike."""
HELD_FREE_ADAPTERS, HELD_FREE_FULL = 1.0, 0.3
"""What glibc holds free beside a run on a host, in all layers' activations: less in full fine-tuning, whose gradients fit where
activations were. Fitted to twelve runs of SmolLM2-135M of 256 to 2,048 tokens, whose estimates are 0.97 to 1.16 of the peak."""
MAPPED_BYTES = 32 << 20
"""Tensors from here on are handed back as soon as they are freed (``devices/cpu.py`` sets glibc's threshold)."""
ZERO_BUCKET = 50_000_000
"""Elements that DeepSpeed reduces or gathers at once, as ``train/zero3.py`` sets it; ten such may be live."""


@dataclass(frozen=True)
class TrainingPlan:
    """A run as the estimate sees it.

    ``processes`` are those that shard among themselves; ``lora_rank`` is None for full fine-tuning; without
    ``lora_targets`` all linear layers have adapters; ``accumulates`` says that a step has several micro-batches;
    ``host`` says that it runs on a CPU, whose allocator does not give back all that was freed.
    """

    strategy: str
    processes: int
    micro_batch: int
    length: int
    precision: str = "fp32"
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    activation_checkpointing: bool = False
    attention: str = "auto"
    reshard: bool = True
    accumulates: bool = False
    host: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro_batch * self.length

    @property
    def element(self) -> int:
        """Bytes of a number in the precision that is computed with."""
        return BYTES[self.precision]

    @property
    def autocasts(self) -> bool:
        """Whether torch's autocast casts what each operation reads; sharding strategies cast weights instead."""
        return self.strategy in ("single", "ddp") and self.precision != "fp32"

    @property
    def frozen_element(self) -> int:
        """Bytes of a frozen weight where it is kept: in fp32 unless the run holds the base model in half precision."""
        if self.strategy.startswith("zero"):
            return self.element
        return 2 if self.precision == "bf16" else 4

    @property
    def stream_element(self) -> int:
        """Bytes of a number in the residual stream: that of the weights, since autocast keeps sums and norms wide."""
        if not self.autocasts:
            return self.element
        return 4 if self.lora_rank is None else self.frozen_element


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one process at its peak, by part. Predicted.

    ``activations`` include the half-precision copies of weights that autocast makes. ``not_at_once`` is negative: what the
    other parts count together although it is there one after the other. ``held_free`` was freed, but not given back.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    communication: float
    runtime: float
    not_at_once: float = 0.0
    held_free: float = 0.0

    @property
    def total_bytes(self) -> float:
        """The sum of all parts."""
        return float(sum(asdict(self).values()))

    def largest_parts(self, num: int = 3) -> list[tuple[str, float]]:
        """The parts that matter most."""
        return sorted(asdict(self).items(), key=lambda part: -part[1])[:num]

    def free_share(self, memory_bytes: float) -> float:
        """The share of ``memory_bytes`` left free; negative when the run does not fit."""
        return 1 - self.total_bytes / memory_bytes

    def as_dict(self) -> dict[str, Any]:
        """For records."""
        return asdict(self) | {"total": self.total_bytes}


def estimate(shape: ModelShape, plan: TrainingPlan) -> MemoryEstimate:
    """The memory that a process of ``plan`` needs to train a model of ``shape``."""
    everything, full = shape.num_parameters, plan.lora_rank is None
    trained = everything if plan.lora_rank is None else shape.adapter_weights(plan.lora_rank, plan.lora_targets)
    frozen = 0 if full else everything
    share_weights, share_gradients, share_optimizer = _shares(plan)
    zero = plan.strategy.startswith("zero")
    # DeepSpeed computes on half-precision weights and updates fp32 ones; in fp32 it keeps a second copy all the same.
    weights = share_weights * ((plan.element if zero else 4) * trained + plan.frozen_element * frozen)
    gradients = share_gradients * (plan.element if zero else 4) * trained
    master = 4.0 * trained * share_optimizer if zero else 0.0
    activations, logits = activation_bytes(shape, plan), _head_bytes(shape, plan)
    copies = _cast_weights(shape, plan)
    beyond = _peak(shape, plan, gradients, activations, logits) - (gradients + activations + logits + copies)
    return MemoryEstimate(
        weights=weights,
        gradients=gradients,
        optimizer=master + 8.0 * trained * share_optimizer,
        activations=activations + copies,
        logits=logits + max(0.0, beyond),  # beyond the other parts are only the gradients of a tied head
        communication=_communication(shape, plan, trained),
        runtime=RUNTIME_BYTES,
        not_at_once=min(0.0, beyond),
        held_free=_held_free(shape, plan) if plan.host else 0.0,
    )


def _held_free(shape: ModelShape, plan: TrainingPlan) -> float:
    """Holes in a host's heap: aligned blocks seldom go where others of their size were, so layers take fresh memory.

    Recomputed activations leave as many as kept ones.
    """
    if plan.tokens * plan.element * shape.hidden_size >= MAPPED_BYTES:
        return 0.0
    share = HELD_FREE_FULL if plan.lora_rank is None else HELD_FREE_ADAPTERS
    return share * activation_bytes(shape, replace(plan, activation_checkpointing=False))


def _peak(shape: ModelShape, plan: TrainingPlan, gradients: float, activations: float, logits: float) -> float:
    """Gradients, activations, logits and cast weights at the moment when they are most together.

    Gradients come as the rest goes, unless they are held: over accumulation, in DDP's buckets, by DeepSpeed.
    """
    copies = _cast_weights(shape, plan)
    recomputed = _recomputed_bytes(shape, plan) if plan.activation_checkpointing else 0.0
    kept = activations - recomputed
    loss, last_layer = kept + logits + copies, kept + recomputed
    share = gradients / shape.num_parameters if plan.lora_rank is None else 0.0
    embedding = share * shape.embedding_weights
    # A tied embedding has two gradients, which are whole before autograd adds them, in fp32 to a third.
    added = embedding * (2 if plan.element == 4 else 1) if shape.tied_embeddings else 0.0
    if plan.accumulates or plan.strategy not in ("single", "fsdp"):
        return gradients + max(loss, last_layer, added + embedding if shape.tied_embeddings else 0.0)
    # The first layer is the last to be gone through; its own gradients and an untied embedding's are still to come.
    to_come = share * shape.layer_weights + (0.0 if shape.tied_embeddings else embedding)
    return max(loss, last_layer, gradients - to_come + recomputed, gradients + added)


def _shares(plan: TrainingPlan) -> tuple[float, float, float]:
    """Shares of the weights, gradients and optimizer that one process holds."""
    part = 1 / plan.processes
    shares = {
        "fsdp": (part, part, part),
        "zero3": (part, part, part),
        "zero2": (1.0, part, part),
        "zero1": (1.0, 1.0, part),
    }
    weights, gradients, optimizer = shares.get(plan.strategy, (1.0, 1.0, 1.0))
    # FSDP holds whole gradients at home until the step's last micro-batch exchanges them.
    return weights, 1.0 if plan.strategy == "fsdp" and plan.accumulates else gradients, optimizer


def _cast_weights(shape: ModelShape, plan: TrainingPlan) -> float:
    """The half-precision copies of fp32 matrices that autocast makes and the backward pass reads."""
    wide = plan.lora_rank is None or plan.frozen_element == 4
    matrices = shape.num_layers * shape.layer_weights + shape.embedding_weights
    return float(plan.element * matrices) if plan.autocasts and wide else 0.0


def activation_bytes(shape: ModelShape, plan: TrainingPlan) -> float:
    """What the backward pass needs, of all layers or, with checkpointing, of one layer and every layer's input."""
    gain = plan.stream_element if shape.gated_mlp else 0
    last = plan.tokens * shape.hidden_size * (4 + (gain + plan.element if plan.lora_rank is None else 0))
    if plan.activation_checkpointing:
        inputs = shape.num_layers * plan.tokens * plan.stream_element * shape.hidden_size
        return _recomputed_bytes(shape, plan) + last + inputs
    return shape.num_layers * _layer_bytes(shape, plan) + last


def _layer_bytes(shape: ModelShape, plan: TrainingPlan) -> float:
    """What the backward pass needs of one layer."""
    wide = _norms(shape, plan) + _linear_inputs(shape, plan) + _mlp(shape, plan)
    return plan.tokens * wide + _attention(shape, plan)


def _recomputed_bytes(shape: ModelShape, plan: TrainingPlan) -> float:
    """A layer gone through again under checkpointing, and the gradients of its three widest activations."""
    return _layer_bytes(shape, plan) + 3 * plan.tokens * plan.element * shape.intermediate_size


def _norms(shape: ModelShape, plan: TrainingPlan) -> float:
    """Bytes a token. RMSNorm keeps its input in fp32 and, for a gain that is trained, the input normalized."""
    normalized = plan.stream_element if plan.lora_rank is None else 0
    if not shape.gated_mlp:  # LayerNorm is one operation, which keeps its input only
        return shape.norms_per_layer * plan.stream_element * shape.hidden_size
    width = shape.norms_per_layer * shape.hidden_size
    if shape.qk_norm:
        width += (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    return (4 + normalized) * width


def _linear_inputs(shape: ModelShape, plan: TrainingPlan) -> float:
    """Bytes a token: the inputs of trained matrices, and the narrow outputs of adapters.

    Queries, keys and values read one tensor, as do gate and up; autocast casts it for each.
    """
    inputs = {name: size for name, (_, size) in shape.linear_shapes.items()}
    if plan.lora_rank is None:
        targets, narrow = tuple(inputs), 0
    else:
        targets = tuple(name for name in plan.lora_targets if name in inputs) or tuple(inputs)
        narrow = plan.lora_rank * len(targets)
    if plan.autocasts and shape.gated_mlp:
        return plan.element * (sum(inputs[name] for name in targets) + narrow)
    first = {"k_proj": "q_proj", "v_proj": "q_proj", "gate_proj": "up_proj"}
    return plan.element * (sum(inputs[name] for name in {first.get(name, name) for name in targets}) + narrow)


def _mlp(shape: ModelShape, plan: TrainingPlan) -> float:
    """Bytes a token: gate, its activation and up; GPT-2's gelu is written out and keeps four tensors."""
    return (3 if shape.gated_mlp else 4) * plan.element * shape.intermediate_size


def _attention(shape: ModelShape, plan: TrainingPlan) -> float:
    """Bytes of a layer: queries, keys, values, and what the kernel keeps of the scores. Documents are as long as rows."""
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    scores = plan.micro_batch * shape.num_heads * plan.length**2
    if shape.attention_softcap is not None:  # written out: capped scores, their softmax in fp32, and that cast
        kept = plan.element + 4 + (plan.element if plan.element < 4 else 0)
        return float(plan.element * plan.tokens * 3 * queries + kept * scores)
    if plan.attention == "math":  # torch's own computes in fp32 on keys and values repeated for every head
        return 4.0 * (plan.tokens * 3 * queries + scores)
    # The output is the input of o_proj, unless that is frozen or reads it through a cast of its own.
    targets = plan.lora_targets or ("o_proj",)
    apart = plan.lora_rank is not None and (plan.autocasts or "o_proj" not in targets)
    return float(plan.element * plan.tokens * (queries + 2 * keys + queries * apart))


def _head_bytes(shape: ModelShape, plan: TrainingPlan) -> float:
    """Three fp32 copies of the logits at the peak: their log-softmax and two gradients. Or, after them, the head's own.

    The gradient of the head, the largest matrix, is made whole before it is added to one that is there already.
    """
    elements = plan.tokens * shape.vocab_size
    # Gemma 2 caps its logits too and keeps the tanh.
    copies = 3 * 4 + (plan.element if shape.attention_softcap is not None else 0)
    added = plan.lora_rank is None and (plan.accumulates or plan.strategy == "ddp")
    return float(max(copies * elements, 4 * elements + 4 * shape.embedding_weights * added))


def _communication(shape: ModelShape, plan: TrainingPlan, trained: int) -> float:
    """The layers that FSDP has gathered (this one, the next, and the embeddings), or DeepSpeed's buckets and live layers.

    DDP's buckets are the gradients themselves.
    """
    element, layer = plan.element, shape.layer_weights
    outer = shape.embedding_weights * (1 if shape.tied_embeddings else 2)
    if plan.strategy == "fsdp":
        gathered = element * ((2 if plan.reshard else shape.num_layers) * layer + outer)
        if plan.lora_rank is not None:
            return float(gathered)
        # Whole gradients of a layer, and of the embeddings until the end (under accumulation all are held and counted);
        # one of them is summed in fp32.
        whole = 0 if plan.accumulates else element * (layer + outer)
        return float(gathered + whole + 4 * max(layer, outer))
    if plan.strategy.startswith("zero"):
        live = min(shape.num_parameters, max(10 * ZERO_BUCKET, 2 * layer + outer)) if plan.strategy == "zero3" else 0
        return float(element * (live + 2 * min(ZERO_BUCKET, trained)))
    return 0.0
