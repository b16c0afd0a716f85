"""A figure's value where it is known, and which way a metric is better."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from genaccel.errors import UserError, did_you_mean
from genaccel.records import Kind, Record


@dataclass(frozen=True)
class Number:
    """A figure whose value is known."""

    value: float
    kind: Kind
    protocol: str
    note: str
    spread: float | None


def known(record: Record, name: str) -> Number | None:
    """The figure called ``name`` when it has a finite value, else None."""
    figure = record.figure(name)
    if figure is None or figure.value is None or not math.isfinite(figure.value):
        return None
    return Number(figure.value, figure.kind, figure.protocol, figure.note, figure.spread)


HIGHER = ("_per_second", "_per_second_per_device", "compression", "mfu", "psnr", "ssim", "acc", "acc_norm", "acc_bytes")
LOWER = (
    "_seconds", "_seconds_p95", "_bytes", "perplexity", "bits_per_byte", "loss", "loss_before", "loss_after", "crps",
    "wasserstein", "flux_error", "joules", "_calls",
)  # fmt: skip
"""How the names of metrics end that are better the higher, or the lower, they are. Of others neither is said."""


def direction(metric: str) -> int:
    """1 where more is better, -1 where less is, 0 where that is not known (a power ratio is best at 1)."""
    return 1 if metric.endswith(HIGHER) else -1 if metric.endswith(LOWER) else 0


def find_metric(asked: str, records: Iterable[Record]) -> str:
    """The figure of ``records`` that is called ``asked``, or the only one whose name ends so (tokens_per_second).

    ``UserError`` when there is none or several.
    """
    names = {f.name for r in records for f in r.figures if f.value is not None}
    if asked in names:
        return asked
    ending = sorted(n for n in names if n.endswith(f"_{asked}"))
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise UserError(f"'{asked}' can mean {', '.join(ending)}.", f"Choose one, such as --metric {ending[0]}.")
    raise UserError(f"No record has a figure '{asked}'.", did_you_mean(asked, names))
