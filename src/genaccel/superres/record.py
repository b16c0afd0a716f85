"""What a super-resolution training run measured -> its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genaccel.hardware import accelerator_of
from genaccel.records import Environment, Figure, Record, Setting
from genaccel.superres.maps import sha256_of
from genaccel.train.meter import Step, step_samples
from genaccel.train.result import arithmetic_figures, curves, memory_figure, speed_figures, spread_warnings

if TYPE_CHECKING:
    from genaccel.superres.resolver import Resolver
    from genaccel.superres.run import Prepared
    from genaccel.train.probing import Probe


@dataclass(frozen=True)
class Measured:
    """A run's measurements: steps by rank, peak memory by rank, energy, losses, what was probed and wrapped."""

    by_rank: list[list[Step]]
    peak_bytes: list[float]
    energy: Figure
    losses: Sequence[float]
    first_step: int
    flops_per_image: float
    resolver: Resolver
    probe: Probe
    wrapped: dict[str, Any]


def make_record(
    prepared: Prepared, measured: Measured, environment: Environment, settings: dict[str, Setting]
) -> Record:
    """The record of a run that reached its end."""
    config, train_config = prepared.config, prepared.train_config
    figures: list[Figure] = []
    if measured.by_rank[0]:
        figures = speed_figures(measured.by_rank, train_config.warmup_steps, "images")
        figures += _work(prepared, measured, environment)
    figures.append(memory_figure(measured.peak_bytes, environment))
    how = "mean over the patches of the global batch, regression and diffusion together"
    for name, at in (("first", 0), ("last", -1)):
        figures.append(Figure(f"{name}_loss", measured.losses[at], "", "measured", f"{how}, {name} step"))
    figures.append(measured.energy)
    card = accelerator_of(environment.accelerator)
    return Record(
        job="superres",
        label=f"{config.process} {config.preset} x{config.factor}, {train_config.strategy} x{environment.num_devices}",
        model=f"superres-{config.preset}",
        mode=config.process,
        target=card.name if card else environment.device,
        config=settings,
        environment=environment,
        figures=tuple(figures),
        data={", ".join(config.data): sha256_of(prepared.maps.train)},
        details=_details(prepared, measured),
        artefacts={"model": str(config.output)},
        warnings=spread_warnings(figures),
    )


def _work(prepared: Prepared, measured: Measured, environment: Environment) -> list[Figure]:
    seconds, _ = step_samples(measured.by_rank, prepared.train_config.warmup_steps)
    work = [measured.flops_per_image * prepared.train_config.global_batch] * len(seconds.values)
    how = "convolutions and matrix products of both networks, forward and backward, over all devices"
    return arithmetic_figures(work, seconds, measured.probe.chosen.precision, environment, how)


def _details(prepared: Prepared, measured: Measured) -> dict[str, Any]:
    maps = prepared.maps
    return {
        "strategy": measured.wrapped,
        "device": prepared.device.describe(),
        "arithmetic": {"chosen": str(measured.probe.chosen), "probed_step_seconds": measured.probe.seconds},
        "parameters": sum(p.numel() for p in measured.resolver.parameters()),
        "flops_per_image": measured.flops_per_image,
        "brightness": vars(prepared.info.brightness),
        "residual_scale": float(measured.resolver.residual_scale),
        "spectral_gains": measured.resolver.gains.tolist(),
        "maps": {name: [m.name for m in getattr(maps, name)] for name in ("train", "validation", "test")},
        "first_step": measured.first_step,
        "curves": curves(measured.by_rank) if measured.by_rank[0] else {},
    }
