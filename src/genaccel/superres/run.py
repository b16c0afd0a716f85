"""One super-resolution training run in one process: maps, networks, the training loop, the trained model, a record."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from genaccel import console, devices
from genaccel.errors import UserError
from genaccel.records import Figure, Record, Setting, settings_of
from genaccel.store import check_output_folder, check_writable, write_record
from genaccel.superres.builtin import load_maps
from genaccel.superres.config import SuperresConfig
from genaccel.superres.maps import MapSplit, brightness_of, sha256_of, split_by_area
from genaccel.superres.network import find_size
from genaccel.superres.process import find_process
from genaccel.superres.resolver import Resolver, ResolverInfo, save_resolver
from genaccel.superres.workload import Patches, SuperResolution
from genaccel.train.average import Average
from genaccel.train.config import TrainConfig
from genaccel.train.group import Group, join, leave
from genaccel.train.loop import Outcome, Run, train
from genaccel.train.meter import Meter, Step, gather_steps
from genaccel.train.result import curves, speed_figures
from genaccel.train.resuming import forget, go_on, identity_of, told_to_end
from genaccel.train.strategies import wrap
from genaccel.train.traffic import Traffic, record_collectives

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks

MANY_STEPS = 1_000_000  # with --minutes the clock ends training
SCALE_PATCHES = 64  # patches that tell how large the residual is


@dataclass(frozen=True)
class Prepared:
    """A checked run: maps read and divided, nothing trained yet."""

    config: SuperresConfig
    train_config: TrainConfig
    device: Device
    maps: MapSplit
    info: ResolverInfo
    patches: Patches


def prepare(config: SuperresConfig, train_config: TrainConfig) -> Prepared:
    """Check everything that can be checked before training; the first problem is a ``UserError``."""
    config.check()
    train_config.check()
    find_size(config.preset)
    find_process(config.process)
    if train_config.precision == "fp16":
        raise UserError("Super-resolution trains in fp32 or bf16.", "Choose --precision bf16.")
    device = devices.get(config.device)
    check_writable(config.runs)
    check_output_folder(config.output)
    with console.status("Reading maps"):
        maps = split_by_area(load_maps(config.data), train_config.seed)
    brightness = brightness_of(maps.train)
    areas = tuple(sorted({m.area for m in (*maps.train, *maps.validation)}))
    info = ResolverInfo(config.preset, config.process, config.factor, brightness, areas)
    patches = Patches(maps.train, config.patch, config.factor, brightness, train_config.seed)
    return Prepared(config, train_config, device, maps, info, patches)


@dataclass(frozen=True)
class Finished:
    """What a run leaves; no record on every process but the first, nor when it was told to end."""

    record: Record | None
    path: Path | None
    outcome: Outcome


def run(
    prepared: Prepared, ranks: Ranks | None, heartbeat: Heartbeat | None, settings: dict[str, Setting] | None = None
) -> Finished:
    """Train as ``prepared`` says, as one of the processes of ``ranks``."""
    config, train_config, device = prepared.config, prepared.train_config, prepared.device
    record_collectives()
    device.use_local(ranks.local_rank if ranks else 0)
    group = join(device, ranks.rank if ranks else 0, ranks.world_size if ranks else 1, train_config.timeout)
    device.reuse_memory()
    device.reset_peak_memory()
    device.seed(train_config.seed)  # the same first weights everywhere
    workload = SuperResolution(prepared.patches, group, train_config.global_batch, train_config.micro_batch_size)
    module = _module(prepared, workload)
    engine = wrap(module, [], train_config, group)
    average = Average(module, config.ema)
    traffic = Traffic(group, num_profiled=max(0, train_config.warmup_steps - 1))
    num_steps = train_config.steps or MANY_STEPS
    loop = Run(workload, engine, train_config, group, Meter(group, traffic), num_steps, after_update=average.update)
    if heartbeat is not None:
        loop.beat = heartbeat.beat
    about = {"size": config.preset, "process": config.process, "factor": config.factor, "patch": config.patch}
    about |= {"maps": [m.name for m in prepared.maps.train], "ema": config.ema}
    go_on(loop, config.runs, "superres", identity_of(train_config, train_config.steps, about), average.tensors)
    average.updates = loop.first_step
    end = math.inf if config.minutes is None else time.monotonic() + 60 * config.minutes
    with told_to_end(heartbeat) as told, _progress(loop, group, config):
        loop.told_to_end = lambda: told() or time.monotonic() > end
        outcome = train(loop)
        if outcome.ended_early and told():
            leave(group, engine, loop)
            return Finished(None, None, outcome)
    peaks = [row[0][0] for row in group.gather([[float(device.peak_memory_bytes() or math.nan)]])]
    by_rank = gather_steps(group, loop.meter.steps)
    record, path = None, None
    if group.rank == 0:
        save_resolver(config.output, module, average.mean)
        environment = replace(devices.environment(device), num_devices=group.world_size)
        figures = speed_figures(by_rank, train_config.warmup_steps, "images")
        figures += _figures(loop, peaks, environment.device)
        record = Record(
            job="superres",
            label=f"{config.process} {config.preset} x{config.factor}, {train_config.strategy} x{group.world_size}",
            model=f"superres-{config.preset}",
            mode=config.process,
            target=environment.device,
            config=settings or settings_of(config, train_config),
            environment=environment,
            figures=tuple(figures),
            data={", ".join(config.data): sha256_of(prepared.maps.train)},
            details=_details(prepared, module, by_rank, engine.describe()),
            artefacts={"model": str(config.output)},
        )
        path = write_record(record, config.runs)
        forget(loop)
    leave(group, engine, loop)
    return Finished(record, path, outcome)


def _module(prepared: Prepared, workload: SuperResolution) -> Resolver:
    """The networks, with the residual's size as it is around the enlarged maps."""
    module = Resolver(prepared.info)
    batch = workload.batch(range(SCALE_PATCHES))
    with torch.no_grad():
        left = batch.high - module.enlarge(batch.low)
    module.residual_scale.fill_(float(left.std()))
    return module.to(prepared.device.torch_device()).train()


