"""Clusters: nodes of one kind, what their links carry, and what an hour of a card costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from genaccel.accelerator import Accelerator, link_quantity
from genaccel.errors import UserError, did_you_mean
from genaccel.quantities import Entry, Quantity, Source, convert, need

Scheduler = Literal["slurm", "kubernetes"]


@dataclass(frozen=True)
class ClusterFile:
    """A cluster as its file has it. ``source`` is that of its structure: cards and processors of a node, scheduler."""

    name: str
    description: str
    accelerator: str
    cards_per_node: int
    source: str
    scheduler: Scheduler | None = None
    cpu: str = ""
    topology: str = ""
    note: str = ""
    nodes: Entry | None = None
    cpus: Entry | None = None
    host_memory: Entry | None = None
    local_disk: Entry | None = None
    intra_node: Entry | None = None
    inter_node: Entry | None = None
    price: Entry | None = None
    sources: dict[str, Source] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    """Nodes of one kind. Link rates are in bytes per second, one direction, one card. What is unknown is absent.

    ``figures`` has the provenance of every number, ``absent`` why one is missing, by the names of the file.
    """

    name: str
    description: str
    accelerator: str
    card: Accelerator
    cards_per_node: int
    source: str
    scheduler: Scheduler | None = None
    cpu: str = ""
    topology: str = ""
    note: str = ""
    num_nodes: int | None = None
    num_cpus_per_node: int | None = None
    host_memory_bytes_per_node: int | None = None
    local_disk_bytes_per_node: int | None = None
    intra_node_bytes_per_second_per_card: float | None = None
    inter_node_bytes_per_second_per_card: float | None = None
    dollars_per_card_hour: float | None = None
    figures: dict[str, Quantity] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


LINKS = {
    "intra_node": "intra_node_bytes_per_second_per_card",
    "inter_node": "inter_node_bytes_per_second_per_card",
}
PLAIN = {
    "nodes": ("num_nodes", "units", "cluster"),
    "cpus": ("num_cpus_per_node", "units", "node"),
    "host_memory": ("host_memory_bytes_per_node", "B", "node"),
    "local_disk": ("local_disk_bytes_per_node", "B", "node"),
}
AS_THEY_ARE = ("name", "description", "accelerator", "cards_per_node", "scheduler", "cpu", "topology", "note")


def cluster_from(
    file: ClusterFile, what: str, shared: Mapping[str, Source], cards: Mapping[str, Accelerator]
) -> Cluster:
    """The cluster of a file, every figure converted and checked. ``UserError`` names ``what`` and the figure."""
    sources = {**shared, **file.sources}
    if file.accelerator not in cards:
        raise UserError(f"{what}: there is no accelerator '{file.accelerator}'.", did_you_mean(file.accelerator, cards))
    if file.source not in sources:
        raise UserError(f"{what}: there is no source '{file.source}'.", did_you_mean(file.source, sources))
    if file.cards_per_node < 1:
        raise UserError(f"{what}: {file.cards_per_node} cards a node.", "")
    card = cards[file.accelerator]
    entries = {name: getattr(file, name) for name in (*LINKS, *PLAIN, "price")}
    absent = {name: e.absent for name, e in entries.items() if e is not None and e.absent is not None}
    figures: dict[str, Quantity] = {}
    if file.intra_node is None and "link" in card.figures:
        figures["intra_node"] = replace(card.figures["link"], note=f"links of the {card.name}")
    for name, entry in entries.items():
        if entry is not None and name not in absent:
            figures[name] = _figure(name, entry, f"{what}, {name}", sources, file.cards_per_node)
    numbers: dict[str, Any] = {n: figures[name].value for name, n in LINKS.items() if name in figures}
    numbers |= {n: round(figures[name].value) for name, (n, _, _) in PLAIN.items() if name in figures}
    if "price" in figures:
        numbers["dollars_per_card_hour"] = figures["price"].value
    given = {name: getattr(file, name) for name in AS_THEY_ARE}
    return Cluster(**given, **numbers, card=card, source=sources[file.source].title, figures=figures, absent=absent)


def _figure(name: str, entry: Entry, what: str, sources: Mapping[str, Source], cards_per_node: int) -> Quantity:
    if name in LINKS:
        return link_quantity(entry, what, sources, cards_per_node=cards_per_node)
    need(entry, what, "per")
    if name == "price":
        if entry.per not in ("card", "node"):
            raise UserError(f"{what}: it is per {entry.per}.", "Give it per card or per node.")
        return convert(entry, "USD/h", what, sources, 1 / cards_per_node if entry.per == "node" else 1.0)
    _, unit, per = PLAIN[name]
    if entry.per != per:
        raise UserError(f"{what}: it is per {entry.per}, but it is a figure of a {per}.", f"Give it per {per}.")
    return convert(entry, unit, what, sources)
