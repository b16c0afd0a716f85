"""Accelerators as the catalogue describes them: one TOML file each, read strictly."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from genaccel.errors import unknown
from genaccel.records import structure_strictly


@dataclass(frozen=True)
class PrecisionPair:
    """The higher and the lower precision between which mixed-precision quantization chooses."""

    high: str
    low: str


@dataclass(frozen=True)
class Accelerator:
    """A target: its name, the runtime that drives it, and its pair of precisions."""

    name: str
    description: str
    runtime: Literal["cpu", "cuda", "hpu"]
    quantize: PrecisionPair


@cache
def accelerators() -> dict[str, Accelerator]:
    """All accelerators of the catalogue by name."""
    found = {}
    for file in sorted(resources.files("genaccel").joinpath("catalogue/accelerators").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text(encoding="utf-8"))
            item = structure_strictly(Accelerator, data, f"The catalogue file {file.name}")
            found[item.name] = item
    return found


def find_accelerator(name: str) -> Accelerator:
    """The accelerator called ``name``, or a ``UserError`` that offers the nearest."""
    if name not in accelerators():
        raise unknown("target", name, accelerators())
    return accelerators()[name]
