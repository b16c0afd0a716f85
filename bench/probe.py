"""What 'genaccel probe' measures beside plain numpy and torch loops of the same, in the same run.

    python bench/probe.py [--size 1024] [--rounds 3]

The contenders take turns. numpy's are timed by a loop of this file, torch's by torch's own benchmark timer, so that none
shares the probe's code. All report medians, for machines are seldom quiet. Prints Markdown for bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.benchmark import Timer

from genaccel.devices import get
from genaccel.measure import repeat
from genaccel.probe import PRODUCTS, memory_figures

ARRAY_BYTES = 256_000_000


def median_time(function: Callable[[], object], calls: int = 7) -> float:
    """Seconds of a call, the first one left out."""
    function()
    found = []
    for _ in range(calls):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def numpy_product(size: int) -> float:
    """GFLOP/s of numpy's matrix product in fp32."""
    a, b = (np.random.default_rng(0).standard_normal((size, size), dtype=np.float32) for _ in range(2))
    return 2 * size**3 / median_time(lambda: np.matmul(a, b)) / 1e9


def torch_product(size: int) -> float:
    """GFLOP/s of torch's, by torch's timer."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    timer = Timer("torch.mm(a, b)", globals={"torch": torch, "a": a, "b": b}, num_threads=torch.get_num_threads())
    return 2 * size**3 / timer.blocked_autorange(min_run_time=1.0).median / 1e9


def numpy_triad() -> float:
    """GB/s of a = b + s c in numpy, in blocks that a cache holds so that no array is read twice."""
    count, block = ARRAY_BYTES // 4, 16_384
    a, b, c = (np.ones(count, dtype=np.float32) for _ in range(3))

    def triad() -> None:
        for start in range(0, count, block):
            part = slice(start, start + block)
            np.multiply(c[part], np.float32(3.0), out=a[part])
            np.add(a[part], b[part], out=a[part])

    return 3 * 4 * count / median_time(triad) / 1e9


def torch_triad() -> float:
    """GB/s of the same in torch, by torch's timer."""
    count = ARRAY_BYTES // 4
    a, b, c = (torch.ones(count) for _ in range(3))
    statement = "torch.add(b, c, alpha=3.0, out=a)"
    timer = Timer(statement, globals={"torch": torch, "a": a, "b": b, "c": c}, num_threads=torch.get_num_threads())
    return 3 * 4 * count / timer.blocked_autorange(min_run_time=1.0).median / 1e9


def main() -> None:
    """Measure in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cpu, fp32 = get("cpu"), next(p for p in PRODUCTS if p.dtype == "fp32")

    def ours() -> float:
        seconds = repeat(fp32.prepare(options.size, torch.device("cpu")), cpu).median
        return 2 * options.size**3 / seconds / 1e9

    contenders: dict[str, Callable[[], float]] = {
        f"fp32 product of {options.size}, GFLOP/s: probe": ours,
        "the same: numpy": lambda: numpy_product(options.size),
        "the same: torch's timer": lambda: torch_product(options.size),
        "triad, GB/s: probe": lambda: memory_figures(cpu, ARRAY_BYTES)[1].value / 1e9,
        "the same: numpy, in blocks": numpy_triad,
        "the same by torch's timer": torch_triad,
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, measure in contenders.items():
            found[name].append(measure())
    load = os.getloadavg()[0]
    print(
        f"{torch.get_num_threads()} threads of {os.cpu_count()} processors, load {load:.1f}, {options.rounds} rounds\n"
    )
    print("| | median | min - max |\n|---|---:|---:|")
    for name, values in found.items():
        print(f"| {name} | {statistics.median(values):.1f} | {min(values):.1f} - {max(values):.1f} |")


if __name__ == "__main__":
    main()
