"""Records -> one self-contained HTML report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from genaccel.console import format_bytes
from genaccel.records import Record
from genaccel.store import write_text


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


def summary_row(record: Record) -> list[str]:
    """One line of the summary table; a predicted figure is marked with (p), an unknown one is a dash."""
    share = record.config.get("share")
    head = [
        record.model,
        record.target or "-",
        record.mode,
        str(share.value) if share and record.mode != "fp32" else "-",
    ]
    return head + [_cell(record, column) for column in COLUMNS[4:]]


def _cell(record: Record, column: Column) -> str:
    figure = record.figure(column.figure)
    if figure is None or figure.value is None:
        return "-"
    return column.show(figure.value) + (" (p)" if figure.kind == "predicted" else "")


def write_report(records: Sequence[Record], output: Path) -> None:
    write_text(output, "<html></html>")
