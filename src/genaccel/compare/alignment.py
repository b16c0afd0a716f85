"""Comparisons along one axis: everything else is equal, or it is said what is not.

Records are divided into strata that agree in every field but the axis and what it owns. A stratum in which the axis has
two values or more is a comparison; one in which it has a single value is left out, with the fields that keep it apart.
When nothing is left to compare that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from genaccel.compare.identity import AXES, Measurement, measurements
from genaccel.compare.numbers import direction, find_metric
from genaccel.compare.ratios import Interval, cell_value, ratio_interval, remarks
from genaccel.errors import UserError, did_you_mean
from genaccel.records import Record

MOST_STRATA = 300  # that are searched for the nearest; a folder with more is of unlike runs anyway
LONGEST = 90  # characters of a field in a message
FIRST = ("fp32", "single", "ddp", "math", "full")
"""Values that others are compared with where it is not known which way a metric is better."""


@dataclass(frozen=True)
class Cell:
    """One value of the axis: its records, the median of their values, and its ratio to the base's."""

    at: str
    value: float
    kind: str
    records: tuple[str, ...]
    num_samples: int
    ratio: float | None
    interval: Interval | None
    how: str
    remarks: tuple[str, ...]
    efficiency: float | None = None
    cost: float | None = None
    joules: float | None = None


