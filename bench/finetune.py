"""Seconds of a training step of SmolLM2-135M: genaccel, a bare hand-written loop, and transformers' Trainer.

    python bench/finetune.py [--steps 8] [--repeats 3] [--rows 4] [--length 256]

Every contender trains the same weights in fp32 on the same rows of the same text (rows of one length, so that nobody
pads), with AdamW, clipping and the same threads; each is a process of its own (two for DDP), and they take turns. The
first two steps are warm-up. Prints Markdown for bench/RESULTS.md with the losses, which must agree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
MODEL, WARMUP, RATE = "smollm2-135m", 2, 1e-4

CONTENDERS = {
    "full": ("genaccel", "bare loop", "Trainer"),
    "full, DDP x2": ("genaccel", "Trainer"),
    "LoRA": ("genaccel", "bare loop", "Trainer"),
}


def data(length: int, cache: Path) -> Any:
    """Rows of ``length`` tokens of the built-in prose."""
    from genaccel import models
    from genaccel.finetune.data import tokenize, tokenizer_hash
    from genaccel.finetune.datasets import load_dataset_named

    source = models.resolve(MODEL)
    found = tokenize(
        load_dataset_named("pydoc"), models.load_tokenizer(source), tokenizer_hash(source.folder), length, cache
    )
    import numpy as np

    return found.only(np.flatnonzero(found.lengths == length))


def adapted(model: Any) -> Any:
    """The same adapters for everybody."""
    from genaccel.finetune.config import FinetuneConfig
    from genaccel.finetune.lora import add_adapters

    add_adapters(model, FinetuneConfig(MODEL, lora=True), seed=0)
    return model


def ours(args: argparse.Namespace, rows: Any, world: int, rank: int) -> tuple[list[float], list[float]]:
    """(seconds, losses) of our loop."""
    from genaccel import models
    from genaccel.devices import get
    from genaccel.finetune.batches import DataPlan
    from genaccel.finetune.workload import LanguageModelling
    from genaccel.train import attention
    from genaccel.train.config import TrainConfig
    from genaccel.train.group import join, leave
    from genaccel.train.loop import Run, train
    from genaccel.train.meter import Meter
    from genaccel.train.strategies import wrap
    from genaccel.train.traffic import Traffic, record_collectives

    record_collectives()
    device = get("cpu")
    device.reuse_memory()
    group = join(device, rank, world, 600)
    loaded = models.load(models.resolve(MODEL))
    layers = list(loaded.model.get_submodule(loaded.layout.layer_prefix))
    attention.use(loaded.model)
    if args.job == "LoRA":
        adapted(loaded.model)
    config = TrainConfig(
        strategy="ddp" if world > 1 else "single",
        processes=world,
        global_batch=args.rows,
        learning_rate=RATE,
        schedule="constant",
    )
    plan = DataPlan(rows, args.length, False, args.rows, seed=0)
    workload = LanguageModelling(plan, group, config.micro_batch_size)
    engine = wrap(loaded.model.train(), layers, config, group)
    run = Run(workload, engine, config, group, Meter(group, Traffic(group)), args.steps)
    train(run)
    leave(group, engine, run)
    return [s.seconds for s in run.meter.steps], run.losses


def batches(args: argparse.Namespace, rows: Any) -> list[Any]:
    """The same global batches as ours, as tensors of token ids."""
    from genaccel.finetune.batches import DataPlan

    plan = DataPlan(rows, args.length, False, args.rows, seed=0)
    return [next(plan.micro_batches(step, 0, 1, args.rows)).input_ids for step in range(args.steps)]


def peer_model(args: argparse.Namespace) -> Any:
    """What transformers loads by itself, adapters on it where asked for."""
    from transformers import AutoModelForCausalLM

    from genaccel import models

    model = AutoModelForCausalLM.from_pretrained(models.resolve(MODEL).folder, attn_implementation="sdpa")
    return adapted(model) if args.job == "LoRA" else model


def bare(args: argparse.Namespace, rows: Any, *_: int) -> tuple[list[float], list[float]]:
    """The shortest loop that does the same."""
    import torch

    model = peer_model(args).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, RATE, weight_decay=0.0, fused=True)
    seconds, losses = [], []
    for ids in batches(args, rows):
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return seconds, losses


def trainer(args: argparse.Namespace, rows: Any, world: int, rank: int) -> tuple[list[float], list[float]]:
    """transformers' Trainer, which finds the other process by itself."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    model = peer_model(args)
    # Of each step the first process takes the first rows, the second the others, as in ours.
    size = args.rows // world
    examples = [{"input_ids": ids, "labels": ids} for step in batches(args, rows) for ids in step]
    marks: list[float] = []
    losses: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            marks.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append(time.perf_counter())

        def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
            if logs and "loss" in logs:
                losses.append(float(logs["loss"]))

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=size,
            max_steps=args.steps,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            use_cpu=True,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        made = Trainer(model, arguments, train_dataset=examples, callbacks=[Clock()])
        made._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(examples)  # type: ignore[assignment]
        made.train()
    # From one step's begin to the next, so that fetching data counts, as it does in ours.
    begins = marks[::2]
    return [b - a for a, b in zip(begins, [*begins[1:], marks[-1]], strict=True)], losses


WORK = {"genaccel": ours, "bare loop": bare, "Trainer": trainer}


def worker(args: argparse.Namespace) -> None:
    """One contender's process: rank 0 writes its seconds and losses."""
    import torch

    world, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    torch.set_num_threads(max(1, args.threads // world))
    seconds, losses = WORK[args.contender](args, data(args.length, Path(args.cache)), world, rank)
    if rank == 0:
        Path(args.result).write_text(json.dumps({"seconds": seconds, "losses": losses}))


def measure(args: argparse.Namespace, job: str, contender: str, cache: str) -> dict[str, list[float]]:
    """Run a contender in fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = ["--rows", args.rows, "--steps", args.steps, "--length", args.length, "--threads", args.threads]
        command = [__file__, "--contender", contender, "--job", job, "--cache", cache, "--result", result, *options]
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if "x2" in job else []
        subprocess.run([sys.executable, *launcher, *map(str, command)], check=True, capture_output=True)
        return dict(json.loads(result.read_text()))


def main() -> None:
    """Measure all contenders in turn and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--jobs", nargs="*", default=list(CONTENDERS))
    for hidden in ("--contender", "--job", "--cache", "--result"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        return worker(args)
    print(f"{MODEL}, fp32, {args.rows} rows of {args.length} tokens a step, {args.threads} threads in all\n")
    print("| training | contender | step, median | min - max | tokens/s | against genaccel | last loss |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as cache:
        for job in args.jobs:
            seconds: dict[str, list[float]] = {c: [] for c in CONTENDERS[job]}
            losses: dict[str, float] = {}
            for _ in range(args.repeats):
                for contender in CONTENDERS[job]:
                    found = measure(args, job, contender, cache)
                    seconds[contender] += found["seconds"][WARMUP:]
                    losses[contender] = found["losses"][-1]
            own = statistics.median(seconds["genaccel"])
            for contender, values in seconds.items():
                middle = statistics.median(values)
                print(
                    f"| {job} | {contender} | {middle:.3f} s | {min(values):.3f} - {max(values):.3f} | "
                    f"{args.rows * args.length / middle:,.0f} | {middle / own:.2f}x | {losses[contender]:.4f} |",
                    flush=True,
                )
    return None


if __name__ == "__main__":
    main()
