"""What a fine-tuning run measured -> its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genaccel.hardware import accelerator_of
from genaccel.predict.operators import training_work
from genaccel.records import Environment, Figure, Record, Setting, package_versions
from genaccel.train.meter import Step, step_samples
from genaccel.train.result import arithmetic_figures, curves, memory_figure, speed_figures, spread_warnings

if TYPE_CHECKING:
    from genaccel.finetune.prepare import Prepared


@dataclass(frozen=True)
class Measured:
    """A run's measurements: steps by rank, peak memory by rank, energy, held-out results."""

    by_rank: list[list[Step]]
    peak_bytes: list[float]
    energy: Figure
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
    figures.append(measured.energy)
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
        warnings=(*prepared.warnings, *spread_warnings(figures)),
    )


def _work(prepared: Prepared, measured: Measured, environment: Environment) -> list[Figure]:
    """Arithmetic of the measured steps, and how much of the device's peak that is."""
    config, train_config, plan = prepared.config, prepared.train_config, prepared.plan
    seconds, _ = step_samples(measured.by_rank, train_config.warmup_steps)
    rank = config.lora_rank if config.lora else None
    work = [
        training_work(
            prepared.shape, plan.document_lengths_of_step(s), plan.num_targets_of_step(s), rank, config.lora_targets
        ).model
        for s in (step.step for step in measured.by_rank[0][seconds.num_warmup :])
    ]
    how = "arithmetic of the model in a step over all devices, attention causal, recomputation not counted"
    return arithmetic_figures(work, seconds, train_config.precision, environment, how)


def _memory(prepared: Prepared, measured: Measured, environment: Environment) -> list[Figure]:
    estimate = prepared.memory.total_bytes
    return [
        memory_figure(measured.peak_bytes, environment),
        Figure("estimated_memory_bytes", estimate, "B", "predicted", "before loading, one process"),
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


def _answers(ask: str | None, measured: Measured) -> dict[str, Any]:
    if ask is None:
        return {}
    before = (measured.before or {}).get("answer")
    return {"prompt": ask, "before": before, "after": measured.after.get("answer")}
