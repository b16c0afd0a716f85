"""How long predictions take: one configuration, and a sweep of ten thousand; and that torch is not needed.

python bench/predict.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from genaccel.predict.finetuning import Finetuning, predict_finetuning
from genaccel.predict.generating import Generating, predict_generating
from genaccel.predict.sweep import sweep

ONE_SECONDS, MANY_SECONDS = 0.05, 20.0


def timed_cpu(action) -> tuple[float, float]:
    """(wall clock, processor) seconds: on a busy machine they differ."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> int:
    """Time them and compare with what is promised."""
    ask = Finetuning("llama-3.1-8b", "h100", strategy="fsdp")
    first = timed_cpu(lambda: predict_finetuning(ask))
    again = [timed_cpu(lambda: predict_finetuning(ask)) for _ in range(20)]
    one = median(wall for wall, _ in again)
    print(f"one configuration: {one * 1e3:.2f} ms (the first, which reads the catalogue: {first[0]:.2f} s)")
    values = {
        "on": ["a100", "h100", "h200", "gaudi2", "gaudi3"],
        "cards": [1, 2, 4, 8],
        "batch": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        "prompt": [128, 256, 512, 1024, 2048],
        "new": [64, 128, 256, 512, 1024],
        "precision": ["bf16", "int8-weights"],
    }
    found = []
    many = timed_cpu(
        lambda: found.extend(sweep(lambda **c: predict_generating(Generating("llama-3.1-8b", **c)), values)[0])
    )
    print(f"{len(found):,} configurations: {many[0]:.1f} s ({many[1]:.1f} s of the processor)")
    print(f"torch was imported: {'torch' in sys.modules}")
    return 0 if one < ONE_SECONDS and many[1] < MANY_SECONDS and "torch" not in sys.modules else 1


if __name__ == "__main__":
    sys.exit(main())
