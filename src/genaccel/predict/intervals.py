"""How far off predictions are: intervals from errors on groups that were left out of the fit (conformal prediction).

An error is the logarithm of predicted over published time of a row that was predicted without its group. The 80 %
interval around a prediction is as wide as 80 % of the errors of its kind: of the same stack and device, or of the
same stack on several cards or one, where enough groups are known, else of the same workload. What was never seen gets a wider one, and the answer says so.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from genaccel.predict.constants import Array, Corrections, Key

LEVEL = 0.8
"""The share of unseen rows that an interval should hold."""
ENOUGH_GROUPS, ENOUGH_ROWS = 3, 12
"""Groups and rows that a kind must have for its errors to speak for it."""
UNSEEN = 1.5
"""How much wider an interval is for each of device and stack that was never seen."""
DEFAULT = 0.5
"""Half-width (of a logarithm) where nothing is known."""


@dataclass(frozen=True)
class Errors:
    """Errors of left-out rows as arrays: workload, stack, device, whether on several cards, group, error."""

    workload: Array
    stack: Array
    device: Array
    several: Array
    group: Array
    error: Array

    @classmethod
    def of(cls, entries: Sequence[tuple[str, str, str, bool, str, float]]) -> Errors:
        """From (workload, stack, device, several, group, error) of every row."""
        columns = [np.array([entry[i] for entry in entries]) for i in range(6)]
        return cls(*columns)


@dataclass(frozen=True)
class Interval:
    """``factor``: the true time is between predicted / factor and predicted * factor, with a chance of 80 %."""

    factor: float
    basis: str

    def around(self, value: float) -> tuple[float, float]:
        """The interval around a predicted time or rate."""
        return value / self.factor, value * self.factor


@cache
def stored_errors() -> Errors:
    """The errors that came with the stored constants."""
    file = resources.files("genaccel").joinpath("catalogue/published/errors.csv")
    if not file.is_file():
        return Errors.of([])
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return Errors.of(
        [(r["workload"], r["stack"], r["device"], r["several"] == "1", r["group"], float(r["error"])) for r in rows]
    )


def interval_for(
    workload: str,
    key: Key,
    several: bool,
    known: Corrections,
    errors: Errors | None = None,
    leave_out: str | None = None,
    approximate: bool = False,
) -> Interval:
    """The 80 % interval of a prediction; ``leave_out`` is a group whose errors must not count."""
    found = errors or stored_errors()
    if not len(found.error):
        return Interval(float(np.exp(DEFAULT)), "no errors are known")
    mine = (found.workload == workload) & (found.group != (leave_out or ""))
    kinds = [
        (mine & (found.stack == key.stack) & (found.device == key.device), f"{key.stack} on {key.device}"),
        (mine & (found.stack == key.stack) & (found.several == several), f"{key.stack}, {_cards(several)}"),
        (mine & (found.stack == key.stack), key.stack),
        (mine & (found.device == key.device), f"{workload} on {key.device}"),
        (mine, workload),
    ]
    chosen, basis = next(((k, b) for k, b in kinds if _enough(found, k)), kinds[-1])
    half = _quantile(np.abs(found.error[chosen]), found.group[chosen])
    unseen = [level for level, name in (("device", key.device), ("stack", key.stack)) if not known.has(level, name)]
    for _ in unseen:
        half *= UNSEEN
    if approximate:
        half *= UNSEEN
        unseen.append("model")
    told = f"; this {' and this '.join(unseen)} never seen: wider" if unseen else ""
    count = len(np.unique(found.group[chosen]))
    return Interval(float(np.exp(half)), f"errors of {count} left-out groups of {basis}{told}")


def _cards(several: bool) -> str:
    return "several cards" if several else "one card"


def _enough(errors: Errors, kind: Array) -> bool:
    return int(kind.sum()) >= ENOUGH_ROWS and len(np.unique(errors.group[kind])) >= ENOUGH_GROUPS


def _quantile(sizes: Array, groups: Array) -> float:
    """The size that ``LEVEL`` of the errors do not exceed; a group of many rows counts as the root of their number."""
    if not len(sizes):
        return DEFAULT
    _, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weights = 1 / np.sqrt(counts[number])
    order = np.argsort(sizes)
    shares = np.cumsum(weights[order]) / weights.sum()
    # An unseen group may lie beyond all known ones, the more so the fewer they are.
    reach = min(1.0, LEVEL * (1 + 0.5 / len(counts)))
    return float(sizes[order][min(int(np.searchsorted(shares, reach)), len(sizes) - 1)])