def _figures(loop: Run, peaks: list[float], device: str) -> list[Figure]:
    how = "mean over the patches of the global batch, regression and diffusion together"
    known = [p for p in peaks if math.isfinite(p)]
    return [
        Figure("first_loss", loop.losses[0], "", "measured", f"{how}, first step"),
        Figure("last_loss", loop.losses[-1], "", "measured", f"{how}, last step"),
        Figure("peak_memory_bytes", max(known, default=None), "B", "measured", f"peak while training on {device}"),
    ]


def _details(prepared: Prepared, module: Resolver, by_rank: Any, wrapped: dict[str, Any]) -> dict[str, Any]:
    maps = prepared.maps
    return {
        "strategy": wrapped,
        "parameters": sum(p.numel() for p in module.parameters()),
        "brightness": vars(prepared.info.brightness),
        "residual_scale": float(module.residual_scale),
        "maps": {name: [m.name for m in getattr(maps, name)] for name in ("train", "validation", "test")},
        "curves": curves(by_rank),
    }


def _progress(loop: Run, group: Group, config: SuperresConfig) -> Any:
    """Loss and speed of every step as it comes, by the first process."""
    from contextlib import contextmanager

    @contextmanager
    def shown() -> Any:
        if group.rank != 0:
            yield
            return
        what = "Training" if config.minutes is None else f"Training for {config.minutes:g} minutes"
        with console.progress(what, loop.num_steps if config.minutes is None else 1) as advance:

            def show(step: Step) -> None:
                advance(f"step {step.step + 1}, loss {step.loss:.4f}")

            loop.show = show
            yield

    return shown()
