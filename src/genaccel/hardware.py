"""Accelerators and clusters as the catalogue describes them: one TOML file each, read strictly.

Files hold figures as they were published, with their qualifiers and sources; what is read holds plain numbers in one
form (FLOP/s dense, bytes, bytes per second in one direction, of one card) and, beside them, where each comes from.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from genaccel.accelerator import Accelerator, AcceleratorFile, PrecisionPair, accelerator_from
from genaccel.cluster import Cluster, ClusterFile, cluster_from
from genaccel.errors import UserError, unknown
from genaccel.quantities import Source
from genaccel.records import structure_strictly

__all__ = ["Accelerator", "Cluster", "PrecisionPair"]

USER_FOLDER = "GENACCEL_CATALOGUE"
"""Environment variable: a folder with accelerators/, clusters/ and models/ of one's own."""


T = TypeVar("T")
F = TypeVar("F")


def files_of(folder: str) -> Iterator[tuple[str, str]]:
    """(name, text) of every TOML file in a folder of the catalogue, and of the user's own where there is one."""
    for file in sorted(resources.files("genaccel").joinpath(f"catalogue/{folder}").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            yield file.name, file.read_text(encoding="utf-8")
    own = os.environ.get(USER_FOLDER)
    if own:
        if not Path(own).is_dir():
            raise UserError(f"{USER_FOLDER} names {own}, which is no folder.", "Unset it, or make the folder.")
        for path in sorted((Path(own) / folder).glob("*.toml")):
            yield str(path), path.read_text(encoding="utf-8")


def read_catalogue(folder: str, kind: type[F], make: Callable[[F, str], T] | None = None) -> dict[str, T]:
    """Every TOML file of a folder of the catalogue, as ``make`` builds it from ``kind``, by name."""
    found: dict[str, Any] = {}
    for name, text in files_of(folder):
        item = read_text(text, kind, f"The catalogue file {name}", make)
        if item.name in found:
            raise UserError(f"The catalogue file {name} describes {item.name}, which is there already.", "Rename it.")
        found[item.name] = item
    return found


def read_text(text: str, kind: type[F], what: str, make: Callable[[F, str], T] | None = None) -> Any:
    """``text`` (TOML) as ``kind``, strictly, and then as ``make`` builds it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{what} is no TOML: {error}.", "") from None
    read = structure_strictly(kind, data, what)
    return make(read, what) if make else read


@dataclass(frozen=True)
class SourceFile:
    """The sources that several files of the catalogue name."""

    sources: dict[str, Source]


@cache
def sources() -> dict[str, Source]:
    """The sources of the catalogue by the names that its files use."""
    file = resources.files("genaccel").joinpath("catalogue/sources.toml")
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return read_text(text, SourceFile, "The catalogue file sources.toml").sources if text else {}


def read_accelerator(path: Path) -> Accelerator:
    """The accelerator that a TOML file describes: one of one's own, or one that 'genaccel probe' wrote."""
    if not path.is_file():
        raise UserError(f"There is no file {path}.", "'genaccel list accelerators' lists those of the catalogue.")
    found: Accelerator = read_text(path.read_text(encoding="utf-8"), AcceleratorFile, f"The file {path}", _make)
    return found


def _make(file: AcceleratorFile, what: str) -> Accelerator:
    return accelerator_from(file, what, sources())


@cache
def accelerators() -> dict[str, Accelerator]:
    """All accelerators of the catalogue, and of the user's folder, by name."""
    return read_catalogue("accelerators", AcceleratorFile, _make)


@cache
def clusters() -> dict[str, Cluster]:
    """All clusters of the catalogue, and of the user's folder, by name."""
    return read_catalogue(
        "clusters", ClusterFile, lambda file, what: cluster_from(file, what, sources(), accelerators())
    )


def targets() -> dict[str, Accelerator]:
    """The accelerators that models are quantized for: those with a pair of precisions."""
    return {name: card for name, card in accelerators().items() if card.quantize is not None}


def find_accelerator(name: str) -> Accelerator:
    """The accelerator of the catalogue called ``name``, or the one in the TOML file ``name``; else a ``UserError``."""
    if name.endswith(".toml"):
        return read_accelerator(Path(name))
    if name.lower() not in accelerators():
        raise unknown("accelerator", name, accelerators())
    return accelerators()[name.lower()]


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
