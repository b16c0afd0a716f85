"""An accelerator: its file as published, and the plain numbers, converted and checked, that the rest computes with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from genaccel.architectures import check_bandwidth, check_dtype, check_link, check_peaks, find_architecture
from genaccel.errors import UserError
from genaccel.quantities import Entry, Quantity, Source, convert, need, parse_unit, peak, plain


@dataclass(frozen=True)
class PrecisionPair:
    """The higher and the lower precision between which mixed-precision quantization chooses."""

    high: str
    low: str


@dataclass(frozen=True)
class AcceleratorFile:
    """An accelerator as its file has it. Figures are of a card, or of a package of ``devices_per_package`` cards."""

    name: str
    description: str
    runtime: Literal["cpu", "cuda", "hpu", "none"] = "none"
    vendor: str = ""
    architecture: str | None = None
    form: str = ""
    quantize: PrecisionPair | None = None
    device_names: tuple[str, ...] = ()
    devices_per_package: int = 1
    note: str = ""
    memory: Entry | None = None
    memory_bandwidth: Entry | None = None
    host_memory: Entry | None = None
    cache: Entry | None = None
    tdp: Entry | None = None
    clock: Entry | None = None
    matrix_units: Entry | None = None
    vector_units: Entry | None = None
    link: Entry | None = None
    meshed: bool = False
    host_link: Entry | None = None
    peak_flops: dict[str, Entry] = field(default_factory=dict)
    measured: dict[str, Entry] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)


@dataclass(frozen=True)
class Accelerator:
    """A card: its name, the runtime that drives it, and what is known about it. What is not is absent.

    ``peak_flops`` are dense, by dtype, in FLOP/s. ``link_bytes_per_second`` is what all links to other cards of a node
    carry together in one direction (``meshed``: its share of them leads to each, none through a switch),
    ``host_link_bytes_per_second`` is that to the host. ``measured`` are rates that others
    reached. ``figures`` has the provenance of every number, ``absent`` why one is missing, by the same names ("memory",
    "peak_flops.bf16"). ``device_names`` are what the runtime calls the card, maker left out. ``runtime`` is none where
    genaccel cannot run and only predicts.
    """

    name: str
    description: str
    runtime: Literal["cpu", "cuda", "hpu", "none"] = "none"
    vendor: str = ""
    architecture: str | None = None
    form: str = ""
    quantize: PrecisionPair | None = None
    device_names: tuple[str, ...] = ()
    devices_per_package: int = 1
    note: str = ""
    memory_bytes: int | None = None
    memory_bytes_per_second: float | None = None
    host_memory_bytes: int | None = None
    cache_bytes: int | None = None
    tdp_watts: float | None = None
    clock_hz: float | None = None
    num_matrix_units: float | None = None
    num_vector_units: float | None = None
    link_bytes_per_second: float | None = None
    meshed: bool = False
    host_link_bytes_per_second: float | None = None
    peak_flops: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Quantity] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def pair(self) -> PrecisionPair:
        """The pair of precisions; only targets have one."""
        assert self.quantize is not None, f"{self.name} is no target"
        return self.quantize


PLAIN = {
    "memory": ("memory_bytes", "B"),
    "memory_bandwidth": ("memory_bytes_per_second", "B/s"),
    "host_memory": ("host_memory_bytes", "B"),
    "cache": ("cache_bytes", "B"),
    "tdp": ("tdp_watts", "W"),
    "clock": ("clock_hz", "Hz"),
    "matrix_units": ("num_matrix_units", "units"),
    "vector_units": ("num_vector_units", "units"),
}
"""Entry of a file: the number that it becomes, and its unit."""
AS_THEY_ARE = {f.name for f in fields(AcceleratorFile)} & {f.name for f in fields(Accelerator)} - {
    "peak_flops",
    "measured",
}


def accelerator_from(file: AcceleratorFile, what: str, shared: Mapping[str, Source]) -> Accelerator:
    """The accelerator of a file, every figure converted and checked. ``UserError`` names ``what`` and the figure."""
    sources = {**shared, **file.sources}
    absent = _absent(file, what)
    figures: dict[str, Quantity] = {}
    numbers: dict[str, Any] = {name: getattr(file, name) for name in AS_THEY_ARE}
    for name, (number, unit) in PLAIN.items():
        entry = getattr(file, name)
        if entry is not None and name not in absent:
            per_package = file.devices_per_package
            figures[name] = plain(entry, unit, f"{what}, {name}", sources, devices_per_package=per_package)
            value = figures[name].value
            numbers[number] = round(value) if number.endswith("_bytes") else value
    figures |= _peaks(file, absent, numbers, what, sources)
    for name in ("link", "host_link"):
        entry = getattr(file, name)
        if entry is not None and name not in absent:
            figures[name] = link_quantity(entry, f"{what}, {name}", sources)
            numbers[f"{name}_bytes_per_second"] = figures[name].value
    for title, entry in file.measured.items():
        if f"measured.{title}" not in absent:
            figures[f"measured.{title}"] = _measured(entry, f"{what}, measured.{title}", sources)
    if "memory_bandwidth" in figures and figures["memory_bandwidth"].kind != "measured":
        chip, rate = find_architecture(file.architecture, what), figures["memory_bandwidth"].value
        check_bandwidth(chip, rate, 1 / file.devices_per_package, f"{what}, memory_bandwidth")
    _check_gigabytes(file, numbers.get("memory_bytes"), numbers.get("host_memory_bytes"), what)
    _check_reached(figures, what)
    numbers |= {kind: _values(f"{kind}.", figures) for kind in ("peak_flops", "measured")}
    return Accelerator(**numbers, figures=figures, absent=absent)


def _absent(file: AcceleratorFile, what: str) -> dict[str, str]:
    """Why figures are missing, by their names."""
    entries = {name: getattr(file, name) for name in (*PLAIN, "link", "host_link")}
    entries |= {f"peak_flops.{dtype}": entry for dtype, entry in file.peak_flops.items()}
    entries |= {f"measured.{title}": entry for title, entry in file.measured.items()}
    absent = {name: entry for name, entry in entries.items() if entry is not None and entry.absent is not None}
    for name, entry in absent.items():
        if entry.value is not None:
            raise UserError(f"{what}, {name}: it has a value and says that it is absent.", "Remove one of them.")
    return {name: entry.absent for name, entry in absent.items()}


def _peaks(
    file: AcceleratorFile,
    absent: Mapping[str, str],
    numbers: Mapping[str, Any],
    what: str,
    sources: Mapping[str, Source],
) -> dict[str, Quantity]:
    """The dense peaks of one card, each by its name, checked against what the chip can do and against each other."""
    chip = find_architecture(file.architecture, what)
    clock, found = numbers.get("clock_hz"), {}
    for dtype, entry in file.peak_flops.items():
        name = f"peak_flops.{dtype}"
        if name in absent:
            continue
        check_dtype(chip, file.architecture, dtype, entry.density, f"{what}, {name}")
        per_package = file.devices_per_package
        found[name] = peak(entry, dtype, f"{what}, {name}", sources, devices_per_package=per_package, clock_hz=clock)
    # What was measured need not be what units and clock give.
    published = {name.removeprefix("peak_flops."): q.value for name, q in found.items() if q.kind != "measured"}
    check_peaks(chip, published, numbers.get("num_matrix_units"), clock, 1 / file.devices_per_package, what)
    return found


def _values(prefix: str, figures: Mapping[str, Quantity]) -> dict[str, float]:
    return {name.removeprefix(prefix): q.value for name, q in figures.items() if name.startswith(prefix)}


def _measured(entry: Entry, what: str, sources: Mapping[str, Source]) -> Quantity:
    """A rate that somebody reached: its own unit says what it is of."""
    if entry.kind != "measured":
        raise UserError(f"{what}: it is of kind {entry.kind}.", "Figures under 'measured' were measured.")
    need(entry, what, "per")
    assert entry.unit is not None
    return plain(entry, parse_unit(entry.unit, what)[0], what, sources)


def link_quantity(
    entry: Entry, what: str, sources: Mapping[str, Source], *, cards_per_node: int | None = None
) -> Quantity:
    """What the links of one card carry together in one direction, in bytes per second.

    Unless it was measured, its generation and the number of links must agree with it.
    """
    need(entry, what, "direction", "per")
    if entry.per == "package" or (entry.per == "node" and cards_per_node is None):
        raise UserError(
            f"{what}: it is per {entry.per}, which says nothing about a card's links.", "Give it per card or link."
        )
    links = _links_per_card(entry, what, cards_per_node)
    share = 0.5 if entry.direction == "both" else 1.0
    if entry.per == "node":
        share /= cards_per_node or 1
    if entry.per == "link":
        assert links is not None
        share *= links
    found = convert(entry, "B/s", what, sources, share)
    if entry.kind != "measured":
        need(entry, what, "technology")
        assert links is not None
        check_link(entry.technology, found.value, links, what)
    return found


def _links_per_card(entry: Entry, what: str, cards_per_node: int | None) -> float | None:
    """How many links a card has to itself, a share of one when cards share it."""
    if entry.links_per_card is not None and entry.links_per_node is not None:
        raise UserError(f"{what}: it gives links_per_card and links_per_node.", "Give one of them.")
    if entry.links_per_card is not None:
        return float(entry.links_per_card)
    if entry.links_per_node is not None and cards_per_node is not None:
        return entry.links_per_node / cards_per_node
    if entry.kind == "measured" and entry.per != "link":
        return None
    raise UserError(f"{what}: it does not say how many links there are.", "Give links_per_card or links_per_node.")


def _check_reached(figures: Mapping[str, Quantity], what: str) -> None:
    """Refuse a rate that somebody reached beyond what the card can do: one of the two is wrong."""
    limits = {name.removeprefix("peak_flops."): q for name, q in figures.items() if name.startswith("peak_flops.")}
    if "memory_bandwidth" in figures:
        limits |= dict.fromkeys(("memory", "weights"), figures["memory_bandwidth"])
    for name, reached in figures.items():
        words = name.removeprefix("measured.").split("_") if name.startswith("measured.") else []
        for limit in (limits[word] for word in words if word in limits):
            if limit.kind != "measured" and limit.unit == reached.unit and reached.value > limit.value:
                raise UserError(
                    f"{what}, {name}: {reached.entered} is {reached.value / limit.value:.0%} of what the card can do.",
                    "",
                )


def _check_gigabytes(file: AcceleratorFile, memory: int | None, host_memory: int | None, what: str) -> None:
    """A name that says how many GB a card has must agree with its memory."""
    if memory is None:
        return
    agreeing = {round(m / 1e9) for m in (memory, host_memory) if m} | {round(m / 2**30) for m in (memory,)}
    for text in (file.name, file.description, *file.device_names):
        for said in re.findall(r"(\d+) ?gb\b", text.lower()):
            if int(said) not in agreeing:
                raise UserError(
                    f"{what}: '{text}' says {said} GB, but its memory is {memory / 1e9:g} GB.",
                    "Variants of a card with other memory are files of their own.",
                )
