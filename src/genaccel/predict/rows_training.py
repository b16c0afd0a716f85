"""Rows about training: how cards are divided, what is computed again, what counts as a sample."""

from __future__ import annotations

import re
from dataclasses import replace

from genaccel.predict.chips import Chip, published_chip
from genaccel.predict.decoder import Decoder
from genaccel.predict.memory_rows import training_bytes
from genaccel.predict.published_models import find_decoder
from genaccel.predict.recipes import ADAPTERS, recipe_of
from genaccel.predict.rows import Cells, Question, Unpredictable, number_in, slug
from genaccel.predict.training import TrainingStep

STACKS = {
    "llm-foundry": "llm-foundry",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "optimum-habana": "optimum-habana",
    "megatron": "megatron",
    "nemo": "megatron",
    "mlperf": "mlperf",
    "huggingface/blog": "optimum-habana",
    "lambda": "lambda",
}
TOP_LAYERS = 2
"""Layers that LLaMA-Adapter changes in optimum-habana's tests (--adapter_layers 2): nothing below goes backward."""
EVALUATED = 384
"""MLPerf's fine-tuning evaluates after so many samples, not before the third time."""
LENGTHS = {"squad": 384, "bert-base": 512, "bert": 128}


def training_question(cells: Cells) -> Question:
    """What a row about training asks. Raises ``Unpredictable`` with the reason."""
    chip = published_chip(cells["device"])
    if chip is None:
        raise Unpredictable(f"the device {cells['device']} is not in the catalogue")
    cells = {**cells, "notes": recipe_of(cells)}
    model, warnings = find_decoder(cells["model"], number_in(cells["params_b"]))
    step = _step(cells, chip, model, _stack(cells, chip))
    if "ablation: baseline" in cells["notes"]:
        raise Unpredictable("sequences are padded, and how many tokens are real is not said")
    if "memory" in cells["metric"]:
        return Question(step, 1.0, False, warnings)
    return _answer(cells, step, warnings)


def _stack(cells: Cells, chip: Chip) -> str:
    source = cells["source"].lower()
    found = next((stack for part, stack in STACKS.items() if part in source), slug(source))
    if found == "optimum-habana":
        if chip.family != "gaudi":
            return "transformers"
        if "compile" in cells["notes"]:
            return "optimum-habana-compile"
        if "zero3" in cells.get("strategy", ""):
            return "optimum-habana-zero3"
        return found + ("-eager" if re.search(r"LAZY_MODE=0|eager", cells["notes"]) else "")
    return "deepspeed" if found == "mlperf" and "zero3" in cells.get("strategy", "") else found


