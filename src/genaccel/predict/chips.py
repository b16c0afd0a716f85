"""A card as the time models see it: peaks, bandwidth, memory, links, and the family of chips that it belongs to."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from genaccel.accelerator import Accelerator
from genaccel.errors import UserError
from genaccel.hardware import Cluster, accelerators, clusters, find_accelerator, find_cluster
from genaccel.predict.communication import Links

FAMILIES = {"gaudi1": "gaudi", "gaudi2": "gaudi", "gaudi3": "gaudi", "cdna2": "cdna", "cdna3": "cdna"}
"""Architectures whose kernels and software are one family; others are a family each."""
BETWEEN = 2.5e10
"""Bytes per second of a card between nodes where nothing is known: 200 Gb/s."""
SUBSTITUTES = {"bf16": ("fp16",), "fp16": ("bf16",), "tf32": ("fp32",), "int8": ("fp8",), "fp4": ("fp8",)}
"""What a published row that does not say exactly may have meant."""
MEASURED = "measured"
"""The family of cards whose rates are what kernels reached, not what was specified: a probe's."""
SHARES = {"attention": 0.4, "convolution": 0.95, "elementwise": 0.17, "weights_read": 0.8, "weights_packed": 0.3}
"""Of the rate of products and of the memory, for a probe's file that does not have these rates: AVX2, torch 2.13, fp32."""
START_SECONDS = 4e-6
"""The same for starting a kernel."""


@dataclass(frozen=True)
class Chip:
    """Rates in FLOP/s (dense), bytes per second and bytes. ``reference`` peaks are no specification but a unit.

    ``reached`` are rates that were measured on it, by the names that 'genaccel probe' gives them. On a ``serial`` chip,
    a CPU, starting kernels and sending take the time of computing: nothing of that is hidden.
    """

    name: str
    family: str
    memory_bytes: float
    memory_bytes_per_second: float
    peak_flops: Mapping[str, float]
    links: Links
    watts: float | None = None
    runtime: str | None = None
    reference: frozenset[str] = field(default_factory=frozenset)
    reached: Mapping[str, float] = field(default_factory=dict)
    shared: bool = False

    @property
    def serial(self) -> bool:
        """Whether the host is the accelerator."""
        return self.runtime == "cpu"

    @property
    def seconds_to_start(self) -> float:
        """What one kernel costs the host where that was measured; else 1: the time models have seconds of their own."""
        return self.reached.get("kernel_start", START_SECONDS) if self.family == MEASURED else 1.0

    def elementwise_rate(self, trains: bool = False) -> float:
        """Bytes per second between matrix products; of other cards the memory's, of which a constant is the share."""
        if self.family != MEASURED:
            return self.memory_bytes_per_second
        name = "elementwise_both" if trains else "elementwise"
        return self.reached.get(name, SHARES["elementwise"] * self.memory_bytes_per_second)

    def weights_rate(self, rows: float) -> float:
        """Bytes per second with which weights are read that so many rows are multiplied with."""
        if self.family != MEASURED:
            return self.memory_bytes_per_second
        name = "weights_read" if rows <= 1 else "weights_packed"
        return self.reached.get(name, SHARES[name] * self.memory_bytes_per_second)

    def rate(self, kind: str, dtype: str) -> float:
        """FLOP/s of 'attention' or 'convolution', where measured, else the peak, of which a constant is the share."""
        if self.family != MEASURED:
            return self.peak(dtype, lenient=True)
        peak = self.peak(dtype, lenient=True)
        return self.reached.get(f"{kind}_{dtype}", SHARES[kind] * peak)

    def part(self, num: int) -> Chip:
        """What each of ``num`` processes has of it: one machine's processor is shared, of other cards each has its own."""
        if not self.shared or num == 1:
            return self
        return replace(
            self,
            memory_bytes=self.memory_bytes / num,
            memory_bytes_per_second=self.memory_bytes_per_second / num,
            peak_flops={k: v / num for k, v in self.peak_flops.items()},
            reached={k: v / num if k.startswith(DIVIDED) else v for k, v in self.reached.items()},
        )

    def peak(self, dtype: str, lenient: bool = False) -> float:
        """The dense peak of ``dtype``, or a ``UserError`` that says what the chip has. ``lenient``: or the nearest one."""
        for name in (dtype, *(SUBSTITUTES.get(dtype, ()) if lenient else ())):
            if name in self.peak_flops:
                return self.peak_flops[name]
        if lenient and self.peak_flops:
            return max(self.peak_flops.get("bf16", 0.0), self.peak_flops.get("fp16", 0.0)) or max(
                self.peak_flops.values()
            )
        raise UserError(
            f"{self.name} does not compute in {dtype}, or no peak was published.",
            f"It has {', '.join(self.peak_flops) or 'no published peak'}.",
        )


