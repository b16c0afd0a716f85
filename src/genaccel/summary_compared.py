"""Comparisons and Pareto sets as a person sees them in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from genaccel import console
from genaccel.compare.alignment import Cell, Compared, Comparison
from genaccel.compare.pareto import Front

BETTER = {1: "more is better", -1: "less is better", 0: ""}
MOST_LEFT_OUT = 10
DULL = ("workload", "kind")


def print_comparisons(found: Compared) -> None:
    """A table for every comparison, what was equal in it, and what was left out and why."""
    for comparison in found.comparisons:
        _print_comparison(comparison)
    for sentence in found.left_out[:MOST_LEFT_OUT]:
        console.say(f"left out: {sentence}")
    if len(found.left_out) > MOST_LEFT_OUT:
        console.say(f"left out: {len(found.left_out) - MOST_LEFT_OUT} more sets of records")


def _print_comparison(found: Comparison) -> None:
    optional: dict[str, Callable[[Cell], str]] = {
        "efficiency": lambda c: "" if c.efficiency is None else f"{c.efficiency:.0%}",
        "$ a million": lambda c: "" if c.cost is None else f"{c.cost:.4g}",
        "J each": lambda c: "" if c.joules is None else f"{c.joules:.4g}",
        "remarks": lambda c: ", ".join(c.remarks),
    }
    used = {title: show for title, show in optional.items() if any(show(c) for c in found.cells)}
    rows = [
        [c.at or "unknown", format_number(c.value, found.unit), c.kind, *_ratio(c), str(c.num_samples or "-"),
         *(show(c) for show in used.values()), ", ".join(c.records[:3]) + ("…" if len(c.records) > 3 else "")]
        for c in found.cells
    ]  # fmt: skip
    better = f" ({BETTER[found.better]})" if found.better else ""
    titles = [found.axis, found.unit or "value", "kind", "ratio", "95 % interval", "samples", *used, "records"]
    console.table(f"{found.metric} by {found.axis}{better}", titles, rows, (1, 3, 4, 5))
    console.say(f"  equal: {_equal(found.equal)}")
    ways = dict.fromkeys(c.how for c in found.cells if c.how)
    if ways:
        console.say(f"  intervals: {', '.join(ways)}")
    if found.notes:
        console.say(f"  software differs: {'; '.join(found.notes)}")


def _equal(fields: dict[str, str]) -> str:
    """What all share; what is off or not given is left to --json."""
    return "; ".join(f"{n} {v}" for n, v in fields.items() if n not in DULL and v not in ("None", "False"))


def _ratio(cell: Cell) -> tuple[str, str]:
    if cell.ratio is None:
        return "base", ""
    return f"{cell.ratio:.3f}x", "unknown" if cell.interval is None else "{:.3f} to {:.3f}".format(*cell.interval)


def print_fronts(fronts: Sequence[Front]) -> None:
    """A table for every workload: best first in the first metric, the Pareto set marked."""
    for front in fronts:
        rows = [
            [
                p.label,
                *(
                    f"{format_number(v, u)}{'' if k == 'measured' else f' ({k})'}"
                    for v, u, k in zip(p.values, front.units, p.kinds, strict=True)
                ),
                "" if p.beaten_by else "yes",
                p.beaten_by,
                p.record,
            ]
            for p in front.points
        ]
        titles = ["run", *front.metrics, "in the set", "beaten by", "record"]
        console.table(f"Pareto set of {' and '.join(front.metrics)}", titles, rows, (1, 2))
        console.say(f"  equal: {_equal(front.equal)}")


def format_number(value: float, unit: str) -> str:
    """A value as its unit is read: bytes with a decimal prefix, the rest with five digits."""
    if unit == "B":
        return console.format_bytes(value)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}"
