"""Run under torchrun by test_strategies: trains the same model by several strategies and prints their losses as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from tests.train.random_tokens import RandomTokens

from genaccel import models
from genaccel.devices import get
from genaccel.finetune.config import FinetuneConfig
from genaccel.finetune.lora import add_adapters
from genaccel.train import attention
from genaccel.train.checkpoint import Checkpoints
from genaccel.train.config import TrainConfig
from genaccel.train.group import Group, join, leave
from genaccel.train.loop import Run, train
from genaccel.train.meter import Meter
from genaccel.train.strategies import wrap
from genaccel.train.traffic import Traffic, record_collectives


def losses(folder: Path, config: TrainConfig, group: Group, lora: bool, num_steps: int, **more) -> Run:
    """Train ``num_steps`` steps and return the run."""
    torch.manual_seed(0)
    loaded = models.load(models.resolve(str(folder)))
    model = loaded.model.train()
    attention.use(model)
    layers = list(model.get_submodule(loaded.layout.layer_prefix))
    if lora:
        add_adapters(model, FinetuneConfig("x", lora=True, lora_rank=4), seed=0)
    if config.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    engine = wrap(model, layers, config, group)
    vocabulary = model.config.vocab_size
    workload = RandomTokens(vocabulary, config.global_batch, config.micro_batch_size, group.rank, group.world_size)
    run = Run(workload, engine, config, group, Meter(group, Traffic(group, 1)), num_steps, **more)
    if config.checkpoints:
        run.checkpoints = Checkpoints(config.checkpoints, config.keep, group, {"seed": 0, "lora": lora})
        if found := run.checkpoints.latest():
            path, progress = found
            run.checkpoints.load(path, progress, engine)
            run.first_step, run.losses = progress.step, list(progress.losses)
    train(run)
    return run


def main() -> None:
    """argv: model folder, JSON list of {name, config, lora, steps}."""
    torch.set_num_threads(1)
    record_collectives()
    group = join(get("cpu"), int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), 60)
    found, keep = {}, []
    for job in json.loads(sys.argv[2]):
        given = job["config"] | {"processes": group.world_size}
        config = TrainConfig(**given)
        if config.checkpoints:
            config = replace(config, checkpoints=Path(config.checkpoints))
        run = losses(Path(job.get("model", sys.argv[1])), config, group, job.get("lora", False), job.get("steps", 20))
        weights = dict(run.engine.whole_weights())
        last = run.meter.steps[-1] if run.meter.steps else None
        keep.append(run)
        found[job["name"]] = {
            "losses": run.losses,
            "norms": [s.gradient_norm for s in run.meter.steps],
            "checksum": sum(float(w.double().abs().sum()) for w in weights.values()),
            "bytes": last.communication_bytes if last else None,
            "calls": last.communication_calls if last else None,
            "about": run.engine.describe(),
        }
    if group.rank == 0:
        sys.stdout.write("RESULT " + json.dumps(found) + "\n")
    leave(group)
    sys.stdout.flush()
    os._exit(0)  # as genaccel's own processes end, see train_in_processes


if __name__ == "__main__":
    main()
