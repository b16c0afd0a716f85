"""One fine-tuning run in one process: load, wrap, train, measure, save. The launcher starts as many as are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel import console, devices, models
from genaccel.finetune.lora import add_adapters, initial
from genaccel.finetune.prepare import Prepared
from genaccel.finetune.record import Measured, make_record
from genaccel.finetune.save import Adapter, save_adapted, save_trained
from genaccel.finetune.workload import LanguageModelling, held_out_loss
from genaccel.layouts import walk
from genaccel.records import Record, Setting, settings_of
from genaccel.store import write_record
from genaccel.train import attention
from genaccel.train.engine import DTYPES
from genaccel.train.group import Group, join, leave
from genaccel.train.loop import Outcome, Run, train
from genaccel.train.meter import Meter, Step, gather_steps
from genaccel.train.result import energy_figure
from genaccel.train.resuming import forget, go_on, identity_of, told_to_end
from genaccel.train.strategies import STREAMED, wrap
from genaccel.train.traffic import Traffic, record_collectives

if TYPE_CHECKING:
    import torch

    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks
    from genaccel.plans import ModelLayout
    from genaccel.train.engine import Steps


@dataclass(frozen=True)
class Finished:
    """What a run leaves. ``record`` is None on every process but the first, and when training was told to end."""

    record: Record | None
    path: Path | None
    outcome: Outcome


@dataclass(frozen=True)
class Built:
    """The model wrapped for training."""

    engine: Steps
    layout: ModelLayout
    adapter_settings: Any


def run(
    prepared: Prepared, ranks: Ranks | None, heartbeat: Heartbeat | None, settings: dict[str, Setting] | None = None
) -> Finished:
    """Train as ``prepared`` says, as one of the processes of ``ranks``."""
    config, train_config, device = prepared.config, prepared.train_config, prepared.device
    beat = heartbeat.beat if heartbeat is not None else lambda _step, _phase: None
    beat(0, "loading")
    record_collectives()
    device.use_local(ranks.local_rank if ranks else 0)
    group = join(device, ranks.rank if ranks else 0, ranks.world_size if ranks else 1, train_config.timeout)
    device.reuse_memory()
    device.reset_peak_memory()
    built = _build(prepared, group)
    device.seed(train_config.seed + group.rank)
    workload = LanguageModelling(prepared.plan, group, train_config.micro_batch_size)
    traffic = Traffic(group, num_profiled=max(0, train_config.warmup_steps - 1))
    with told_to_end(heartbeat) as told, attention.forced(train_config.attention):
        loop = Run(
            workload,
            built.engine,
            train_config,
            group,
            Meter(group, traffic),
            prepared.num_steps,
            told_to_end=told,
            beat=beat,
        )
        fingerprint = prepared.source.fingerprint()
        _resume(loop, prepared, fingerprint)
        before = _judge(prepared, built, group) if loop.first_step == 0 else None
        energy = device.energy_joules()
        with _progress(loop, group):
            outcome = train(loop)
        used = energy_figure(energy, device.energy_joules())
        if outcome.ended_early:
            leave(group, built, loop)
            return Finished(None, None, outcome)
        after = _judge(prepared, built, group)
    peaks = [row[0][0] for row in group.gather([[float(device.peak_memory_bytes() or math.nan)]])]
    by_rank = gather_steps(group, loop.meter.steps)
    if config.output is not None:
        beat(prepared.num_steps, "checkpoint")
        _save(prepared, built, group)
    record, path = None, None
    if group.rank == 0:
        environment = replace(devices.environment(device), num_devices=group.world_size)
        measured = Measured(by_rank, peaks, used, before, after, loop.losses, loop.first_step, built.engine.describe())
        record = make_record(
            prepared, measured, environment, settings or settings_of(config, train_config), fingerprint
        )
        path = write_record(record, config.runs)
        forget(loop)
    leave(group, built, loop)
    return Finished(record, path, outcome)


def _build(prepared: Prepared, group: Group) -> Built:
    """Load, adapt and wrap the model. Every process begins with the same weights."""
    config, train_config = prepared.config, prepared.train_config
    streamed = train_config.strategy in STREAMED
    with console.status(f"Loading {prepared.source.name}"):
        model = models.empty_model(prepared.source.folder) if streamed else models.load(prepared.source).model
    if streamed:
        model.tie_weights()
    layout = walk(model)
    layers = list(model.get_submodule(layout.layer_prefix))
    attention.use(model)
    adapter_settings = None
    if config.lora:
        half = train_config.precision == "bf16" and not train_config.strategy.startswith("zero")
        if half:  # frozen weights need no fp32 copy; sharding strategies cast by themselves
            model.to(DTYPES[train_config.precision])
        adapter_settings = add_adapters(model, config, train_config.seed)
    model.train()
    if train_config.activation_checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if streamed:
        weights = models.open_weights(prepared.source, layout)
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}

        def fill(name: str) -> torch.Tensor:
            if ".lora_" in name:
                return initial(name, shapes[name], train_config.seed)
            return weights.get(name.replace(".base_layer", ""))

        return Built(wrap(model, layers, train_config, group, fill), layout, adapter_settings)
    model.to(prepared.device.torch_device())
    return Built(wrap(model, layers, train_config, group), layout, adapter_settings)


def _resume(loop: Run, prepared: Prepared, fingerprint: str) -> None:
    """Go on from the last checkpoint of this very run, if there is one."""
    config = prepared.config
    lora = [config.lora_rank, config.lora_alpha, list(config.lora_targets)] if config.lora else None
    about = {
        "model": fingerprint,
        "data": prepared.data.sha256,
        "length": config.length,
        "packing": config.packing,
        "lora": lora,
    }
    go_on(loop, config.runs, "finetune", identity_of(prepared.train_config, prepared.num_steps, about))


def _judge(prepared: Prepared, built: Built, group: Group) -> dict[str, Any]:
    """Held-out loss in nats per target, and the answer to ``--ask``; both unknown (absent) when not asked for."""
    found: dict[str, Any] = {}
    module: Any = built.engine.model
    module.eval()
    if prepared.held_out is not None:
        found["loss"] = held_out_loss(built.engine, prepared.held_out, prepared.train_config.micro_batch_size, group)
    if prepared.config.ask is not None:
        from genaccel.finetune.answer import answer

        found["answer"] = answer(built.engine, prepared.tokenizer, prepared.config.ask, group)
    module.train()
    return found


def _save(prepared: Prepared, built: Built, group: Group) -> None:
    """The final weights; every process helps to gather them, the first one writes."""
    assert prepared.config.output is not None
    tensors = {}
    for name, tensor in built.engine.whole_weights():
        if group.rank == 0:
            tensors[name] = tensor
    if group.rank == 0:
        with console.status(f"Writing {prepared.config.output}"):
            if built.adapter_settings is None:
                save_trained(prepared.config.output, prepared.source, built.layout, tensors)
            else:
                base = models.open_weights(prepared.source, built.layout)
                adapter = Adapter(built.adapter_settings, tensors)
                save_adapted(prepared.config.output, prepared.source, built.layout, base, adapter)
    group.barrier()


@contextmanager
def _progress(loop: Run, group: Group) -> Iterator[None]:
    """Loss and speed of every step as it comes, by the first process."""
    if group.rank != 0:
        yield
        return
    with console.progress("Training", loop.num_steps - loop.first_step) as advance:

        def show(step: Step) -> None:
            rate = step.tokens * group.world_size / step.seconds
            advance(f"loss {step.loss:.4f}, about {rate:,.0f} tokens/s")

        loop.show = show
        yield
