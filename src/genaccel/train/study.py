"""A grid of training runs: every combination of the given options, each in processes of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from genaccel import console
from genaccel.errors import UserError
from genaccel.records import Record
from genaccel.store import read_records


def parse_grid(grid: Sequence[str]) -> list[dict[str, str]]:
    """``strategy=ddp,fsdp attention=flash,math`` -> every combination, the last option running fastest."""
    options: dict[str, list[str]] = {}
    for item in grid:
        name, sign, values = item.partition("=")
        choices = [v for v in values.split(",") if v]
        if not sign or not name or not choices:
            raise UserError(
                f"'{item}' is no option with values.", "For example --grid strategy=ddp,fsdp attention=flash,math"
            )
        options[name.removeprefix("--").replace("_", "-")] = choices
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def without(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The arguments less ``--grid`` and its values, and less every option of ``names`` with its value."""
    left: list[str] = []
    waiting = iter(range(len(arguments)))
    in_grid = False
    for index in waiting:
        argument = arguments[index]
        in_grid = argument == "--grid" or (in_grid and not argument.startswith("-"))
        if in_grid or argument.startswith("--grid="):
            continue
        name = argument.removeprefix("--").partition("=")[0].replace("_", "-")
        if argument.startswith("--") and name in names:
            if "=" not in argument:
                next(waiting, None)
            continue
        left.append(argument)
    return left


def run_grid(arguments: Sequence[str], grid: Sequence[str], runs: Path) -> list[Record]:
    """Run every combination and return the new records; the first that fails ends the study."""
    cells = parse_grid(grid)
    rest = without(arguments, list(cells[0]))
    return run_cells(rest, cells, runs)


def run_cells(
    arguments: Sequence[str],
    cells: Sequence[dict[str, str]],
    runs: Path,
    environment: Mapping[str, str] | None = None,
) -> list[Record]:
    """Run this program with ``arguments`` and each cell's options, one after the other; returns the new records."""
    before = {r.id for r in read_records(runs)[0]} if runs.is_dir() else set()
    rest = [a for a in arguments if a != "--json"]
    for number, cell in enumerate(cells, 1):
        console.note(f"[{number}/{len(cells)}] " + ", ".join(f"{k} {v}" for k, v in cell.items()))
        added = [part for name, value in cell.items() for part in (f"--{name}", value)]
        command = [sys.executable, "-m", "genaccel", *rest, *added]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=False)
        if done.returncode:
            raise UserError(
                f"Run {number} of {len(cells)} failed; the error is above.", "Records of the runs before it are kept."
            )
    return [r for r in read_records(runs)[0] if r.id not in before]


def scaling_cells(processes: Sequence[int], strategy: str, global_batch: int) -> list[dict[str, str]]:
    """Weak scaling: the same work for every process, so the global batch grows with their number."""
    if len(set(processes)) < 2 or min(processes) < 1:
        raise UserError("A scaling study needs two different numbers of processes.", "For example --scaling 1,2")
    if global_batch % min(processes):
        raise UserError(
            f"A global batch of {global_batch} cannot be split over {min(processes)} processes.",
            "Choose --global-batch as that of the fewest processes.",
        )
    several = "ddp" if strategy == "single" else strategy
    return [
        {
            "processes": str(n),
            "strategy": "single" if n == 1 else several,
            "global-batch": str(global_batch // min(processes) * n),
        }
        for n in sorted(set(processes))
    ]


@dataclass(frozen=True)
class Scaling:
    """Throughput of every number of processes, and what share of the first one's a process keeps."""

    processes: int
    per_second: float
    efficiency: float
    record: str


def scaling_of(records: Sequence[Record], figure: str) -> list[Scaling]:
    """Rows by number of processes, the fewest first; efficiency is per process, against the fewest."""
    found = sorted(records, key=lambda r: r.environment.num_devices)
    rates = [float(f.value or 0.0) for r in found if (f := r.figure(figure))]
    counts = [r.environment.num_devices for r in found]
    first = rates[0] / counts[0]
    return [Scaling(n, rate, rate / n / first, r.id) for n, rate, r in zip(counts, rates, found, strict=True)]
