"""Accelerators and clusters as the catalogue describes them: one TOML file each, read strictly."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeVar

from genaccel.errors import UserError, unknown
from genaccel.records import structure_strictly


@dataclass(frozen=True)
class PrecisionPair:
    """The higher and the lower precision between which mixed-precision quantization chooses."""

    high: str
    low: str


@dataclass(frozen=True)
class Accelerator:
    """A card: its name, the runtime that drives it, and what was published about it. What was not is absent.

    ``peak_flops`` are dense, by dtype, in FLOP/s. ``device_names`` are what the runtime calls the card, maker left out.
    """

    name: str
    description: str
    runtime: Literal["cpu", "cuda", "hpu"]
    quantize: PrecisionPair | None = None
    memory_bytes: int | None = None
    peak_flops: dict[str, float] = field(default_factory=dict)
    device_names: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> PrecisionPair:
        """The pair of precisions; only targets have one."""
        assert self.quantize is not None, f"{self.name} is no target"
        return self.quantize


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind. Link rates are in bytes per second, one direction, one card. What is unknown is absent."""

    name: str
    description: str
    accelerator: str
    cards_per_node: int
    source: str
    intra_node_bytes_per_second_per_card: float | None = None
    inter_node_bytes_per_second_per_card: float | None = None
    host_memory_bytes_per_node: int | None = None
    scheduler: Literal["slurm", "kubernetes"] | None = None

    @property
    def card(self) -> Accelerator:
        """The accelerator of its nodes."""
        return accelerators()[self.accelerator]


T = TypeVar("T")


def read_catalogue(folder: str, kind: type[T]) -> dict[str, T]:
    """Every TOML file of a folder of the catalogue as ``kind``, by name."""
    found: dict[str, Any] = {}
    for file in sorted(resources.files("genaccel").joinpath(f"catalogue/{folder}").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            data = tomllib.loads(file.read_text(encoding="utf-8"))
            item: Any = structure_strictly(kind, data, f"The catalogue file {file.name}")
            found[item.name] = item
    return found


@cache
def accelerators() -> dict[str, Accelerator]:
    """All accelerators of the catalogue by name."""
    return read_catalogue("accelerators", Accelerator)


@cache
def clusters() -> dict[str, Cluster]:
    """All clusters of the catalogue by name."""
    return read_catalogue("clusters", Cluster)


def targets() -> dict[str, Accelerator]:
    """The accelerators that models are quantized for: those with a pair of precisions."""
    return {name: card for name, card in accelerators().items() if card.quantize is not None}


def find_target(name: str) -> Accelerator:
    """The accelerator called ``name`` to quantize for, or a ``UserError`` that offers the nearest."""
    if name in accelerators() and name not in targets():
        raise UserError(
            f"{name} has no pair of precisions in the catalogue, so nothing can be quantized for it.",
            f"Targets: {', '.join(targets())}.",
        )
    if name not in targets():
        raise unknown("target", name, targets())
    return targets()[name]


def find_cluster(name: str) -> Cluster:
    """The cluster called ``name``, or a ``UserError`` that offers the nearest."""
    if name not in clusters():
        raise unknown("cluster", name, clusters())
    return clusters()[name]


def accelerator_of(device_name: str) -> Accelerator | None:
    """The catalogue's entry for what a runtime calls its card; None when there is none.

    The whole name counts, apart from a maker in front of it: a 'GH200', an 'H200 NVL' or a slice of a card ('... MIG
    1g.5gb') is no H200 or A100, and has other peaks.
    """
    called = f" {device_name.strip().lower()}"
    for card in accelerators().values():
        if any(called.endswith(f" {name.lower()}") for name in card.device_names):
            return card
    return None
