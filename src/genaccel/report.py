"""Records -> one self-contained HTML report: no request leaves it, and the same records give the same bytes.

Every number says whether it was measured, predicted or published, and by which protocol. Whatever a record holds is
untrusted text: the template escapes it, and a content security policy lets the file run and fetch nothing but its own
script.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genaccel import __version__, evidence, training_evidence
from genaccel.compare import Group, group_records, known, perplexity_change
from genaccel.console import format_bytes
from genaccel.evidence import plan_method
from genaccel.records import Record
from genaccel.store import write_text
from genaccel.training_evidence import draw_losses, draw_phases, training_rows

DASH = "–"
KIND_TAGS = {"measured": "m", "predicted": "p", "published": "pub"}
MAX_DETAILED = 1000  # most recent records with a section of their own; the others keep their row and their file


@dataclass(frozen=True)
class Column:
    """A column of the summary table: title, the figure it shows, how it is formatted."""

    title: str
    figure: str
    show: Callable[[float], str]
    numeric: bool = True


COLUMNS = (
    Column("model", "", str, numeric=False),
    Column("target", "", str, numeric=False),
    Column("mode", "", str, numeric=False),
    Column("high share", "", str),
    Column("size", "tensor_bytes", format_bytes),
    Column("compression", "compression", lambda v: f"{v:.2f}x"),
    Column("perplexity", "perplexity", lambda v: f"{v:.3f}"),
    Column("prefill tok/s", "prefill_tokens_per_second", lambda v: f"{v:.0f}"),
    Column("decode tok/s", "decode_tokens_per_second", lambda v: f"{v:.1f}"),
    Column("peak memory", "peak_memory_bytes", format_bytes),
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


def _plain_cell(record: Record, column: Column) -> str:
    number = known(record, column.figure)
    if number is None:
        return "-"
    return column.show(number.value) + ("" if number.kind == "measured" else f" ({KIND_TAGS[number.kind]})")


def write_report(records: Sequence[Record], output: Path) -> None:
    """Write the report of ``records`` to ``output``, whole or not at all; ``UserError`` when it cannot be written."""
    write_text(output, render_report(records))


def render_report(records: Sequence[Record]) -> str:
    """The report as HTML text. Neither the order of ``records`` nor the time of the call matters."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        DASH=DASH,
        KIND_TAGS=KIND_TAGS,
        evidence=evidence,
        training_evidence=training_evidence,
        format_bytes=format_bytes,
        script_hash=_script_hash,
    )
    page = environment.get_template("report.html.j2").render(_content(sorted(records, key=_age)))
    # JSON can hold half a surrogate pair, which UTF-8 cannot.
    return page.encode("utf-8", "replace").decode("utf-8")


def _age(record: Record) -> tuple[str, str]:
    return record.created, record.id


def _script_hash(script: str) -> str:
    """The source expression that lets a content security policy run this very script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()


def _content(records: list[Record]) -> dict[str, Any]:
    """Everything that the template shows, from ``records``, oldest first."""
    records = list({r.id: r for r in records}.values())  # merged folders may hold a record twice
    trained = [r for r in records if r.job == "finetune"]
    judged = [r for r in records if r.job != "finetune"]
    latest, groups, problems = records[::-1], group_records(judged), list[str]()
    protocols = _protocols(groups)
    detailed = latest[:MAX_DETAILED]
    return {
        "version": __version__,
        "records": records,
        "models": sorted({r.model for r in judged}),
        "modes": sorted({r.mode for r in judged}),
        "targets": sorted({r.target for r in judged if r.target}),
        "all_models": sorted({r.model for r in records}),
        "judged": judged,
        "training": training_rows(trained),
        "training_columns": training_evidence.COLUMNS,
        "training_pictures": [p for p in (draw_losses(trained), draw_phases(trained)) if p],
        "numbers": NUMBERS,
        "groups": [(group, _rows(group, protocols)) for group in groups],
        "protocols": protocols,
        "places": evidence.places(records),
        "estimates": evidence.estimates(records),
        "quality": evidence.quality_pictures(groups),
        "sensitivity": evidence.latest_distinct(latest, "sensitivity", evidence.show_sensitivity, problems),
        "plans": evidence.latest_distinct(latest, "layer_formats", evidence.show_plan, problems),
        "kernels": evidence.latest_distinct(latest, "kernels", evidence.show_kernels, problems),
        "warnings": evidence.warnings_by_text(latest),
        "detailed": detailed,
        "anchors": {r.id: f"record-{number}" for number, r in enumerate(detailed, 1)},
        "problems": problems,
    }


# --- The table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Protocols:
    """Numbers of the protocols in the table by (figure, protocol), and the figures that were taken by several."""

    numbers: dict[tuple[str, str], int]
    differing: frozenset[str]


@dataclass(frozen=True)
class Cell:
    """What the table shows for one number. ``value`` sorts it; ``tag`` is its protocol's number where they differ."""

    text: str
    title: str
    kind: str = ""
    value: float | None = None
    small: str = ""
    tag: int | None = None


def _protocols(groups: Sequence[Group]) -> Protocols:
    used = dict.fromkeys(
        (column.figure, number.protocol)
        for column in sorted(NUMBERS, key=lambda c: c.figure != "perplexity")
        for group in groups
        for record in group.records
        if (number := known(record, column.figure))
    )
    counts = Counter(name for name, _ in used)
    return Protocols({key: number for number, key in enumerate(used, 1)}, frozenset(n for n in TAGGED if counts[n] > 1))


def _rows(group: Group, protocols: Protocols) -> list[tuple[Record, str, list[Cell]]]:
    """(record, its plan in words, cells) of every record in ``group``; the change follows the perplexity."""
    rows = []
    for record in group.records:
        cells = []
        for column in NUMBERS:
            cells.append(_cell(record, column, protocols))
            if column.figure == "perplexity":
                cells.append(_change_cell(record, group))
        rows.append((record, plan_method(record), cells))
    return rows


def _cell(record: Record, column: Column, protocols: Protocols) -> Cell:
    number = known(record, column.figure)
    if number is None:
        if column.figure == "compression" and record.mode == "fp32":
            return Cell("reference", "FP32 is what the others are compared with")
        return Cell(DASH, "unknown")
    return Cell(
        column.show(number.value),
        "; ".join(part for part in (number.kind, number.protocol, number.note) if part),
        number.kind,
        number.value,
        "" if number.spread is None else f"IQR {number.spread:.0%}",
        protocols.numbers[column.figure, number.protocol] if column.figure in protocols.differing else None,
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