@dataclass(frozen=True)
class Comparison:
    """``metric`` along ``axis`` with all ``equal`` fields equal; the first cell is the base."""

    metric: str
    unit: str
    axis: str
    better: int
    equal: dict[str, str]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """Comparisons, and a sentence for each set of records that has nothing to be compared with."""

    comparisons: tuple[Comparison, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What is compared: ``prices`` are dollars an hour of one device by accelerator; ``base`` a value of the axis."""

    axis: str
    metric: str
    base: str | None = None
    prices: Mapping[str, float] | None = None


Stratum = dict[str, list[Measurement]]


def compare(records: Sequence[Record], asked: Asked) -> Compared:
    """Align ``records`` along ``asked.axis``; ``UserError`` when no two of them are alike in everything else."""
    metric = find_metric(asked.metric, records)
    found = measurements(records, metric)
    check_axis(asked.axis, found, metric)
    strata = stratify(found, asked.axis)
    alike = {key: s for key, s in strata.items() if len(s) > 1}
    if not alike:
        raise _refusal(strata, asked.axis, metric)
    comparisons = tuple(comparison_of(dict(key), stratum, asked, metric) for key, stratum in alike.items())
    used = {c.records for comparison in comparisons for c in comparison.cells}
    taken = {record for records in used for record in records}
    return Compared(comparisons, tuple(_left_out(strata, taken, asked.axis)))


def check_axis(axis: str, found: Sequence[Measurement], metric: str) -> None:
    """``UserError`` for an axis that no record has, or on which all are equal."""
    names = {name for m in found for name in m.fields}
    if axis not in names:
        raise UserError(f"Records with {metric} have no '{axis}' to compare by.", did_you_mean(axis, names))
    values = {m.fields.get(axis, "") for m in found}
    if len(values) == 1:
        differing = sorted(n for n in names if len({m.fields.get(n, "") for m in found}) > 1)
        hint = f"They differ in {', '.join(differing)}." if differing else "They are alike in everything."
        raise UserError(
            f"All {len(found)} records with {metric} have {axis} '{values.pop()}': nothing to compare.", hint
        )


def stratify(found: Sequence[Measurement], axis: str) -> dict[tuple[tuple[str, str], ...], Stratum]:
    """Measurements by all fields but the axis and what it owns, then by their value of the axis."""
    if axis != "processes":
        strata = _by_fields(found, axis, {axis, *AXES.get(axis, ())})
        return {key: _told_apart(stratum, AXES.get(axis, ())) for key, stratum in strata.items()}
    # Strong scaling keeps the global batch, weak scaling that of a process; one process has no strategy to speak of.
    found = _singles_everywhere(found)
    strata = _by_fields(found, axis, {axis, "micro_batch", "threads"})
    matched = {id(m) for s in strata.values() if len(s) > 1 for ms in s.values() for m in ms}
    rest = [m for m in found if id(m) not in matched]
    weak = _by_fields(rest, axis, {axis, "global_batch", "threads"})
    return {k: s for k, s in strata.items() if len(s) > 1} | weak


def _by_fields(found: Sequence[Measurement], axis: str, free: set[str]) -> dict[tuple[tuple[str, str], ...], Stratum]:
    strata: dict[tuple[tuple[str, str], ...], Stratum] = {}
    for m in found:
        key = tuple(sorted((n, v) for n, v in m.fields.items() if n not in free))
        strata.setdefault(key, {}).setdefault(m.fields.get(axis, ""), []).append(m)
    return strata


def _told_apart(stratum: Stratum, owned: Sequence[str]) -> Stratum:
    """A value of the axis whose records differ in what the axis owns becomes several: no median is of unlike runs.

    Two fake runs of other formats are both 'fake', and are labelled 'fake (precision bf16+int8, fake)' and so on.
    """
    split: Stratum = {}
    for at, cell in stratum.items():
        differing = [name for name in owned if len({m.fields.get(name, "") for m in cell}) > 1]
        for m in cell:
            own = "; ".join(f"{name} {m.fields.get(name) or 'none'}" for name in differing)
            split.setdefault(f"{at} ({own})" if own else at, []).append(m)
    return split


def _singles_everywhere(found: Sequence[Measurement]) -> list[Measurement]:
    strategies = sorted({m.fields.get("strategy", "single") for m in found} - {"single"})
    placed = []
    for m in found:
        if m.fields.get("strategy") == "single" and strategies:
            placed += [replace(m, fields=m.fields | {"strategy": s}) for s in strategies]
        else:
            placed.append(m)
    return placed


# --- One comparison ---------------------------------------------------------------------------------------------------


def comparison_of(equal: dict[str, str], stratum: Stratum, asked: Asked, metric: str) -> Comparison:
    """The cells of one stratum, base first; ``equal`` are the fields that all of it shares."""
    better = direction(metric)
    base = _base(stratum, asked, better)
    order = sorted(stratum, key=lambda at: (at != base, _natural(at, asked.axis), at))
    cells = tuple(_cell(at, stratum[at], base, stratum[base], asked) for at in order)
    unit = next(m.figure.unit for ms in stratum.values() for m in ms)
    shown = {name: value for name, value in equal.items() if value}
    return Comparison(metric, unit, asked.axis, better, shown, cells, tuple(_notes(stratum)))


def _base(stratum: Stratum, asked: Asked, better: int) -> str:
    """What the others are compared with: what was asked for, the fewest processes, FP32 and the like, or the worst."""
    if asked.base is not None:
        if asked.base in stratum:
            return asked.base
        raise UserError(f"No record has {asked.axis} '{asked.base}'.", did_you_mean(asked.base, stratum))
    if asked.axis == "processes":
        return min(stratum, key=lambda at: _natural(at, asked.axis))
    first = [at for at in FIRST if at in stratum]
    if first:
        return first[0]
    return min(sorted(stratum), key=lambda at: better * cell_value(stratum[at]))


def _natural(at: str, axis: str) -> float:
    return float(at) if axis == "processes" and at.isdecimal() else 0.0


def _cell(at: str, cell: list[Measurement], base_at: str, base: list[Measurement], asked: Asked) -> Cell:
    value, below = cell_value(cell), cell_value(base)
    ratio = value / below if below > 0 and at != base_at else None
    interval, how = ratio_interval(cell, base) if ratio is not None else (None, "")
    efficiency = None
    if asked.axis == "processes" and ratio is not None and cell[0].figure.name.endswith("_per_second"):
        efficiency = ratio / (_natural(at, asked.axis) / _natural(base_at, asked.axis))
    kinds = sorted({m.figure.kind for m in cell})
    return Cell(
        at,
        value,
        " and ".join(kinds),
        tuple(m.record.id for m in cell),
        sum(len(m.figure.samples) for m in cell),
        ratio,
        interval,
        how,
        tuple(remarks(cell)),
        efficiency,
        _cost(cell[0], value, asked.prices or {}),
        _joules(cell),
    )


def _cost(m: Measurement, value: float, prices: Mapping[str, float]) -> float | None:
    """Dollars for a million tokens or images, where the price of the accelerator is given."""
    price = prices.get(m.fields["accelerator"])
    if price is None or not m.figure.name.endswith("_per_second") or value <= 0:
        return None
    return price * m.record.environment.num_devices / 3600 / value * 1e6


def _joules(cell: Sequence[Measurement]) -> float | None:
    """Energy of a token or an image of one device's run; of several devices only the first one's energy is known."""
    for m in cell:
        energy, curves = m.record.figure("energy_joules"), m.record.details.get("curves")
        counted = curves.get("tokens") if isinstance(curves, dict) else None
        if energy is None or not energy.value or m.record.environment.num_devices > 1 or not isinstance(counted, list):
            continue
        if total := sum(c for c in counted if isinstance(c, int | float)):
            return energy.value / total
    return None


def _notes(stratum: Stratum) -> list[str]:
    """What differs without making the numbers incomparable: software."""
    versions: dict[str, set[str]] = {}
    for measured in stratum.values():
        for m in measured:
            for package, version in m.record.environment.packages.items():
                versions.setdefault(package, set()).add(version)
    return [f"{name} {' and '.join(sorted(found))}" for name, found in sorted(versions.items()) if len(found) > 1]


# --- What cannot be compared ------------------------------------------------------------------------------------------


def _difference(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    return [n for n in dict.fromkeys((*a, *b)) if a.get(n, "") != b.get(n, "")]


def _representatives(strata: Mapping[tuple[tuple[str, str], ...], Stratum]) -> list[tuple[dict[str, str], Stratum]]:
    return [(dict(key), stratum) for key, stratum in list(strata.items())[-MOST_STRATA:]]


def _refusal(strata: Mapping[tuple[tuple[str, str], ...], Stratum], axis: str, metric: str) -> UserError:
    """Names what differs between the two records that are most alike among those with different values of the axis."""
    found = _representatives(strata)
    pairs = [
        (_difference(a, b), a, b, one, other)
        for i, (a, one) in enumerate(found)
        for b, other in found[i + 1 :]
        if set(one) != set(other)
    ]
    fields, a, b, one, other = min(pairs, key=lambda p: len(p[0]))
    listed = " and ".join(filter(None, [", ".join(fields[:-1]), fields[-1]]))
    ids = [next(iter(stratum.values()))[0].record.id for stratum in (one, other)]
    hint = "; ".join(f"{n}: {_cut(a.get(n, ''))} against {_cut(b.get(n, ''))}" for n in fields)
    return UserError(
        f"No two records can be compared by {axis}: the nearest ({ids[0]} and {ids[1]}) also differ in {listed}.",
        f"{hint}.",
    )


def _left_out(strata: Mapping[tuple[tuple[str, str], ...], Stratum], taken: set[str], axis: str) -> list[str]:
    """A sentence for each stratum with a single value of the axis: what tells it from the nearest other one."""
    found, sentences = _representatives(strata), []
    for fields, stratum in found:
        ids = [m.record.id for ms in stratum.values() for m in ms if m.record.id not in taken]
        if len(stratum) > 1 or not ids:
            continue
        others = [_difference(fields, other) for other, s in found if other is not fields]
        nearest = min(others, key=len, default=[])
        at = next(iter(stratum))
        shown = ", ".join(ids[:4]) + (f" and {len(ids) - 4} more" if len(ids) > 4 else "")
        sentences.append(f"{shown} ({axis} {at or 'unknown'}): alone, for {', '.join(nearest) or 'nothing'} differs")
    return sentences


def _cut(text: str) -> str:
    text = text or "none"
    return repr(text) if len(text) <= LONGEST else repr(text[: LONGEST - 1] + "…")
