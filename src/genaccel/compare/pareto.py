"""Which runs nobody would regret: those that no other run beats in one metric without losing in the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genaccel.compare.identity import WORKLOAD, Measurement, measurements
from genaccel.compare.numbers import direction, find_metric
from genaccel.errors import UserError
from genaccel.records import Record

ALIASES = {"bytes": "tensor_bytes", "quality": "perplexity", "memory": "peak_memory_bytes"}


@dataclass(frozen=True)
class Point:
    """One record: its values of the two metrics; ``beaten_by`` is the id of a record that is better, '' on the front."""

    record: str
    label: str
    values: tuple[float, float]
    kinds: tuple[str, str]
    beaten_by: str


@dataclass(frozen=True)
class Front:
    """Records of one workload, best first in the first metric; those that nobody beats are the Pareto set."""

    metrics: tuple[str, str]
    units: tuple[str, str]
    equal: dict[str, str]
    points: tuple[Point, ...]


def pareto_sets(records: Sequence[Record], metrics: Sequence[str]) -> list[Front]:
    """A front for every workload, data, protocol and machine that has two records or more with both metrics."""
    if len(metrics) != 2:
        raise UserError("A Pareto set is of two metrics.", "For example --pareto bytes,perplexity.")
    first, second = (find_metric(ALIASES.get(m, m), records) for m in metrics)
    ways = (direction(first), direction(second))
    for name, way in zip((first, second), ways, strict=True):
        if way == 0:
            raise UserError(f"It is not known whether more or less {name} is better.", "Choose another metric.")
    others = {m.record.id: m for m in measurements(records, second)}
    groups: dict[tuple[tuple[str, str], ...], list[tuple[Measurement, Measurement]]] = {}
    for one in measurements(records, first):
        if (other := others.get(one.record.id)) is not None:
            groups.setdefault(_workload(one, other), []).append((one, other))
    fronts = [
        Front(
            (first, second),
            (pairs[0][0].figure.unit, pairs[0][1].figure.unit),
            {name: value for name, value in key if value},
            tuple(_points(pairs, ways)),
        )
        for key, pairs in groups.items()
        if len(pairs) > 1
    ]
    if not fronts:
        raise UserError(
            f"No two records of one workload have both {first} and {second}.",
            "A Pareto set needs equal data, protocol and machine.",
        )
    return fronts


def _workload(one: Measurement, other: Measurement) -> tuple[tuple[str, str], ...]:
    """The fields that must be equal; protocol and data are those of either metric. A size has none of its own."""
    sizes = ("tensor_bytes", "file_bytes", "compression")
    key = {n: one.fields.get(n, "") for n in WORKLOAD if n not in ("data", "protocol")}
    for m in (one, other):
        for name in ("data", "protocol"):
            key[f"{name} of {m.figure.name}"] = "" if m.figure.name in sizes else m.fields[name]
    return tuple(sorted(key.items()))


def _points(pairs: Sequence[tuple[Measurement, Measurement]], ways: tuple[int, int]) -> list[Point]:
    """Best in the first metric first. One pass: a point is beaten when an earlier one is no worse in the second."""
    ordered = sorted(pairs, key=lambda p: (-ways[0] * p[0].value, -ways[1] * p[1].value, p[0].record.id))
    points: list[Point] = []
    best: tuple[Measurement, Measurement] | None = None
    for one, other in ordered:
        beaten = best is not None and ways[1] * best[1].value >= ways[1] * other.value
        if best is not None and beaten and (best[0].value, best[1].value) == (one.value, other.value):
            beaten = False  # equal in both: neither beats the other
        if not beaten:
            best = (one, other)
        points.append(
            Point(
                one.record.id,
                one.record.label + (f", {plan}" if (plan := one.fields["plan"]) else ""),
                (one.value, other.value),
                (one.figure.kind, other.figure.kind),
                best[0].record.id if beaten and best else "",
            )
        )
    return points