DIVIDED = ("matmul", "attention", "convolution", "elementwise", "weights", "triad", "copy")
"""Rates that processes of one machine share; what they send each other was measured between them."""


@cache
def _published() -> dict[str, Any]:
    file = resources.files("genaccel").joinpath("catalogue/published/devices.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def chip_of(card: Accelerator, cluster: Cluster | None = None) -> Chip:
    """The card as the catalogue has it, in nodes of ``cluster`` or, without, of eight with its own links."""
    if card.memory_bytes_per_second is None:
        raise UserError(
            f"The catalogue has no memory bandwidth of {card.name}, without which nothing can be predicted.",
            "Measure it: genaccel probe.",
        )
    assumed = _published()["reference_peaks"].get(card.name, {})
    peaks = {**assumed, **card.peak_flops}
    inside = card.link_bytes_per_second or card.host_link_bytes_per_second or BETWEEN
    links = Links(inside, _between(card.name), 8, meshed=card.meshed)
    if cluster is not None:
        links = Links(
            cluster.intra_node_bytes_per_second_per_card or inside,
            cluster.inter_node_bytes_per_second_per_card or links.between,
            cluster.cards_per_node,
            meshed=card.meshed,
        )
    elif card.runtime == "cpu":
        links = Links(
            inside,
            links.between,
            1024,
            card.measured.get("all_gather_bus"),
            card.measured.get("collective_latency", 0.0),
        )
    architecture = card.architecture or card.name
    probed = card.figures["memory_bandwidth"].kind == MEASURED
    return Chip(
        name=card.name,
        family=MEASURED if probed else FAMILIES.get(architecture, architecture),
        memory_bytes=float(card.memory_bytes or 0),
        memory_bytes_per_second=card.memory_bytes_per_second,
        peak_flops=peaks,
        links=links,
        watts=card.tdp_watts,
        runtime=card.runtime,
        reference=frozenset(set(assumed) - set(card.peak_flops)),
        reached=card.measured if probed else {},
        shared=cluster is None and card.runtime == "cpu",
    )


def _between(card: str) -> float:
    """What a card has between nodes in the catalogue's clusters of such cards, or in usual nodes of them."""
    rates = [c.inter_node_bytes_per_second_per_card for c in clusters().values() if c.accelerator == card]
    usual = float(_published()["between"].get(card, BETWEEN))
    return max((rate for rate in rates if rate), default=usual)


def find_chip(name: str) -> Chip:
    """The chip called ``name`` in the catalogue, or that of an accelerator file, such as 'genaccel probe' writes."""
    path = Path(name)
    written = path.stat().st_mtime_ns if name.endswith(".toml") and path.is_file() else 0
    return _found(name, written)


@cache
def _found(name: str, written: int) -> Chip:
    return chip_of(find_accelerator(name))


@cache
def _in_cluster(name: str) -> Chip:
    cluster = find_cluster(name)
    return chip_of(cluster.card, cluster)


def cluster_with(name: str | None, cards: int) -> Cluster | None:
    """The cluster that is asked for, which must have so many cards; None without a name."""
    if name is None:
        return None
    cluster = find_cluster(name)
    total = None if cluster.num_nodes is None else cluster.num_nodes * cluster.cards_per_node
    if total is not None and cards > total:
        raise UserError(f"{cluster.name} has {total} cards, not {cards}.", f"Choose --cards {total} or fewer.")
    return cluster


def chip_for(on: str, cluster: str | None, processes: int = 1) -> Chip:
    """What each of so many processes has to itself, with the links of its cluster where one is given."""
    return (find_chip(on) if cluster is None else _in_cluster(cluster)).part(processes)


@cache
def published_chip(name: str, argonne: bool = False) -> Chip | None:
    """The chip that a published row calls ``name``; None for one that nothing is known about.

    ``argonne``: that source does not say which of its cards of a name it had, and its figures tell.
    """
    table = _published()
    called = table["names"].get(name) or (table["argonne"].get(name) if argonne else None)
    called = (table["argonne"].get(name) if argonne else None) or called or name.lower()
    entry = table["cards"].get(called, {})
    base = entry.get("like", called)
    if base not in accelerators():
        return None
    chip = find_chip(base)
    if not entry:
        return chip
    links = chip.links
    if "link" in entry:
        links = replace(links, inside=float(entry["link"]))
    if "cards_per_node" in entry:
        links = replace(links, cards_per_node=int(entry["cards_per_node"]))
    factor = entry.get("peaks_times", 1.0)
    return replace(
        chip,
        name=called,
        memory_bytes=float(entry.get("memory", chip.memory_bytes)),
        memory_bytes_per_second=float(entry.get("bandwidth", chip.memory_bytes_per_second)),
        peak_flops={k: v * factor for k, v in chip.peak_flops.items()},
        links=links,
        watts=entry.get("watts", chip.watts),
    )
