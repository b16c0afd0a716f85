"""A grid of fine-tuning runs: every combination of the given options, each in processes of its own."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
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
    """Run every combination and return the new records; the first that fails ends the study with its exit code."""
    cells = parse_grid(grid)
    before = {r.id for r in read_records(runs)[0]} if runs.is_dir() else set()
    rest = [a for a in without(arguments, list(cells[0])) if a != "--json"]
    for number, cell in enumerate(cells, 1):
        console.note(f"[{number}/{len(cells)}] " + ", ".join(f"{k} {v}" for k, v in cell.items()))
        added = [part for name, value in cell.items() for part in (f"--{name}", value)]
        done = subprocess.run([sys.executable, "-m", "genaccel", *rest, *added], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise UserError(
                f"Run {number} of {len(cells)} failed; the error is above.", "Records of the runs before it are kept."
            )
    return [r for r in read_records(runs)[0] if r.id not in before]
