"""Figures of hardware as their sources publish them, and the one form that everything else computes with.

A vendor's figure says little without its qualifiers: dense or sparse, one direction or both, bits or bytes, a card, a
package of two, a link or a node. ``Entry`` carries them as published; ``Quantity`` is the figure in FLOP/s, bytes, bytes
per second (one direction), watts or hertz, of one card. An entry that lacks a qualifier is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from genaccel.errors import UserError, did_you_mean

Kind = Literal["spec", "measured", "derived"]
"""spec: its maker says so; measured: somebody ran it; derived: computed from other figures."""


@dataclass(frozen=True)
class Source:
    """Where figures come from, and when that was published, revised or read (a year, month or day)."""

    title: str
    date: str


@dataclass(frozen=True)
class Entry:
    """A figure as a file gives it, or ``absent``: why there is none.

    ``density`` qualifies arithmetic, ``direction`` links; ``per`` says of what the figure is; ``clock_mhz`` at which
    clock it was published, when the card ships with another.
    """

    value: float | None = None
    unit: str | None = None
    kind: Kind | None = None
    source: str | None = None
    per: Literal["card", "package", "node", "link", "cluster"] | None = None
    density: Literal["dense", "sparse"] | None = None
    direction: Literal["one", "both"] | None = None
    technology: str | None = None
    links_per_card: int | None = None
    links_per_node: int | None = None
    clock_mhz: float | None = None
    note: str = ""
    absent: str | None = None


@dataclass(frozen=True)
class Quantity:
    """A figure of one card in canonical units, with its provenance; ``entered`` is what the source printed."""

    value: float
    unit: str
    kind: Kind
    source: str
    date: str
    entered: str
    note: str = ""


DIMENSIONS = {"FLOP/s": "arithmetic", "OP/s": "integer arithmetic", "B": "bytes", "B/s": "rate", "W": "power"} | {
    "Hz": "clock",
    "s": "time",
    "units": "count",
    "USD/h": "price",
}
PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "u": 1e-6}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
COUNTED = ("SM", "CU", "MME", "TPC", "MXU", "core", "CPU", "node")
INTEGERS = ("int8", "int4")


def parse_unit(unit: str, what: str) -> tuple[str, float]:
    """(canonical unit, factor): 'Gb/s' -> ('B/s', 1.25e8). ``UserError`` for what could be read in two ways."""
    if unit in COUNTED:
        return "units", 1.0
    if unit == "USD/h":
        return unit, 1.0
    if re.fullmatch(r"[kMGT]?(b|B)(ps|/sec)|.*(FLOPS|OPS|flops|tflops)", unit):
        raise UserError(
            f"{what}: the unit '{unit}' can be read in two ways.",
            "Write Gb/s for bits, GB/s for bytes, TFLOP/s or TOP/s for arithmetic.",
        )
    found = re.fullmatch(r"(Ki|Mi|Gi|Ti|[kMGTPmu]?)(FLOP/s|OP/s|B/s|b/s|B|W|Hz|s)", unit)
    if found is None:
        raise UserError(
            f"{what}: '{unit}' is no unit that is known here.", "Known: TFLOP/s, TOP/s, GB, GB/s, Gb/s, W, MHz."
        )
    prefix, name = found.groups()
    factor = (PREFIXES | BINARY)[prefix]
    return ("B/s", factor / 8) if name == "b/s" else (name, factor)


def need(entry: Entry, what: str, *fields: str) -> None:
    """Refuse an entry without one of ``fields``, saying what the missing one decides."""
    for name in ("value", "unit", "kind", "source", *fields):
        if getattr(entry, name) is None:
            raise UserError(f"{what}: it has no {name}: {MEANING[name]}.", "")


MEANING = {
    "value": "a figure that nobody published is entered as absent, with the reason",
    "unit": "bits and bytes differ by 8",
    "kind": "spec, measured or derived",
    "source": "a number without a source is a guess",
    "per": "a card, a package, a link and a node differ by their number",
    "density": "a sparse peak is twice the dense one",
    "direction": "both directions of a link are twice the rate of one",
    "technology": "the generation of a link says what is possible",
}


def convert(entry: Entry, canonical: str, what: str, sources: Mapping[str, Source], per_card: float = 1.0) -> Quantity:
    """``entry`` in ``canonical`` units times ``per_card``; provenance is kept. All qualifiers must have been checked."""
    assert entry.value is not None
    assert entry.unit is not None
    assert entry.kind is not None
    assert entry.source is not None
    unit, factor = parse_unit(entry.unit, what)
    if unit != canonical:
        raise UserError(
            f"{what}: it is in {entry.unit}, which is no {DIMENSIONS[canonical]}.",
            f"Give it in a multiple of {canonical}.",
        )
    if entry.value <= 0:
        raise UserError(f"{what}: it is {entry.value:g}.", "What is unknown is absent, with a reason, never 0.")
    if entry.source not in sources:
        raise UserError(f"{what}: there is no source '{entry.source}'.", did_you_mean(entry.source, sources))
    source = sources[entry.source]
    # A published figure in another unit is still published; one that was halved or divided is computed from it.
    kind: Kind = entry.kind if per_card == 1 else "derived"
    return Quantity(
        entry.value * factor * per_card, canonical, kind, source.title, source.date, as_entered(entry), entry.note
    )


def as_entered(entry: Entry) -> str:
    """What the source printed, with its qualifiers: '1979 TFLOP/s, sparse, per card'."""
    words = [f"{entry.value:g} {entry.unit}", entry.density]
    words += [f"{entry.direction} direction{'s' if entry.direction == 'both' else ''}" if entry.direction else None]
    words += [f"per {entry.per}" if entry.per else None, f"at {entry.clock_mhz:g} MHz" if entry.clock_mhz else None]
    return ", ".join(word for word in words if word)


def peak(
    entry: Entry,
    dtype: str,
    what: str,
    sources: Mapping[str, Source],
    *,
    devices_per_package: int = 1,
    clock_hz: float | None = None,
) -> Quantity:
    """The dense peak of one card in FLOP/s (operations per second for integers)."""
    need(entry, what, "per", "density")
    share = _share(entry, what, devices_per_package)
    if entry.density == "sparse":
        share /= 2
    if entry.clock_mhz is not None:
        if clock_hz is None:
            raise UserError(
                f"{what}: it was published at {entry.clock_mhz:g} MHz, but the card's clock is not given.", ""
            )
        share *= clock_hz / (entry.clock_mhz * 1e6)
    return convert(entry, "OP/s" if dtype in INTEGERS else "FLOP/s", what, sources, share)


def plain(
    entry: Entry, canonical: str, what: str, sources: Mapping[str, Source], *, devices_per_package: int = 1
) -> Quantity:
    """A figure that needs no qualifier but what it is of: memory, its bandwidth, power, counts, clocks."""
    need(entry, what, "per")
    share = 1.0 if canonical in ("Hz", "s") else _share(entry, what, devices_per_package)
    return convert(entry, canonical, what, sources, share)


def _share(entry: Entry, what: str, devices_per_package: int) -> float:
    if entry.per == "package":
        return 1 / devices_per_package
    if entry.per != "card":
        raise UserError(
            f"{what}: it is per {entry.per}, but it is a figure of a card.", "Give it per card or per package."
        )
    return 1.0
