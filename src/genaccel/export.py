"""Records -> tables for other programs: a row for every figure, as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from genaccel.errors import UserError
from genaccel.records import Record
from genaccel.store import write_bytes

COLUMNS = (
    "record", "created", "job", "label", "model", "mode", "target", "device", "accelerator", "num_devices",
    "num_threads", "figure", "value", "unit", "kind", "protocol", "note", "spread", "stderr", "low", "high", "samples",
    "data", "config", "packages", "git_commit",
)  # fmt: skip
"""``low`` and ``high`` are the 95 % interval; ``samples``, ``data``, ``config`` and ``packages`` are JSON."""


def figure_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row for every figure of every record, in the order of ``COLUMNS``; what is unknown is None."""
    rows = []
    for record in records:
        environment = record.environment
        first = {
            "record": record.id, "created": record.created, "job": record.job, "label": record.label,
            "model": record.model, "mode": record.mode, "target": record.target, "device": environment.device,
            "accelerator": environment.accelerator, "num_devices": environment.num_devices,
            "num_threads": environment.num_threads,
        }  # fmt: skip
        last = {
            "data": _json(record.data),
            "config": _json({name: s.value for name, s in record.config.items()}),
            "packages": _json(environment.packages),
            "git_commit": environment.git_commit,
        }
        for f in record.figures:
            low, high = f.interval or (None, None)
            figure = {
                "figure": f.name, "value": f.value, "unit": f.unit, "kind": f.kind, "protocol": f.protocol,
                "note": f.note, "spread": f.spread, "stderr": f.stderr, "low": low, "high": high,
                "samples": _json(list(f.samples)),
            }  # fmt: skip
            rows.append(first | figure | last)
    return rows


def to_csv(records: Iterable[Record]) -> str:
    """The rows as CSV with a header; numbers in full precision."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(figure_rows(records))
    return text.getvalue()


def to_parquet(records: Iterable[Record]) -> bytes:
    """The rows as a Parquet file with typed columns; ``UserError`` when pyarrow is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "Parquet files are written by pyarrow, which is not installed.",
            "pip install 'genaccel[parquet]', or choose --format csv.",
        ) from None
    kinds = {name: pyarrow.float64() for name in ("value", "spread", "stderr", "low", "high")}
    kinds |= {name: pyarrow.int64() for name in ("num_devices", "num_threads")}
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in COLUMNS])
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(figure_rows(records), schema=schema), buffer)
    return buffer.getvalue()


def write_export(records: Sequence[Record], form: str, output: Path) -> None:
    """Write ``records`` to ``output`` as ``form``: csv or parquet, whole or not at all."""
    write_bytes(output, to_parquet(records) if form == "parquet" else to_csv(records).encode("utf-8", "replace"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
