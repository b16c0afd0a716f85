"""What must be equal for two numbers to be compared: the workload, its data, the protocol, the settings, the machine.

Everything that a record says of these becomes a field with a name in plain words. An axis of a comparison is one field,
and owns those that mean nothing beside it: two accelerators also differ in their threads, two precisions in their plans.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genaccel.compare.numbers import known
from genaccel.hardware import accelerator_of
from genaccel.records import Figure, Record

JUDGING, TRAINING = ("quantize", "evaluate"), ("finetune", "superres")
AXES: dict[str, tuple[str, ...]] = {
    "accelerator": ("threads",),
    "processes": (),
    "strategy": ("reshard", "shard_processes", "bucket_mb"),
    "attention": (),
    "precision": ("mode", "plan"),
    "mode": ("precision", "plan", "checkpoint", "lora_rank", "lora_alpha", "lora_targets"),
    "model": ("weights",),
}
"""The axes that have a meaning of their own, and what each owns. Any other field is an axis by its name."""
WORKLOAD = (
    "workload", "model", "weights", "data", "protocol", "accelerator", "threads", "processes", "length", "packing",
    "global_batch", "patch", "factor",
)  # fmt: skip
"""Fields that say what is done, and where; the others say how, and may be chosen."""
BOOKKEEPING = frozenset(
    [
        "model",
        "dataset",
        "data",
        "data_dir",
        "output",
        "runs",
        "device",
        "config",
        "checkpoints",
        "save_every",
        "keep",
        "timeout",
        "cluster",
        "ask",
        "processes",
        "warmup_steps",
        "micro_batch",
        "lora",
        "minutes",
        "preset",
        "process",
    ]
)  # names of files and habits; what matters of them is a field under another name
COURSE = frozenset(
    [
        "learning_rate",
        "schedule",
        "warmup_samples",
        "weight_decay",
        "clip",
        "ema",
        "seed",
        "steps",
        "holdout",
        "minutes",
        "too_long",
    ]
)  # where training leads; a step takes no longer for it
SPEED = (
    "_per_second",
    "_per_second_per_device",
    "_seconds",
    "_seconds_p95",
    "_bytes",
    "_calls",
    "mfu",
    "_joules",
    "_flops",
)


@dataclass(frozen=True)
class Measurement:
    """A record's figure and the fields that it is aligned by."""

    record: Record
    figure: Figure
    value: float
    fields: dict[str, str]


def measurements(records: Sequence[Record], metric: str) -> list[Measurement]:
    """``metric`` of every record that knows it, oldest first."""
    weights = _known_weights(records)
    found = []
    for record in records:
        number, figure = known(record, metric), record.figure(metric)
        if number is not None and figure is not None:
            found.append(Measurement(record, figure, number.value, fields_of(record, figure, weights)))
    return found


def fields_of(record: Record, figure: Figure, weights: dict[str, str] | None = None) -> dict[str, str]:
    """All that identifies ``figure``: equal fields, comparable figures."""
    environment, speed = record.environment, figure.name.endswith(SPEED)
    card = accelerator_of(environment.accelerator)
    fields = {
        "workload": workload_of(record),
        "model": record.model,
        "weights": str(record.details.get("model_fingerprint") or (weights or {}).get(record.model, ""))[:12],
        "mode": record.mode,
        "precision": _precision(record),
        "plan": _plan(record),
        "data": _data(record, figure.name, speed),
        "protocol": protocol_of(figure),
        "kind": figure.kind,
        "accelerator": card.name if card else environment.accelerator or environment.device,
        "processes": str(environment.num_devices),
        "threads": str(environment.num_threads) if environment.device == "cpu" else "",
    }
    if record.job == "superres" and "members" in record.config:
        return fields | {"checkpoint": str(record.config["model"].value) if "model" in record.config else ""}
    if record.job in TRAINING:
        left_out = BOOKKEEPING | (COURSE if speed else frozenset())
        if record.mode != "lora":
            left_out |= {"lora_rank", "lora_alpha", "lora_targets"}
        fields |= {name: _text(s.value) for name, s in record.config.items() if name not in left_out | {"precision"}}
        fields["micro_batch"] = _micro_batch(record)
        fields["strategy"] = fields.get("strategy", "single")
    return fields


def workload_of(record: Record) -> str:
    """judging, finetune, superres (training) or superres judging: jobs of one workload share their metrics."""
    if record.job in JUDGING:
        return "judging"
    return "superres judging" if record.job == "superres" and "members" in record.config else record.job


def protocol_of(figure: Figure) -> str:
    """The protocol without what is a field of its own (processes) and without how often it was repeated."""
    text = re.sub(r", all \d+ processes together", "", figure.protocol)
    return re.sub(r"\d+ steps after \d+ of warm-up", "steps after warm-up", text)


def _known_weights(records: Sequence[Record]) -> dict[str, str]:
    """The fingerprint of a model where the records know just one: a stored checkpoint's record has none."""
    pairs = {(r.model, str(f)) for r in records if (f := r.details.get("model_fingerprint"))}
    counts = Counter(model for model, _ in pairs)
    return {model: weights for model, weights in pairs if counts[model] == 1}


def _precision(record: Record) -> str:
    """Formats of the weights, of the most to the least, or the precision that training computed in."""
    if "precision" in record.config and record.job in TRAINING:
        probed = record.details.get("arithmetic")  # what 'auto' came to
        chosen = str(probed.get("chosen", "")) if isinstance(probed, dict) else ""
        return chosen or str(record.config["precision"].value)
    if record.mode == "fp32":
        return "fp32"
    weights: Counter[str] = Counter()
    listed = record.details.get("layer_formats")
    for line in listed if isinstance(listed, list) else []:
        if isinstance(line, list) and len(line) == 4:
            weights[str(line[2])] += int(line[3]) if str(line[3]).isdecimal() else 0
    formats = "+".join(sorted(weights)) or (record.target if record.job in JUDGING else "")
    # Fake runs compute in FP32 on rounded values: they are another thing than real ones of the same formats.
    return f"{formats}, fake" if record.mode == "fake" else formats


def _plan(record: Record) -> str:
    plan = record.details.get("plan")
    return str(plan.get("method", "")) if isinstance(plan, dict) else ""


def _data(record: Record, metric: str, speed: bool) -> str:
    """Name and hash of the data that ``metric`` depends on: speeds of judged models depend on none."""
    data = record.data
    if record.job in JUDGING:
        own = {name: sha256 for name, sha256 in data.items() if metric.startswith(f"{name.split(',')[0]}_")}
        text = record.details.get("text")
        if own or speed or metric == "compression":
            data = own
        elif metric == "perplexity" and isinstance(text, dict):
            data = {str(text.get("name", "text")): str(text.get("sha256", ""))}
    return "; ".join(f"{name} {sha256[:12]}" for name, sha256 in sorted(data.items()))


def _micro_batch(record: Record) -> str:
    given = record.config.get("micro_batch")
    if given is not None and given.value:
        return str(given.value)
    batch = record.config.get("global_batch")
    whole = batch.value if batch is not None else None
    return str(whole // max(1, record.environment.num_devices)) if isinstance(whole, int) else ""


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
