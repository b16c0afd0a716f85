"""Predicted against measured on this machine: it is probed, then each job is measured and predicted from the probe alone.

    python bench/here.py [--probe FILE.toml] [--rows 4] [--length 256] [--steps 5] [--jobs finetune inference superres]

Fine-tuning of SmolLM2-135M by 'genaccel finetune' (single, and DDP, FSDP and ZeRO-3 on two processes), prefill and decoding
by the evaluation's own loop, training and drawing of the tiny super-resolver, all in fp32. On a quiet machine an error of
at most 25 % is what the project promises; it prints the load, for another job's time counts as ours. Prints Markdown.

    --processor-time: on a busy machine: everything in this process on one thread, by the seconds that it had of the
    processor. No strategies then, and a step of training is a bare loop's with the same model, optimizer and clipping.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
MODEL, MOST_ERROR, PROCESSES = "smollm2-135m", 0.25, 2
STRATEGIES = (("single", 1), ("ddp", 2), ("fsdp", 2), ("zero3", 2))


@dataclass(frozen=True)
class Line:
    """A job: seconds as measured (median, spread) and as predicted, with its 80 % interval."""

    what: str
    measured: float
    spread: float
    prediction: Any
    seconds: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.seconds / self.measured - 1

    def row(self) -> str:
        """For the table."""
        parts = sorted(self.prediction.parts.items(), key=lambda part: -part[1])[:3]
        told = ", ".join(f"{name} {s / self.prediction.seconds:.0%}" for name, s in parts)
        inside = "yes" if self.low <= self.measured <= self.high else "no"
        return (
            f"| {self.what} | {self.measured:.4g} s ({self.spread:.0%}) | {self.seconds:.4g} s | "
            f"{self.low:.4g} - {self.high:.4g} ({inside}) | {self.error:+.0%} | {told} |"
        )


def line(what: str, values: list[float], prediction: Any, seconds: float | None = None) -> Line:
    """A line; ``seconds`` is the part of the prediction that was measured, by default all of it."""
    import numpy as np

    middle = statistics.median(values)
    spread = float(np.subtract(*np.percentile(values, [75, 25]))) / middle
    mine = prediction.seconds if seconds is None else seconds
    low, high = (edge / prediction.seconds * mine for edge in (prediction.low, prediction.high))
    return Line(what, middle, spread, prediction, mine, low, high)


def genaccel(*arguments: object) -> None:
    """Run a command of genaccel in a process of its own."""
    command = [sys.executable, "-m", "genaccel", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])}: {done.stderr.strip()[-600:]}")


def samples_of(folder: Path, name: str) -> list[float]:
    """The samples of a figure of the only record in ``folder``."""
    from genaccel.store import read_records

    (record,) = read_records(folder)[0]
    figure = record.figure(name)
    assert figure is not None
    return list(figure.samples)


def finetuning(args: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """A step under every strategy."""
    from genaccel.predict.finetuning import Finetuning, predict_finetuning

    for strategy, processes in STRATEGIES:
        runs = folder / strategy
        micro = args.rows // processes
        genaccel(
            *("finetune", MODEL, "--dataset", "pydoc", "--length", args.length, "--strategy", strategy),
            *("--processes", processes, "--steps", args.steps + 2, "--global-batch", args.rows, "--micro-batch", micro),
            *("--warmup-steps", 2, "--device", "cpu", "--runs", runs, "--output", folder / f"model-{strategy}"),
        )
        ask = Finetuning(
            MODEL, str(args.probe), processes, strategy, args.rows, micro, length=args.length, precision="fp32"
        )
        what = f"fine-tuning, {strategy} x{processes}, {args.rows} x {args.length} tokens, a step"
        yield line(what, samples_of(runs, "step_seconds"), predict_finetuning(ask))


def inference(args: argparse.Namespace) -> Iterator[Line]:
    """A prompt, and a token behind it."""
    from genaccel import models
    from genaccel.devices import get
    from genaccel.evaluate.throughput import ThroughputProtocol, measure_throughput
    from genaccel.predict.generating import Generating, predict_generating

    device = get("cpu")
    device.reuse_memory()
    loaded = models.load(models.resolve(MODEL))
    for batch in (1, 4):
        protocol = ThroughputProtocol(batch, args.length, args.new)
        found = measure_throughput(loaded, device, protocol)
        prediction = predict_generating(
            Generating(MODEL, str(args.probe), 1, batch, args.length, args.new, precision="fp32")
        )
        first = prediction.rates["time_to_first_token_seconds"]
        prefill = [batch * args.length / rate for rate in found.prefill.values]
        yield line(f"prefill, {batch} x {args.length} tokens", prefill, prediction, first)
        each = [batch / rate for rate in found.decode.values]
        yield line(
            f"decoding, batch {batch}, a token",
            each,
            prediction,
            prediction.rates["seconds_per_new_token"],
        )


def superres(args: argparse.Namespace, folder: Path) -> Iterator[Line]:
    """A training step and an ensemble of the tiny network."""
    import torch

    from genaccel.devices import get
    from genaccel.measure import repeat
    from genaccel.predict.superresolving import Superresolving, predict_superresolving
    from genaccel.superres.resolver import load_resolver

    model, runs = folder / "resolver", folder / "superres"
    genaccel(
        *("superres", "train", "--preset", "tiny", "--steps", args.steps + 7, "--no-probe", "--device", "cpu"),
        *("--output", model, "--runs", runs),
    )
    ask = Superresolving("tiny", str(args.probe), batch=16, size=64, precision="fp32")
    yield line(
        "superres tiny, 16 x 64^2, a training step", samples_of(runs, "step_seconds"), predict_superresolving(ask)
    )
    resolver, low = load_resolver(model), torch.zeros(8, 1, 16, 16)
    drawn = repeat(lambda: resolver.draw(low, torch.randn(8, 1, 64, 64), 10), get("cpu"))
    ask = Superresolving("tiny", str(args.probe), batch=8, size=64, steps=10, train=False, precision="fp32")
    yield line("superres tiny, 8 x 64^2, drawn in 10 steps", list(drawn.values), predict_superresolving(ask))


def stepped(what: str, module: Any, loss: Any, args: argparse.Namespace, prediction: Any) -> Line:
    """A bare loop's step."""
    import torch

    from genaccel.devices import get
    from genaccel.measure import repeat

    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def step() -> None:
        loss().backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return line(what, list(repeat(step, get("cpu"), num_repeats=args.steps).values), prediction)


