"""Comparisons that the records allow, found without being asked for: generations, strategies, kernels, precisions, scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from genaccel.compare.alignment import Asked, Cell, Comparison, comparison_of, stratify
from genaccel.compare.identity import measurements
from genaccel.records import Record
from genaccel.report.drawing import INK, Drawing, style
from genaccel.report.figures import GRID, canvas, gid, label, log_scale
from genaccel.report.parts import Anchors, Column, Picture, Row, RowGroup, Section, Table, show_number
from genaccel.report.parts import Cell as TableCell

AXES = ("accelerator", "strategy", "attention", "precision", "processes")
METRICS = (
    "train_tokens_per_second", "train_images_per_second", "prefill_tokens_per_second", "decode_tokens_per_second",
)  # fmt: skip
MAX_RECORDS = 1000  # the latest are looked at
MAX_COMPARISONS = 40
MAX_BARS = 24
DULL = ("workload", "kind", "weights", "protocol")


@dataclass(frozen=True)
class _Found:
    comparison: Comparison
    records: dict[str, Record]


def comparison_section(records: Sequence[Record], anchors: Anchors) -> Section | None:
    """Speed along every axis on which alike records differ; ``records`` are oldest first."""
    latest = records[-MAX_RECORDS:]
    found: list[Comparison] = []
    for metric in METRICS:
        measured = measurements(latest, metric)
        for axis in AXES:
            for key, stratum in stratify(measured, axis).items():
                if len(stratum) > 1 and len(found) < MAX_COMPARISONS:
                    found.append(comparison_of(dict(key), stratum, Asked(axis, metric), metric))
    if not found:
        return None
    by_id = {r.id: r for r in latest}
    groups = tuple(_group(c, by_id, anchors) for c in found)
    columns = (
        Column("what differs"), Column("value", True), Column("ratio", True, "over the base of its group"),
        Column("95 % interval", True), Column("efficiency", True, "of scaling"), Column("samples", True),
        Column("remarks", look="wide"), Column("record"),
    )  # fmt: skip
    table = Table("comparison-table", "Speeds that may be compared", columns, groups)
    notes = [
        "In each group everything but one thing is equal: workload, model, data, protocol, settings, machine. "
        "Intervals are bootstrapped from the samples; 'genaccel compare' compares anything else.",
    ]
    if len(records) > MAX_RECORDS or len(found) == MAX_COMPARISONS:
        notes.append(f"Of the {MAX_RECORDS} latest records, {MAX_COMPARISONS} comparisons at most.")
    picture = Picture("Speed over the base of each group", None, ("Lines are 95 % intervals.",), draw_ratios(found))
    return Section("comparisons", "Comparisons", tuple(notes), (picture, table))


def _group(found: Comparison, records: dict[str, Record], anchors: Anchors) -> RowGroup:
    rows = []
    for cell in found.cells:
        link = anchors.record_cell(records[cell.records[0]])
        more = f"and {len(cell.records) - 1} more" if len(cell.records) > 1 else ""
        rows.append(
            Row(
                (
                    TableCell(cell.at or "unknown"),
                    TableCell(show_number(cell.value, found.unit), cell.kind, cell.kind, cell.value),
                    _ratio(cell),
                    TableCell(_interval(cell), cell.how),
                    TableCell("" if cell.efficiency is None else f"{cell.efficiency:.0%}", value=cell.efficiency),
                    TableCell(str(cell.num_samples or ""), value=cell.num_samples),
                    TableCell(", ".join(cell.remarks)),
                    TableCell(link.text, small=more, code=True, to=link.to),
                ),
                max((records[r].created, r) for r in cell.records),
            )
        )
    equal = "; ".join(f"{n} {v}" for n, v in found.equal.items() if n not in DULL and v not in ("None", "False"))
    notes = f"; software differs: {', '.join(found.notes)}" if found.notes else ""
    return RowGroup(f"{found.metric} by {found.axis}", tuple(rows), f"equal: {equal}{notes}")


def _ratio(cell: Cell) -> TableCell:
    if cell.ratio is None:
        return TableCell("base", "the others are compared with this")
    return TableCell(f"{cell.ratio:.2f}x", cell.how or "no samples, so no interval", cell.kind, cell.ratio)


def _interval(cell: Cell) -> str:
    if cell.ratio is None:
        return ""
    return "unknown" if cell.interval is None else "{:.2f} to {:.2f}".format(*cell.interval)


def draw_ratios(found: Sequence[Comparison]) -> Drawing:
    """A dot for every ratio with its interval, the base as a line at 1."""
    rows: list[tuple[str, Cell]] = []
    for comparison in found:
        base = comparison.cells[0].at
        what = comparison.metric.replace("_tokens_per_second", "").replace("_images_per_second", "")
        many = " processes" if comparison.axis == "processes" else ""
        rows += [(f"{cell.at}{many} over {base}, {what}", cell) for cell in comparison.cells[1:]]
    rows = rows[:MAX_BARS]
    tips: list[str] = []
    with style():
        longest = max(len(label(name)) for name, _ in rows)
        figure, axes = canvas(0.85 + 0.24 * len(rows), left=0.3 + 0.074 * longest)
        axes.axvline(1.0, color=INK, alpha=0.6, linewidth=0.8, linestyle="--", zorder=0)
        for place, (name, cell) in enumerate(rows):
            assert cell.ratio is not None
            if cell.interval is not None:
                axes.plot(cell.interval, (place, place), color="#0072b2", linewidth=2, solid_capstyle="butt")
            measured: dict[str, Any] = {"markerfacecolor": "#0072b2" if cell.kind == "measured" else "none"}
            axes.plot(cell.ratio, place, "o", color="#0072b2", markersize=5, gid=gid(tips), **measured)
            tips.append(f"{name}: {cell.ratio:.2f}x" + (f", 95 % {_interval(cell)}" if cell.interval else ""))
        axes.set_yticks(range(len(rows)), [label(name) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        ratios = [cell.ratio for _, cell in rows if cell.ratio is not None]
        if max(ratios) > 8 * min(ratios) > 0:
            log_scale(axes, "x")
        axes.set_xlabel("ratio of speeds")
        axes.grid(axis="x", **GRID)
        return Drawing(figure, "Ratios of speeds with 95 % intervals", tuple(tips))
