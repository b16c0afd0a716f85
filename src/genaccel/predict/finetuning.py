"""Ask for fine-tuning on cards that are not here: checked, with memory as genaccel's own loop needs it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from genaccel.errors import UserError, unknown
from genaccel.predict.chips import Chip, chip_for, cluster_with
from genaccel.predict.constants import check_stack, corrections_of
from genaccel.predict.decoder import decoder_of
from genaccel.predict.memory import BYTES, MemoryEstimate, TrainingPlan, estimate
from genaccel.predict.prediction import Known, Prediction, predict
from genaccel.predict.training import TRAINING, TrainingStep
from genaccel.shapes import ModelShape, find_shape

STRATEGIES = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp")
STACKS = {"cuda": "llm-foundry", "hpu": "optimum-habana"}
"""The software whose constants stand for a runtime unless another is asked for: that with the most published rows."""
ATTENTION = ("auto", "flash", "math")
HEADROOM = 0.95
"""Of a card's memory that a run may be predicted to need: the rest is fragmentation and what the estimate misses."""


@dataclass(frozen=True)
class Finetuning:
    """What is asked. ``global_batch`` samples a step over all cards, ``micro_batch`` of them at once on a card.

    Without a ``micro_batch`` the largest that fits and divides is taken. ``samples`` is the whole job, for its time and cost.
    """

    model: str
    on: str
    cards: int = 8
    strategy: str = "ddp"
    global_batch: int = 64
    micro_batch: int | None = None
    length: int = 2048
    precision: str = "bf16"
    lora_rank: int | None = None
    checkpointing: bool = False
    attention: str = "auto"
    stack: str | None = None
    cluster: str | None = None
    samples: int | None = None


def check(ask: Finetuning, shape: ModelShape, chip: Chip) -> None:
    """Raise ``UserError`` for the first thing that cannot be."""
    if ask.cards < 1:
        raise UserError(f"{ask.cards} cards cannot train anything.", "Choose --cards 1 or more.")
    if ask.strategy not in STRATEGIES:
        raise unknown("strategy", ask.strategy, STRATEGIES)
    if ask.strategy == "single" and ask.cards > 1:
        raise UserError(f"The strategy single uses one card, not {ask.cards}.", "Choose --strategy ddp or fsdp.")
    if ask.precision not in (*BYTES, "fp8"):
        raise unknown("precision", ask.precision, (*BYTES, "fp8"))
    chip.peak(ask.precision, lenient=chip.runtime == "cpu")
    if ask.length < 1 or ask.global_batch < 1:
        raise UserError("Length and batch must be at least 1.", "For example --batch 64 --length 2048.")
    if ask.lora_rank is not None and ask.lora_rank < 1:
        raise UserError(f"Adapters of rank {ask.lora_rank} hold nothing.", "Choose --lora-rank 1 or more.")
    if ask.samples is not None and ask.samples < 1:
        raise UserError(f"A job of {ask.samples} samples takes no time.", "Choose --samples 1 or more.")
    if ask.attention not in ATTENTION:
        raise unknown("attention kernel", ask.attention, ATTENTION)
    check_stack(TRAINING, ask.stack)
    if shape.context is not None and ask.length > shape.context:
        raise UserError(
            f"Sequences of {ask.length} tokens are longer than {shape.name}'s context of {shape.context}.",
            "Choose a shorter --length.",
        )
    at_once = ask.cards * (ask.micro_batch or 1)
    if ask.micro_batch is not None and ask.micro_batch < 1:
        raise UserError(f"A micro-batch of {ask.micro_batch} samples holds nothing.", "Choose --micro-batch 1 or more.")
    if ask.global_batch % at_once:
        multiple = max(1, round(ask.global_batch / at_once)) * at_once
        raise UserError(
            f"A batch of {ask.global_batch} does not divide into {ask.cards} cards x {ask.micro_batch or 1} samples.",
            f"Choose --batch {multiple}.",
        )


def memory_of(ask: Finetuning, shape: ModelShape, micro_batch: int) -> MemoryEstimate:
    """What a process of genaccel's loop needs (see ``memory.py``)."""
    precision = "bf16" if ask.precision == "fp8" else ask.precision
    return estimate(
        shape,
        TrainingPlan(
            strategy=ask.strategy,
            processes=ask.cards,
            micro_batch=micro_batch,
            length=ask.length,
            precision=precision,
            lora_rank=ask.lora_rank,
            activation_checkpointing=ask.checkpointing,
            attention="math" if ask.attention == "math" else "flash",
            accumulates=ask.global_batch > ask.cards * micro_batch,
        ),
    )


