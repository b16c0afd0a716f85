"""Numbers that no record of ours holds: what was predicted for a machine, what others published. They stand beside ours.

Whoever predicts or reads publications makes ``OtherRow`` objects, or writes them to a file: a JSON list of objects with
the same names, or a CSV with a header.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from genaccel.errors import UserError
from genaccel.records import Kind, structure_strictly
from genaccel.report.parts import DASH, Cell, Column, Row, RowGroup, Section, Table, show_number


@dataclass(frozen=True)
class OtherRow:
    """One number: what was done (workload, model, setting), on what, the metric's value, and who says so.

    ``low`` and ``high`` are its 95 % interval where it has one.
    """

    kind: Kind
    workload: str
    model: str
    accelerator: str
    metric: str
    value: float
    unit: str
    protocol: str
    source: str
    setting: str = ""
    num_devices: int | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def read_rows(path: Path) -> list[OtherRow]:
    """The rows in a .json or .csv file; ``UserError`` names the first row that is wrong."""
    if not path.is_file():
        raise UserError(
            f"There is no file of rows {path}.", "Give a .json or .csv file; docs/records.md has its columns."
        )
    try:
        text = path.read_text(encoding="utf-8")
        data = _parse_csv(text) if path.suffix == ".csv" else json.loads(text)
    except ValueError as error:
        raise UserError(f"The rows in {path} cannot be read: {error}.", "A JSON list of objects, or a CSV.") from None
    if not isinstance(data, list):
        raise UserError(f"{path} is no list of rows.", "A JSON list of objects, or a CSV.")
    return [structure_strictly(OtherRow, row, f"Row {number} of {path}") for number, row in enumerate(data, 1)]


def _parse_csv(text: str) -> list[dict[str, Any]]:
    types = {f.name: str(f.type) for f in fields(OtherRow)}
    rows = []
    for line in csv.DictReader(text.splitlines()):
        given = {str(k): v for k, v in line.items() if v not in (None, "")}
        rows.append(
            {k: _number(v) if types.get(k, "").split(" ")[0] in ("float", "int") else v for k, v in given.items()}
        )
    return rows


def _number(text: str) -> float | int | str:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return text


def other_section(rows: Sequence[OtherRow]) -> Section | None:
    """A table of all of them, by workload and metric."""
    if not rows:
        return None
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for number, r in enumerate(rows):
        interval = "" if r.low is None or r.high is None else f"{_show(r.low, r.unit)} to {_show(r.high, r.unit)}"
        cells = (
            Cell(r.model or DASH),
            Cell(r.accelerator),
            Cell(str(r.num_devices or DASH), value=r.num_devices),
            Cell(r.setting or DASH),
            Cell(_show(r.value, r.unit), f"{r.kind}; {r.protocol}", r.kind, r.value),
            Cell(interval or DASH),
            Cell(r.protocol, small=r.note),
            Cell(r.source),
        )
        tags = {"kind": r.kind, "model": r.model, "accelerator": r.accelerator}
        groups.setdefault((r.workload, r.metric, r.unit), []).append(Row(cells, ("", f"{-number:012d}"), tags))
    columns = (
        Column("model"), Column("accelerator"), Column("devices", True), Column("setting", look="plan"),
        Column("value", True), Column("95 % interval", True), Column("protocol", look="wide"), Column("source", look="wide"),
    )  # fmt: skip
    found = tuple(RowGroup(f"{w}: {m}", tuple(g), u) for (w, m, u), g in sorted(groups.items()))
    table = Table("others-table", "Numbers that no run here measured", columns, found, ("kind", "model", "accelerator"))
    counts = {kind: sum(r.kind == kind for r in rows) for kind in ("predicted", "published", "measured")}
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return Section("others", "Predicted and published", (f"{said}. Protocols differ from source to source.",), (table,))


def _show(value: float, unit: str) -> str:
    return show_number(value, unit) if math.isfinite(value) else DASH
