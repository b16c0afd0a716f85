"""Everything about a fine-tuning run that can be checked before weights are loaded and processes started."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from genaccel import devices, models
from genaccel.console import format_bytes
from genaccel.devices import hpu
from genaccel.errors import UserError
from genaccel.finetune.batches import DataPlan
from genaccel.finetune.config import FinetuneConfig
from genaccel.finetune.data import TokenizedData, split, tokenize, tokenizer_hash
from genaccel.finetune.datasets import load_dataset_named
from genaccel.hardware import find_cluster
from genaccel.predict.memory import MemoryEstimate, TrainingPlan, estimate
from genaccel.shapes import ModelShape, find_shape, shape_of_config
from genaccel.store import check_output_folder, check_writable
from genaccel.train import attention
from genaccel.train.config import TrainConfig
from genaccel.train.engine import DTYPES

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.models import ModelSource

NO_SHARE = 1.05  # an estimate may be this much above what there is before a run is refused: it is an estimate


@dataclass(frozen=True)
class Prepared:
    """A checked run: names resolved, data tokenized, memory estimated; no weight was loaded."""

    config: FinetuneConfig
    train_config: TrainConfig
    device: Device
    source: ModelSource
    shape: ModelShape
    tokenizer: Any
    data: TokenizedData
    held_out: TokenizedData | None
    plan: DataPlan
    num_steps: int
    memory: MemoryEstimate
    warnings: tuple[str, ...] = ()


def prepare(config: FinetuneConfig, train_config: TrainConfig) -> Prepared:
    """Check and tokenize; the first problem is a ``UserError``."""
    config.check()
    train_config.check()
    hpu.choose_mode(train_config.gaudi_mode)  # before anything imports Gaudi's software
    device = devices.get(config.device)
    check_writable(config.runs)
    if config.output is not None:
        check_output_folder(config.output)
    if train_config.checkpoints is not None:
        check_writable(train_config.checkpoints)
    if train_config.precision == "fp16" and device.NAME == "cpu":
        raise UserError("fp16 training needs loss scaling, which a CPU does not have.", "Use --precision bf16 or fp32.")
    source = models.resolve(config.model)
    model_config = json.loads((source.folder / "config.json").read_text())
    shape = shape_of_config(model_config, source.name)
    _check_length(config, shape)
    softcap = model_config.get("attn_logit_softcapping")
    attention.check(train_config.attention, device, DTYPES[train_config.precision], shape.head_dim, softcap)
    asked = replace(training_plan(config, train_config), host=device.NAME == "cpu")
    memory = estimate(shape, asked)
    check_memory(memory, device.memory_bytes(), train_config.processes if device.NAME == "cpu" else 1, device.NAME)
    tokenizer = models.load_tokenizer(source)
    dataset = load_dataset_named(config.dataset, config.data_dir)
    hashed, cache = tokenizer_hash(source.folder), models.cache_folder() / "tokenized"
    data = tokenize(dataset, tokenizer, hashed, config.length, cache, config.too_long)
    warnings = data.warnings(config.dataset, config.length)
    data, held_out = split(data, config.holdout, train_config.seed) if config.holdout else (data, None)
    plan = DataPlan(data, config.length, config.packing, train_config.global_batch, train_config.seed)
    num_steps = train_config.steps or max(1, plan.num_samples // train_config.global_batch)
    return Prepared(
        config, train_config, device, source, shape, tokenizer, data, held_out, plan, num_steps, memory, warnings
    )


def _check_length(config: FinetuneConfig, shape: ModelShape) -> None:
    if shape.context is not None and config.length > shape.context:
        raise UserError(
            f"--length is {config.length}, but {shape.name} was made for {shape.context} tokens.",
            "Choose a shorter one.",
        )


def training_plan(config: FinetuneConfig, train_config: TrainConfig) -> TrainingPlan:
    """The run as the memory estimate sees it."""
    return TrainingPlan(
        strategy=train_config.strategy,
        processes=train_config.shard_processes or train_config.processes,
        micro_batch=train_config.micro_batch_size,
        length=config.length,
        precision=train_config.precision,
        lora_rank=config.lora_rank if config.lora else None,
        lora_targets=config.lora_targets,
        activation_checkpointing=train_config.activation_checkpointing,
        reshard=train_config.reshard,
        # Sharded gradients are kept whole while micro-batches accumulate, but only where weights are kept, too.
        accumulates=not train_config.reshard
        and train_config.global_batch > train_config.processes * train_config.micro_batch_size,
        attention=train_config.attention,
    )


def check_memory(memory: MemoryEstimate, available: int | None, sharing: int, where: str) -> None:
    """Refuse a run whose estimate (predicted) exceeds the memory of one device, or of a CPU shared by processes."""
    if available is None:
        return
    share = available / sharing
    if memory.total_bytes > share * NO_SHARE:
        parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in memory.largest_parts())
        raise UserError(
            f"This run would need about {format_bytes(memory.total_bytes)} a process (predicted: {parts}), "
            f"but {where} has {format_bytes(share)} for each.",
            "Shard it (--strategy fsdp or zero3), add --lora or --activation-checkpointing, or a smaller --micro-batch.",
        )


def check_on_cluster(config: FinetuneConfig, train_config: TrainConfig) -> tuple[MemoryEstimate, float, int]:
    """Validate a run for a cluster of the catalogue without weights or data.

    Returns the estimate, the share of a card that it leaves free, and the nodes that the processes take.
    """
    config.check()
    train_config.check()
    cluster = find_cluster(config.cluster or "")
    shape = find_shape(config.model)
    _check_length(config, shape)
    memory = estimate(shape, training_plan(config, train_config))
    card = cluster.card.memory_bytes
    check_memory(memory, card, 1, f"a {cluster.card.name} of {cluster.name}")
    nodes = -(-train_config.processes // cluster.cards_per_node)
    return memory, 1 - memory.total_bytes / card if card else float("nan"), nodes
