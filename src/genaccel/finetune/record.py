"""What a fine-tuning run measured -> its record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genaccel.hardware import accelerator_of
from genaccel.predict.operators import training_work
from genaccel.records import Environment, Figure, Record, Setting, package_versions
from genaccel.train.meter import Step, step_samples
from genaccel.train.result import curves, speed_figures

if TYPE_CHECKING:
    from genaccel.finetune.prepare import Prepared


@dataclass(frozen=True)
class Measured:
    """A run's measurements: steps by rank, peak memory by rank, energy of the first process's device, held-out results."""

    by_rank: list[list[Step]]
    peak_bytes: list[float]
    joules: float | None
    before: dict[str, Any] | None
    after: dict[str, Any]
    losses: Sequence[float]
    first_step: int
    wrapped: dict[str, Any]


def make_record(
    prepared: Prepared, measured: Measured, environment: Environment, settings: dict[str, Setting], fingerprint: str
) -> Record:
    """The record of a run that reached its last step."""
    config, train_config = prepared.config, prepared.train_config
    world = environment.num_devices
    figures: list[Figure] = []
    if measured.by_rank[0]:
        figures = speed_figures(measured.by_rank, train_config.warmup_steps, "tokens")
        figures += _work(prepared, measured, environment)
    figures += _memory(prepared, measured, environment)
    figures += _losses(measured)
    figures.append(_energy(measured))
    card = accelerator_of(environment.accelerator)
    return Record(
        job="finetune",
        label=f"{prepared.source.name} {train_config.strategy} x{world}",
        model=prepared.source.name,
        mode="lora" if config.lora else "full",
        target=card.name if card else environment.device,
        config=settings,
        environment=environment,
        figures=tuple(figures),
        data={config.dataset: prepared.data.sha256},
        details={
            "model_fingerprint": fingerprint,
            "data": {
                "name": config.dataset,
                "sha256": prepared.data.sha256,
                "samples": prepared.plan.num_samples,
                "packing": config.packing,
                "length": config.length,
            },
            "strategy": measured.wrapped,
            "device": prepared.device.describe(),
            "packages": package_versions(("peft", "deepspeed")),
            "first_step": measured.first_step,
            "curves": curves(measured.by_rank) if measured.by_rank[0] else {},
            "losses": list(measured.losses),
            "answers": _answers(config.ask, measured),
            "memory_estimate": prepared.memory.as_dict(),
        },
        artefacts={} if config.output is None else {"model": str(config.output)},
        warnings=(*prepared.warnings, *_warnings(figures)),
    )


def _work(prepared: Prepared, measured: Measured, environment: Environment) -> list[Figure]:
    """Arithmetic of a step and its share of the device's dense peak, where the catalogue knows that."""
    config, train_config = prepared.config, prepared.train_config
    seconds, _ = step_samples(measured.by_rank, train_config.warmup_steps)
    rank = config.lora_rank if config.lora else None
    plan = prepared.plan
    work = [
        training_work(
            prepared.shape, plan.document_lengths_of_step(s), plan.num_targets_of_step(s), rank, config.lora_targets
        ).model
        for s in (step.step for step in measured.by_rank[0][seconds.num_warmup :])
    ]
    how = "arithmetic of the model in a step over all devices, attention causal, recomputation not counted; median"
    figures = [Figure("step_flops", statistics.median(work), "FLOP", "predicted", how)]
    card = accelerator_of(environment.accelerator)
    peak = card.peak_flops.get(train_config.precision) if card else None
    if card is None or peak is None:
        note = f"no dense {train_config.precision} peak is known for {environment.accelerator}"
        return [*figures, Figure("mfu", None, "", "measured", "share of the dense peak", note=note)]
    attained = peak * environment.num_devices
    share = statistics.median(w / s / attained for w, s in zip(work, seconds.values, strict=True))
    assert share <= 1, f"{share:.2f} of the peak of {card.name} cannot be: the arithmetic or the peak is wrong"
    protocol = f"model arithmetic over time and the dense {train_config.precision} peak of {environment.num_devices} {card.name}"
    return [*figures, Figure("mfu", share, "", "measured", protocol)]


def _memory(prepared: Prepared, measured: Measured, environment: Environment) -> list[Figure]:
    known = [p for p in measured.peak_bytes if math.isfinite(p)]
    scope = "resident set of a process" if environment.device == "cpu" else "allocated on a device"
    return [
        Figure(
            "peak_memory_bytes", max(known, default=None), "B", "measured", f"peak while training, {scope}, largest"
        ),
        Figure("estimated_memory_bytes", prepared.memory.total_bytes, "B", "predicted", "before loading, one process"),
    ]


def _losses(measured: Measured) -> list[Figure]:
    how = "nats per target, mean over the targets of the global batch"
    found = [
        Figure("first_loss", measured.losses[0], "nats", "measured", f"{how}, first step"),
        Figure("last_loss", measured.losses[-1], "nats", "measured", f"{how}, last step"),
    ]
    for name, results in (("before", measured.before or {}), ("after", measured.after)):
        if "loss" in results:
            protocol = "nats per target, mean over the targets of all held-out records"
            found.append(
                Figure(f"held_out_loss_{name}", results["loss"], "nats", "measured", f"{protocol}, {name} training")
            )
    return found


def _energy(measured: Measured) -> Figure:
    note = "" if measured.joules is not None else "the device does not tell"
    protocol = "device of the first process, all steps, checkpoints included"
    return Figure("energy_joules", measured.joules, "J", "measured", protocol, note=note)


def _answers(ask: str | None, measured: Measured) -> dict[str, Any]:
    if ask is None:
        return {}
    before = (measured.before or {}).get("answer")
    return {"prompt": ask, "before": before, "after": measured.after.get("answer")}


def _warnings(figures: Sequence[Figure]) -> tuple[str, ...]:
    spread = next((f.spread for f in figures if f.name == "step_seconds"), None)
    if spread is not None and spread > 0.10:
        return (f"the length of a step varies by {spread:.0%} (interquartile range over median)",)
    return ()