def by_processor_time(args: argparse.Namespace) -> Iterator[Line]:
    """One process's jobs by processor time."""
    import torch

    from genaccel import models
    from genaccel.devices import get
    from genaccel.measure import repeat
    from genaccel.predict.finetuning import Finetuning, predict_finetuning
    from genaccel.predict.superresolving import Superresolving, predict_superresolving
    from genaccel.superres.maps import Brightness
    from genaccel.superres.process import OneGenerator
    from genaccel.superres.resolver import Resolver, ResolverInfo

    on = str(args.probe)
    yield from inference(args)
    resolver = Resolver(ResolverInfo("tiny", "rectified-flow", 4, Brightness("log", 1.0, 0.0, 1.0)))
    low, high = torch.randn(16, 1, 16, 16), torch.randn(16, 1, 64, 64)
    noise = OneGenerator(torch.Generator().manual_seed(0))
    ask = Superresolving("tiny", on, batch=16, size=64, precision="fp32")
    what = "superres tiny, 16 x 64^2, a training step"
    yield stepped(what, resolver, lambda: resolver(low, high, noise).mean(), args, predict_superresolving(ask))
    drawn = repeat(lambda: resolver.draw(low[:8], torch.randn(8, 1, 64, 64), 10), get("cpu"))
    ask = Superresolving("tiny", on, batch=8, size=64, steps=10, train=False, precision="fp32")
    yield line("superres tiny, 8 x 64^2, drawn in 10 steps", list(drawn.values), predict_superresolving(ask))
    model = models.load(models.resolve(MODEL)).model.train()
    ids = torch.randint(49_152, (args.rows, args.length))
    prediction = predict_finetuning(
        Finetuning(MODEL, on, 1, "single", args.rows, args.rows, length=args.length, precision="fp32")
    )
    what = f"fine-tuning, one process, {args.rows} x {args.length} tokens, a step"
    yield stepped(what, model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss, args, prediction)


def probed_here(path: Path) -> Path:
    """A probe of this process alone."""
    from genaccel.devices import get
    from genaccel.probe_file import probe_to_file

    probe_to_file(get("cpu"), path, 1)
    return path


def main() -> int:
    """Probe, measure, predict, print; 1 when a prediction is off by more than is promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--probe", type=Path, help="a file that 'genaccel probe' wrote; by default one is made")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--jobs", nargs="*", default=["finetune", "inference", "superres"])
    parser.add_argument("--processor-time", action="store_true")
    args = parser.parse_args()
    if args.processor_time:
        import torch

        time.perf_counter = time.process_time
        torch.set_num_threads(1)
    begin = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.probe is None:
            args.probe = folder / "here.toml"
            if args.processor_time:
                probed_here(args.probe)
        if not args.probe.is_file():
            genaccel("probe", "--device", "cpu", "--processes", PROCESSES, "-o", args.probe)
        jobs = (
            {"all": lambda: by_processor_time(args)}
            if args.processor_time
            else {
                "inference": lambda: inference(args),
                "superres": lambda: superres(args, folder),
                "finetune": lambda: finetuning(args, folder),
            }
        )
        print(
            f"fp32, {os.cpu_count()} processors, load {begin:.1f} at the start, {args.steps} steps or 5 repeats"
            f"{', one thread by processor time' * args.processor_time}\n"
        )
        print(
            "| job | measured (interquartile range) | predicted | 80 % interval (holds it) | error | predicted parts |"
        )
        print("|---|---:|---:|---:|---:|---|")
        worst = 0.0
        for job, lines in jobs.items():
            for found in lines() if job in (*args.jobs, "all") else ():
                print(found.row(), flush=True)
                worst = max(worst, abs(found.error))
        from genaccel.predict.chips import find_chip

        chip = find_chip(str(args.probe))
        rates = {"fp32": chip.peak_flops["fp32"], "memory": chip.memory_bytes_per_second, **chip.reached}
        print("\nprobe: " + json.dumps({k: float(f"{v:.3g}") for k, v in rates.items() if "matmul" not in k}))
    print(f"largest error {worst:.0%}, load {os.getloadavg()[0]:.1f} at the end")
    return 0 if worst <= MOST_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