def _step(cells: Cells, chip: Chip, model: Decoder, stack: str) -> TrainingStep:
    notes, strategy = cells["notes"], cells.get("strategy", "").lower() or "ddp"
    cards, length = int(number_in(cells["cards"]) or 1), _length(cells)
    batch = _batch(cells, cards)
    tensor, pipeline, context = (_size(kind, strategy) for kind in ("tp", "pp", "cp"))
    unstated = stack == "mlperf" and "tp" not in strategy
    if (
        unstated and model.num_weights > 2e10
    ):  # the split is not in the logs: four cards, and as many as the batch leaves
        tensor = 1 if chip.memory_bytes > 150e9 else min(4, cards)
        while cards // (tensor * context) > batch:
            context *= 2
    copies = max(1, cards // (tensor * pipeline * context))
    per_copy = max(batch / copies, 1e-6)
    micro = _micro(cells, per_copy, pipeline, context, stack)
    precision = cells["precision"].lower()
    narrow = "fp8" in precision or unstated
    again = _checkpointing(cells, stack)
    step = TrainingStep(
        model=model,
        chip=chip,
        stack=stack,
        strategy=_sharding(strategy, stack),
        cards=cards,
        micro_batch=micro,
        accumulation=max(1.0, per_copy / micro),
        length=length,
        precision="fp8" if narrow else ("fp32" if precision.startswith("fp32") else "bf16"),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        interleaved="interleaved" in notes or stack == "megatron",
        lora=cells.get("method", "") in ADAPTERS,
        backward_share=TOP_LAYERS / model.num_layers if cells.get("method") == "llama_adapter" else 1.0,
        checkpointing=again,
        compiled="compile" in notes or stack in ("megatron", "mlperf"),
        casts=precision.startswith("amp") or stack == "llm-foundry",
        causal="bert" not in cells["model"].lower(),
        head="classification" not in notes and "squad" not in cells["model"].lower(),
        flash=not (stack.startswith("optimum-habana") and cells.get("flash_attention") == "no"),
        fewer_updates="optimizer in bwd" in notes,
        watched=_watched(cells, model, stack),
    )
    if stack.startswith("optimum-habana") and not step.flash:
        # Its models exchange parts of a sequence inside the flash kernel alone: else each card attends to its own part.
        return replace(step, length=length / context, context=1)
    if stack == "torchtune" and step.lora:  # its recipes keep activations that fit, QLoRA's never do
        method = cells["method"]
        if method == "qlora" or training_bytes(step, notes, method) > chip.memory_bytes:
            return replace(step, checkpointing=1.0)
    return step


def _watched(cells: Cells, model: Decoder, stack: str) -> bool:
    """Whether the recipe reads the loss of every step: --logging_steps 1, in those for adapters and TRL but two of them."""
    if not stack.startswith("optimum-habana") or stack == "optimum-habana-compile":
        return False
    logs = cells.get("method", "") in ADAPTERS or "TRL" in cells["notes"]
    return logs and not ("fp8" in cells["precision"] or model.num_experts)


def _length(cells: Cells) -> float:
    given = number_in(cells.get("seq_len", ""))
    if given:
        return given
    for name, length in LENGTHS.items():
        if name in cells["model"].lower():
            return float(length)
    raise Unpredictable("the length of a sequence is not given")


def _batch(cells: Cells, cards: int) -> float:
    """Sequences of a step over all cards."""
    given = number_in(cells.get("global_batch", ""))
    if given:
        return given
    batch = number_in(cells.get("batch", ""))
    if batch is None:
        raise Unpredictable("the batch is not given")
    return batch * cards if re.search(r"batch per device", cells["notes"]) else batch


def _size(kind: str, strategy: str) -> int:
    found = re.search(rf"{kind}(\d+)", strategy)
    return int(found.group(1)) if found else 1


def _micro(cells: Cells, per_copy: float, pipeline: int, context: int, stack: str) -> float:
    notes = cells["notes"]
    given = re.search(r"micro (\d+)", notes) or re.search(r"local batch (\d+)", notes)
    if given:
        return min(float(given.group(1)), per_copy)
    if pipeline > 1 or stack in ("mlperf", "megatron", "deepspeed"):
        return min(1.0, per_copy)
    if stack.startswith("optimum-habana"):
        # Its tests of adapters accumulate over two micro-batches, over eight where activations are computed again, and over
        # four where cards share a sequence.
        adapts = cells.get("method", "") in ADAPTERS and int(number_in(cells["cards"]) or 1) > 1
        return per_copy / ((8 if "checkpointing" in notes else 4 if context > 1 else 2) if adapts else 1)
    return min(per_copy, 16.0)


def _checkpointing(cells: Cells, stack: str) -> float:
    notes = cells["notes"]
    if re.search(r"act_ckpt True|gradient checkpointing|full AC|activation ckpt", notes):
        return 1.0
    if "op SAC" in notes:
        return 0.5
    if "SAC" in notes:
        return 0.35
    if stack == "torchtitan" and "-8b" in cells["model"].lower():  # the default of its file for this model
        return 0.5
    return 1.0 if stack == "deepspeed" else 0.0


def _sharding(strategy: str, stack: str) -> str:
    """The strategy as the time model names it."""
    if "zero" in strategy:
        return "zero" + next((d for d in "321" if f"zero{d}" in strategy), "3")
    if "grad_op" in strategy:
        return "fsdp-grad"
    if "fsdp" in strategy:
        return "fsdp"
    return "megatron" if stack in ("mlperf", "megatron") else "ddp"


def _answer(cells: Cells, step: TrainingStep, warnings: tuple[str, ...]) -> Question:
    """How the row's metric follows from the time of a step."""
    if ("ablation: baseline" in cells["notes"] or "padded, not" in cells["notes"]) and "tokens" in cells["metric"]:
        raise Unpredictable("sequences are padded, and how many tokens are real is not said")
    metric, unit = cells["metric"], cells["unit"].lower()
    doublings = max(0, (step.cards // step.chip.links.cards_per_node).bit_length() - 1)
    evaluating = 1.2 + 0.045 * doublings if step.stack in ("mlperf", "deepspeed") else 1.0
    if metric == "time_to_train":
        samples = re.search(r"final samples ([\d.]+)", cells["notes"])
        if samples is None:
            raise Unpredictable("how many samples it takes to converge is not given")
        number = float(samples.group(1))
        passes = number + max(0.0, number / EVALUATED - 2.6) * EVALUATED * (evaluating - 1)
        return Question(step, passes / step.samples / 60, False, warnings)
    if metric == "samples_per_s_incl_eval":
        return Question(step, step.samples / evaluating, True, warnings)
    if "tokens" in metric:
        per_card = step.cards if "per_gpu" in metric or "/gpu" in unit else 1
        return Question(step, step.tokens / per_card, True, warnings)
    if "sample" in metric or "throughput" in metric or "sequence" in unit:
        return Question(step, step.tokens / _length(cells), True, warnings)
    if "step" in metric and "time" in metric:
        return Question(step, 1e3 if unit.startswith("ms") else 1.0, False, warnings)
    raise Unpredictable(f"the metric {metric} is not known")
