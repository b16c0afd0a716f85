"""Time and size of a report of many synthetic records of all workloads, and of reading them from their folder.

    python bench/report.py [--records 10000] [--keep report.html]

The records are as long as real ones: samples, settings, environments, curves. Prints Markdown for bench/RESULTS.md.
Seconds are of the wall clock and, since this machine may have other work, of the processor.
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from genaccel.records import Environment, Figure, Record, Setting
from genaccel.report.html import content_of, render
from genaccel.store import read_records, write_record

CARDS = (
    ("NVIDIA A100-SXM4-80GB", "cuda", 1.0),
    ("NVIDIA H100 80GB HBM3", "cuda", 2.1),
    ("GAUDI2", "hpu", 1.4),
    ("Intel(R) Xeon(R) Processor", "cpu", 0.01),
)
MODELS = ("llama-3.1-8b", "gemma2-27b", "tinyllama-1.1b", "smollm2-135m")
SPEED = "median of tokens without padding, all {} processes together; 18 steps after 2 of warm-up, slowest process of each step"


def synthetic_record(number: int, chance: random.Random) -> Record:
    """One of four kinds in turn."""
    card, device, speed = CARDS[number // 4 % len(CARDS)]
    environment = Environment(
        device, card, 1 + number // 16 % 8, 16, "AMD EPYC 7763 64-Core Processor x 128", "3.11.7", "Linux-5.14-x86_64",
        {"genaccel": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0", "numpy": "2.4.6"}, f"{number // 1000:012x}",
    )  # fmt: skip
    make = (_judged, _judged_fp32, _finetuned, _dust)[number % 4]
    fields = make(number, chance, speed)
    minutes = number // 60
    created = f"2026-{1 + minutes // 40320 % 12:02d}-{1 + minutes // 1440 % 28:02d}T{minutes // 60 % 24:02d}:{minutes % 60:02d}:{number % 60:02d}.000+00:00"
    return Record(environment=environment, created=created, id=f"{chance.getrandbits(48):012x}", **fields)


def _rate(name: str, value: float, unit: str, protocol: str, chance: random.Random, count: int = 5) -> Figure:
    samples = tuple(sorted(value * chance.gauss(1, 0.02) for _ in range(count)))
    return Figure(name, statistics.median(samples), unit, "measured", protocol, samples, 0.02)


def _settings(**values: Any) -> dict[str, Setting]:
    return {
        name: Setting(value, "flag" if index < 2 else "default") for index, (name, value) in enumerate(values.items())
    }


def _judged(number: int, chance: random.Random, speed: float, mode: str = "real") -> dict[str, Any]:
    model, compression = MODELS[number // 64 % 4], chance.uniform(1.9, 4.1)
    perplexity = 12.0 * chance.uniform(1.0, 1.1)
    figures = (
        Figure("tensor_bytes", 4.4e9 / compression, "B", "measured", "tensors as stored, scales and minima included, tied ones once"),
        Figure("compression", compression, "x", "measured", "bytes of the same tensors in fp32 over tensors as stored"),
        Figure("perplexity", perplexity, "1", "measured", "token perplexity, wikitext2, window 1024, stride 1024", stderr=0.2,
               interval=(perplexity - 0.4, perplexity + 0.4)),
        _rate("prefill_tokens_per_second", 12000 * speed, "tokens/s", "prefill, batch 1, 256 prompt tokens", chance),
        _rate("decode_tokens_per_second", 60 * speed, "tokens/s", "decode, batch 1, 256 prompt tokens, 32 new", chance),
        Figure("peak_memory_bytes", 5e9, "B", "measured", "peak while judging, allocated on the device"),
        *(Figure(f"{task}_acc", 0.6, "1", "measured", f"accuracy, {task}, 0-shot", stderr=0.01, interval=(0.58, 0.62))
          for task in ("hellaswag", "boolq")),
    )  # fmt: skip
    details = {
        "model_fingerprint": "f00d" * 16,
        "text": {"name": "wikitext2", "source": "wiki.test.raw", "sha256": "ab" * 32, "tokens": 341469},
        "plan": {"method": f"magnitude: {number % 23} of 22 layers high", "formats": {}},
        "nll_by_window": [2048.0 + chance.random() for _ in range(40)],
        "tokens_by_window": [1023] * 40,
    }
    return {
        "job": "quantize", "label": f"{model} a100 {mode}", "model": model, "mode": mode, "target": "a100",
        "config": _settings(model=model, share=0.5, metric="magnitude", split="share", embeddings="high", window=1024, seed=0),
        "figures": figures, "details": details, "data": {"wikitext2": "ab" * 32},
    }  # fmt: skip


def _judged_fp32(number: int, chance: random.Random, speed: float) -> dict[str, Any]:
    fields = _judged(number, chance, speed, "fp32")
    kept = tuple(f for f in fields["figures"] if f.name != "compression")
    return fields | {"job": "evaluate", "label": f"{fields['model']} fp32", "target": "", "figures": kept}


def _finetuned(number: int, chance: random.Random, speed: float) -> dict[str, Any]:
    model, processes = MODELS[number // 64 % 4], 1 + number // 16 % 8
    strategy = ("ddp", "fsdp", "zero3")[number // 8 % 3] if processes > 1 else "single"
    protocol = SPEED.format(processes)
    figures = (
        _rate("train_tokens_per_second", 3000 * speed * processes, "tokens/s", protocol, chance, 18),
        _rate("train_tokens_per_second_per_device", 3000 * speed, "tokens/s", protocol, chance, 18),
        _rate("step_seconds", 1.4 / speed, "s", "18 steps after 2 of warm-up, slowest process of each step", chance, 18),
        *(Figure(f"{phase}_seconds", 0.3 / speed, "s", "measured", "median over steps and processes")
          for phase in ("forward", "backward", "waiting", "optimizer")),
        Figure("communication_bytes", 2.2e9, "B", "measured", "handed to collectives by one process in a step, median"),
        Figure("peak_memory_bytes", 3.1e10, "B", "measured", "peak while training, allocated on a device, largest"),
        Figure("estimated_memory_bytes", 3.3e10, "B", "predicted", "before loading, one process"),
        Figure("mfu", 0.41, "", "measured", "model arithmetic over time and the dense bf16 peak"),
        Figure("last_loss", 1.2 + chance.random() / 10, "nats", "measured", "nats per target, last step"),
        Figure("energy_joules", None, "J", "measured", "device of the first process", note="the device does not tell"),
    )  # fmt: skip
    steps = list(range(1, 21))
    details = {
        "curves": {"step": steps, "loss": [2.0 / s + 1 for s in steps], "tokens": [4096] * 20},
        "losses": [1.0] * 20,
    }
    settings = _settings(
        model=model, strategy=strategy, attention=("math", "flash")[number // 32 % 2], precision="bf16", global_batch=8,
        micro_batch=1, length=512, packing=True, learning_rate=2e-4, dataset="alpaca.json",
    )  # fmt: skip
    return {
        "job": "finetune", "label": f"{model} {strategy} x{processes}", "model": model, "mode": "full", "target": "a100",
        "config": settings, "figures": figures, "details": details, "data": {"alpaca.json": "cd" * 32},
    }  # fmt: skip


def _dust(number: int, chance: random.Random, speed: float) -> dict[str, Any]:
    protocol = SPEED.format(1).replace("tokens", "images")
    figures = (
        _rate("train_images_per_second", 400 * speed, "images/s", protocol, chance, 18),
        _rate("step_seconds", 0.04 / speed, "s", "18 steps after 2 of warm-up", chance, 18),
        Figure("last_loss", 0.1, "", "measured", "mean over the patches, last step"),
    )
    return {
        "job": "superres", "label": f"rectified-flow base x4, ddp x{1 + number // 16 % 8}", "model": "superres-base",
        "mode": "rectified-flow", "target": "cuda",
        "config": _settings(data=["builtin"], preset="base", patch=64, factor=4, strategy="ddp", precision="bf16", global_batch=16),
        "figures": figures, "details": {"curves": {"step": [1, 2, 3], "loss": [0.4, 0.2, 0.1]}}, "data": {"builtin": "ef" * 32},
    }  # fmt: skip


def timed(what: str, do: Callable[[], Any]) -> Any:
    """Do it and say how long it took."""
    wall, processor = time.perf_counter(), time.process_time()
    found = do()
    print(f"| {what} | {time.perf_counter() - wall:.1f} | {time.process_time() - processor:.1f} |")
    return found


def main() -> None:
    """Write the records, read them, write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--in-memory", action="store_true", help="leave out the files")
    given = parser.parse_args()
    chance = random.Random(0)
    records = [synthetic_record(n, chance) for n in range(given.records)]
    print(f"{given.records:,} records\n\n| | seconds | of the processor |\n|---|---:|---:|")
    if not given.in_memory:
        with tempfile.TemporaryDirectory() as folder:
            timed("write them, each synced", lambda: [write_record(r, Path(folder)) for r in records])
            size = sum(f.stat().st_size for f in Path(folder).glob("*.json"))
            records, problems = timed("read them", lambda: read_records(Path(folder)))
            assert not problems
    content = timed("tables, comparisons, pictures", lambda: content_of(records))
    page = timed("render the HTML", lambda: render(content))
    encoded = page.encode()
    if given.keep:
        given.keep.write_bytes(encoded)
    print(f"\nHTML: {len(encoded) / 1e6:.2f} MB ({len(gzip.compress(encoded)) / 1e6:.2f} MB gzipped)", end="")
    sys.stdout.write("\n" if given.in_memory else f"; the records themselves: {size / 1e6:.0f} MB\n")


if __name__ == "__main__":
    main()
