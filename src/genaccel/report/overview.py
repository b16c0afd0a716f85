"""The top of the report: a card for every workload, what its latest run found, and what the tags of numbers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genaccel.compare.identity import workload_of
from genaccel.records import Record
from genaccel.report.parts import Cell, number_cell

WORKLOADS = {
    "judging": ("Quantization and evaluation", "table"),
    "finetune": ("Fine-tuning", "training"),
    "superres": ("Super-resolution, training", "superres"),
    "superres judging": ("Super-resolution, quality", "superres"),
}
HEADLINES: dict[str, tuple[tuple[str, str], ...]] = {
    "judging": (
        ("perplexity", "perplexity"), ("compression", "against FP32"), ("decode_tokens_per_second", "tokens/s, decode"),
        ("tensor_bytes", "of weights"),
    ),
    "finetune": (("train_tokens_per_second", "tokens/s"), ("last_loss", "nats, last loss"), ("peak_memory_bytes", "peak")),
    "superres": (("train_images_per_second", "images/s"), ("last_loss", "last loss"), ("peak_memory_bytes", "peak")),
    "superres judging": (
        ("diffusion_crps", "CRPS"), ("bicubic_crps", "CRPS of bicubic"), ("diffusion_power_high_k", "of the small-scale power"),
    ),
}  # fmt: skip
MOST_NUMBERS = 3


@dataclass(frozen=True)
class Card:
    """A workload: how many records of how many models, where they ran, and numbers of the latest run."""

    title: str
    anchor: str
    summary: str
    latest: Record
    numbers: tuple[tuple[Cell, str], ...]


def cards(records: Sequence[Record]) -> list[Card]:
    """One for each workload that has records, which are given oldest first."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(workload_of(record), []).append(record)
    made = []
    for workload in sorted(found, key=lambda w: (list(WORKLOADS).index(w) if w in WORKLOADS else len(WORKLOADS), w)):
        own = found[workload]
        title, anchor = WORKLOADS.get(workload, (workload, "origins"))
        latest = own[-1]
        shown = [(number_cell(latest, name), what) for name, what in HEADLINES.get(workload, ())]
        numbers = tuple((cell, what) for cell, what in shown if cell.kind)[:MOST_NUMBERS]
        places = sorted({r.environment.accelerator or r.environment.device for r in own})
        summary = f"{_count(own, 'run')} of {_count({r.model for r in own}, 'model')} on {_named(places)}"
        made.append(Card(title, anchor, summary, latest, numbers))
    return made


def _count(things: Sequence[object] | set[str], name: str) -> str:
    return f"{len(things):,} {name}{'s' if len(things) != 1 else ''}"


def _named(places: Sequence[str]) -> str:
    return ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "")
