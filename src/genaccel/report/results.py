"""What the report shows of judged models: size, perplexity, speed and memory beside FP32, and what stands behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genaccel.compare.identity import JUDGING
from genaccel.compare.numbers import known
from genaccel.compare.perplexity import Group, group_records, perplexity_change
from genaccel.console import format_bytes
from genaccel.records import Record
from genaccel.report import evidence
from genaccel.report.evidence import place_key, plan_method, run_name
from genaccel.report.parts import DASH, KIND_TAGS, Anchors, Cell, Column, Heading, Row, RowGroup, Section, Table

NOTES = (
    "A group holds one model under one perplexity protocol on one text. Perplexities are compared inside a group only, and sorting keeps to it.",
    "Fake runs compute in FP32 on rounded weights: their perplexity stands for the plan, their speed and memory do not. "
    "Speeds belong to the device in 'ran on', whatever the target.",
)


@dataclass(frozen=True)
class Shown:
    """A column of the summary table: title, the figure it shows, how it is formatted."""

    title: str
    figure: str
    show: Callable[[float], str]
    numeric: bool = True


COLUMNS = (
    Shown("model", "", str, numeric=False),
    Shown("target", "", str, numeric=False),
    Shown("mode", "", str, numeric=False),
    Shown("high share", "", str),
    Shown("size", "tensor_bytes", format_bytes),
    Shown("compression", "compression", lambda v: f"{v:.2f}x"),
    Shown("perplexity", "perplexity", lambda v: f"{v:.3f}"),
    Shown("prefill tok/s", "prefill_tokens_per_second", lambda v: f"{v:,.0f}"),
    Shown("decode tok/s", "decode_tokens_per_second", lambda v: f"{v:.1f}"),
    Shown("peak memory", "peak_memory_bytes", format_bytes),
)
NUMBERS = COLUMNS[4:]
# Sizes are exact counts of the same tensors however they were made, and a group has one perplexity protocol; speeds
# and memory depend on how they were taken, so where protocols differ the cell names its own.
TAGGED = ("prefill_tokens_per_second", "decode_tokens_per_second", "peak_memory_bytes")


def summary_row(record: Record) -> list[str]:
    """One line of the summary table; (p) marks a predicted figure, (pub) a published one, a dash an unknown one."""
    share = record.config.get("share")
    head = [
        record.model,
        record.target or "-",
        record.mode,
        str(share.value) if share and record.mode != "fp32" else "-",
    ]
    return head + [_plain_cell(record, column) for column in NUMBERS]


def _plain_cell(record: Record, column: Shown) -> str:
    number = known(record, column.figure)
    if number is None:
        return "-"
    return column.show(number.value) + ("" if number.kind == "measured" else f" ({KIND_TAGS[number.kind]})")


def judging_section(records: Sequence[Record], anchors: Anchors, problems: list[str]) -> Section | None:
    """Quantization and evaluation: the table, then accuracy, quality and size, sensitivity, plans and kernels."""
    judged = [r for r in records if r.job in JUDGING]
    if not judged:
        return None
    groups, latest = group_records(judged), judged[::-1]
    parts: list[Any] = [_table(groups, anchors)]

    def add(id: str, title: str, found: Sequence[Any], *notes: str) -> None:
        if found:
            more = (
                (f"The {evidence.MAX_PICTURES} most recent that differ.",)
                if len(found) == evidence.MAX_PICTURES
                else ()
            )
            parts.extend([Heading(id, title, (*notes, *more)), *found])

    accuracy = evidence.estimates(judged, anchors)
    add("estimates", "Accuracy and differences", [accuracy] if accuracy else [])
    add("quality", "Quality and size", evidence.quality_pictures(groups))
    dots = evidence.latest_distinct(latest, "sensitivity", evidence.show_sensitivity, problems)
    scale = "A higher score asks for more bits. Scores of different metrics or models have no common scale."
    add("sensitivity", "Sensitivity by layer", dots, scale)
    add("plans", "Precision plans", evidence.latest_distinct(latest, "layer_formats", evidence.show_plan, problems))
    checked = "Each kernel was checked against a reference on extreme values, then timed; the choice depends on how many rows of activations there are."
    add(
        "kernels", "Kernels used", evidence.latest_distinct(latest, "kernels", evidence.show_kernels, problems), checked
    )
    return Section("table", "Quantization and evaluation", NOTES, tuple(parts))


def _table(groups: Sequence[Group], anchors: Anchors) -> Table:
    titles: list[Column] = [Column("run"), Column("plan", look="plan"), Column("ran on", look="place")]
    for shown in NUMBERS:
        titles.append(Column(shown.title, True, shown.figure))
        if shown.figure == "perplexity":
            titles.append(Column("change from FP32", True))
    numbers = ((name, known(record, name)) for group in groups for record in group.records for name in TAGGED)
    protocols = Counter(name for name, _ in {(name, number.protocol) for name, number in numbers if number})
    differing = frozenset(n for n in TAGGED if protocols[n] > 1)
    return Table(
        "results",
        "Size, perplexity, speed and memory of every judged model",
        (*titles, Column("record")),
        tuple(_group(group, differing, anchors) for group in groups),
        ("model", "mode", "target"),
    )


def _group(group: Group, differing: frozenset[str], anchors: Anchors) -> RowGroup:
    links: tuple[tuple[str, str], ...] = ()
    about = "no perplexity was taken"
    if group.protocol:
        number = anchors.protocol("perplexity", group.protocol)
        about, links = group.protocol, ((f"protocol-{number}", f"§{number}"),)
        if group.text_sha256:
            about += f"; text sha256 {group.text_sha256[:12]}"
    return RowGroup(group.model, tuple(_row(r, group, differing, anchors) for r in group.records), about, links)


def _row(record: Record, group: Group, differing: frozenset[str], anchors: Anchors) -> Row:
    """Its plan in words, where it ran, its numbers; the change follows the perplexity."""
    cells = [Cell(run_name(record)), Cell(plan_method(record) or DASH), anchors.place_cell(record, place_key(record))]
    for column in NUMBERS:
        cells.append(_cell(record, column, differing, anchors))
        if column.figure == "perplexity":
            cells.append(_change_cell(record, group))
    tags = {"model": record.model, "mode": record.mode, "target": record.target}
    words = f"{record.model} {record.label}"
    return Row((*cells, anchors.record_cell(record)), (record.created, record.id), tags, words)


def _cell(record: Record, column: Shown, differing: frozenset[str], anchors: Anchors) -> Cell:
    number = known(record, column.figure)
    if number is None:
        if column.figure == "compression" and record.mode == "fp32":
            return Cell("reference", "FP32 is what the others are compared with")
        return Cell(DASH, "unknown")
    tag = anchors.protocol(column.figure, number.protocol)
    return Cell(
        column.show(number.value),
        "; ".join(part for part in (number.kind, number.protocol, number.note) if part),
        number.kind,
        number.value,
        "" if number.spread is None else f"IQR {number.spread:.0%}",
        ((f"protocol-{tag}", f"§{tag}"),) if column.figure in differing else (),
    )


def _change_cell(record: Record, group: Group) -> Cell:
    reference = group.reference(record)
    if reference is record:
        return Cell("reference", "the FP32 record that others are compared with")
    change = perplexity_change(record, reference)
    if change is None:
        return Cell(DASH, "unknown: no FP32 record of this model was judged by the same protocol on the same text")
    title = f"{change.kind}; against FP32 record {change.reference.id}, same protocol and text"
    margin = "" if change.margin is None else f"±{change.margin:.3f}, "
    small = f"{margin}{_signed(100 * change.share, 2)} %"
    return Cell(_signed(change.value, 3), title, change.kind, change.value, small)


def _signed(value: float, digits: int) -> str:
    """With its sign, a true minus; what rounds to nothing has none."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else text[1:]