def largest_micro_batch(ask: Finetuning, shape: ModelShape, memory_bytes: float) -> int | None:
    """The largest micro-batch (up to 64) that divides the batch and fits; None when not even one sample does."""
    per_card = ask.global_batch // ask.cards
    sizes = [size for size in range(1, min(per_card, 64) + 1) if per_card % size == 0]
    fitting = [s for s in sizes if memory_of(ask, shape, s).total_bytes <= HEADROOM * memory_bytes]
    return max(fitting, default=None)


def cards_that_would_do(ask: Finetuning, shape: ModelShape, memory_bytes: float) -> str:
    """A hint: how many cards would do, with which strategy."""
    for strategy in dict.fromkeys((ask.strategy, "fsdp", "zero3")):
        for checkpointing in (ask.checkpointing, True):
            for cards in (2**i for i in range(11)):
                other = replace(
                    ask, strategy=strategy, cards=cards, global_batch=cards, checkpointing=checkpointing, micro_batch=1
                )
                if strategy in ("single", "ddp") and cards > 1:
                    continue
                if memory_of(other, shape, 1).total_bytes <= HEADROOM * memory_bytes:
                    again = " with activation checkpointing" if checkpointing and not ask.checkpointing else ""
                    return f"{cards} cards would do with {strategy}{again}, one sample at a time."
    return "Not even 1,024 cards would do: shorten --length or use LoRA."


def predict_finetuning(ask: Finetuning) -> Prediction:
    """Time, memory and the rest of one configuration; ``problem`` says why it cannot run."""
    cluster = cluster_with(ask.cluster, ask.cards)
    chip, shape = chip_for(ask.on, ask.cluster, max(1, ask.cards)), find_shape(ask.model)
    check(ask, shape, chip)
    micro = ask.micro_batch or (largest_micro_batch(ask, shape, chip.memory_bytes) if chip.memory_bytes else 1)
    memory = memory_of(ask, shape, micro or 1)
    problem = None
    if chip.memory_bytes and memory.total_bytes > HEADROOM * chip.memory_bytes:
        problem = (
            f"{shape.name} needs {memory.total_bytes / 1e9:.0f} GB a card with {ask.strategy} on {ask.cards} "
            f"(predicted), but {chip.name} has {chip.memory_bytes / 1e9:.0f} GB"
        )
    step = step_of(ask, shape, chip, micro or 1)
    tokens = float(ask.global_batch * ask.length)
    return predict(
        "finetune",
        step,
        Known(
            settings={
                "model": shape.name,
                "on": chip.name,
                "cards": ask.cards,
                "strategy": ask.strategy,
                "batch": ask.global_batch,
                "micro_batch": micro or 1,
                "length": ask.length,
                "precision": ask.precision,
                "lora_rank": ask.lora_rank,
                "activation_checkpointing": ask.checkpointing,
                "attention": ask.attention,
            },
            chip=chip,
            cards=ask.cards,
            precision=ask.precision,
            flops=step.model_flops,
            rates={"tokens_per_second": tokens, "samples_per_second": float(ask.global_batch)},
            memory_bytes=memory.total_bytes,
            problem=problem,
            hint=cards_that_would_do(ask, shape, chip.memory_bytes) if problem else "",
            memory_parts=memory.as_dict(),
            job_steps=None if ask.samples is None else ask.samples / ask.global_batch,
            dollars_per_card_hour=cluster.dollars_per_card_hour if cluster else None,
            warnings=_warnings(chip),
        ),
    )


def _warnings(chip: Chip) -> tuple[str, ...]:
    if chip.reference:
        return (
            f"no peak of {chip.name} was published: its rates are fitted to published runs alone, and it has no MFU",
        )
    return ()


def _usual_stack(chip: Chip) -> str:
    """genaccel's own where records of it were fitted on this card, else the runtime's."""
    if corrections_of(TRAINING).has("together", f"{chip.name} genaccel"):
        return "genaccel"
    return STACKS.get(chip.runtime or "cuda", "genaccel")


def step_of(ask: Finetuning, shape: ModelShape, chip: Chip, micro_batch: int) -> TrainingStep:
    """The optimizer step as its time model sees it."""
    accumulation = ask.global_batch / (ask.cards * micro_batch)
    share = None if ask.lora_rank is None else shape.adapter_weights(ask.lora_rank) / shape.num_parameters
    return TrainingStep(
        model=decoder_of(shape),
        chip=chip,
        stack=ask.stack or _usual_stack(chip),
        strategy="ddp" if ask.strategy == "single" else ask.strategy,
        cards=ask.cards,
        micro_batch=micro_batch,
        accumulation=accumulation,
        length=ask.length,
        precision=ask.precision,
        lora=ask.lora_rank is not None,
        checkpointing=1.0 if ask.checkpointing else 0.0,
        casts=ask.precision != "fp32" and ask.lora_rank is None,
        flash=ask.attention != "math",
        trained_share=share,
    )
