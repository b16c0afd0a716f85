"""One super-resolution training run in one process: maps, networks, the training loop, the trained model, a record."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from genaccel import console, devices
from genaccel.devices import hpu
from genaccel.errors import UserError
from genaccel.records import Record, Setting, settings_of
from genaccel.store import check_output_folder, check_writable, write_record
from genaccel.superres.builtin import load_maps
from genaccel.superres.calibration import NUM_PATCHES, calibrate
from genaccel.superres.config import NUM_STEPS, SuperresConfig
from genaccel.superres.maps import MapSplit, brightness_of, split_by_area
from genaccel.superres.network import Block, find_size
from genaccel.superres.process import find_process
from genaccel.superres.record import Measured, make_record
from genaccel.superres.resolver import Resolver, ResolverInfo, save_resolver
from genaccel.superres.workload import PatchBatch, Patches, SuperResolution
from genaccel.train.average import Average
from genaccel.train.config import Precision, TrainConfig
from genaccel.train.engine import DTYPES
from genaccel.train.group import Group, join, leave
from genaccel.train.loop import Outcome, Run, train
from genaccel.train.meter import Meter, Step, gather_steps
from genaccel.train.probing import Arithmetic, Probe, fastest
from genaccel.train.result import energy_figure
from genaccel.train.resuming import forget, go_on, identity_of, told_to_end
from genaccel.train.strategies import wrap
from genaccel.train.traffic import Traffic, record_collectives

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks

MANY_STEPS = 1_000_000  # with --minutes the clock ends training
SCALE_PATCHES = 64  # patches that tell how large the residual is
PROBED_PATCHES = 4  # enough for a layout or a dtype to show what it is worth


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
    hpu.choose_mode(train_config.gaudi_mode)  # before anything imports Gaudi's software
    find_size(config.preset)
    find_process(config.process)
    if train_config.strategy.startswith("zero"):  # its optimizer owns the weights that a running mean must follow
        raise UserError(
            f"Super-resolution trains under single, ddp or fsdp, not {train_config.strategy}.",
            "Choose --strategy fsdp.",
        )
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
    flops = flops_per_image(module, workload)
    probe = _probe(prepared, module, workload, group)
    module.compute_with(probe.chosen)
    chosen = replace(train_config, precision=probe.chosen.precision)
    blocks = [part for part in module.modules() if isinstance(part, Block)]
    engine = wrap(module, blocks, chosen, group)
    average = Average(module, config.ema)
    traffic = Traffic(group, num_profiled=max(0, train_config.warmup_steps - 1))
    num_steps = train_config.steps or MANY_STEPS
    loop = Run(workload, engine, chosen, group, Meter(group, traffic), num_steps, after_update=average.update)
    if heartbeat is not None:
        loop.beat = heartbeat.beat
    about = {"size": config.preset, "process": config.process, "factor": config.factor, "patch": config.patch}
    about |= {"maps": [m.name for m in prepared.maps.train], "ema": config.ema, "layout": prepared.info.schema_version}
    go_on(loop, config.runs, "superres", identity_of(train_config, train_config.steps, about), average.tensors)
    average.updates = loop.first_step
    with told_to_end(heartbeat) as told, _progress(loop, group, config):
        joules = device.energy_joules()
        end = math.inf if config.minutes is None else time.monotonic() + 60 * config.minutes
        loop.told_to_end = lambda: told() or time.monotonic() > end
        outcome = train(loop)
        energy = energy_figure(joules, device.energy_joules())
        if outcome.ended_early and told():
            leave(group, engine, loop)
            return Finished(None, None, outcome)
    peaks = [row[0][0] for row in group.gather([[float(device.peak_memory_bytes() or math.nan)]])]
    by_rank = gather_steps(group, loop.meter.steps)
    weights = average.whole_weights()
    record, path = None, None
    if group.rank == 0:
        resolver = _calibrated(prepared, workload, dict(module.named_buffers()) | weights)
        save_resolver(config.output, resolver)
        measured = Measured(
            by_rank, peaks, energy, loop.losses, loop.first_step, flops, resolver, probe, engine.describe()
        )
        environment = replace(devices.environment(device), num_devices=group.world_size)
        record = make_record(prepared, measured, environment, settings or settings_of(config, train_config))
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


def _calibrated(prepared: Prepared, workload: SuperResolution, weights: dict[str, torch.Tensor]) -> Resolver:
    """The trained resolver by itself, its draws given the spectrum of the training patches."""
    resolver = Resolver(prepared.info)
    resolver.load_state_dict(weights)
    resolver.to(prepared.device.torch_device()).eval()
    if resolver.regression is not None:
        batch = workload.batch(range(NUM_PATCHES))
        with console.status("Calibrating the spectrum of draws"):
            calibrate(resolver, batch.low, batch.high, prepared.train_config.seed, NUM_STEPS)
    return resolver


def flops_per_image(module: Resolver, workload: SuperResolution) -> float:
    """Arithmetic of one patch, forward and backward: convolutions and matrix products, multiply and add counted as two."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        _one_step(module, workload, workload.batch([0]))
    module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def _one_step(module: Resolver, workload: SuperResolution, batch: PatchBatch) -> None:
    """Forward and backward of some patches; gradients pile up."""
    workload.loss_sum(module, batch.to(next(module.parameters()).device)).backward()  # type: ignore[no-untyped-call]


def _probe(prepared: Prepared, module: Resolver, workload: SuperResolution, group: Group) -> Probe:
    """What trains fastest here, on copies of ``module``; with --no-probe, what --precision says in the plain layout."""
    told = prepared.train_config.precision
    device = prepared.device
    batch = workload.batch(range(PROBED_PATCHES))
    precisions: tuple[Precision, ...] = (told,) if told != "fp32" else ("fp32", "bf16")
    # Compiling takes a minute on a CPU, which short trainings do not win back.
    compiled = (False,) if device.NAME != "cuda" else (False, True)
    candidates = [Arithmetic(p, layout, c) for c in compiled for p in precisions for layout in (False, True)]

    def step_with(arithmetic: Arithmetic) -> Callable[[], None]:
        tried = copy.deepcopy(module)
        tried.compute_with(arithmetic)

        def step() -> None:
            half = arithmetic.precision != "fp32"
            with torch.autocast(device.torch_device().type, DTYPES[arithmetic.precision], enabled=half):
                loss = workload.loss_sum(tried, batch.to(device.torch_device()))
            loss.backward()  # type: ignore[no-untyped-call]
            device.launch_collected()

        return step

    if not prepared.config.probe:
        return Probe(Arithmetic(told), {})
    with console.status("Probing precision and memory layout"):
        probe = fastest(candidates, step_with, group)
    console.note(f"Arithmetic: {probe.reason}")
    return probe


@contextmanager
def _progress(loop: Run, group: Group, config: SuperresConfig) -> Iterator[None]:
    """Loss and speed of every step as it comes, by the first process."""
    if group.rank != 0:
        yield
        return
    if config.minutes is None:
        with console.progress("Training", loop.num_steps - loop.first_step) as advance:
            loop.show = lambda step: advance(f"loss {step.loss:.4f}")
            yield
        return
    begin, total = time.monotonic(), round(60 * config.minutes)
    with console.progress(f"Training for {config.minutes:g} minutes, seconds", total) as advance:
        shown = 0

        def show(step: Step) -> None:
            nonlocal shown
            passed = min(total, int(time.monotonic() - begin))
            for _ in range(passed - shown):
                advance(f"step {step.step + 1}, loss {step.loss:.4f}")
            shown = passed

        loop.show = show
        yield
