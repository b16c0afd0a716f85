"""Records as tables: what other programs read, and that DuckDB and pandas read the records as they are."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
from tests.made_records import dust, fake, fp32, tuned

from genaccel.errors import UserError
from genaccel.export import COLUMNS, figure_rows, to_csv, to_parquet, write_export
from genaccel.records import record_to_json
from genaccel.store import write_record

RECORDS = [fp32(), fake(), tuned(), dust(details={})]
NUM_FIGURES = sum(len(r.figures) for r in RECORDS)


def test_a_row_for_every_figure_in_full_precision() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([fp32(perplexity=20.1 + 0.2), tuned()]))))
    assert tuple(rows[0]) == COLUMNS
    perplexity = next(r for r in rows if r["figure"] == "perplexity")
    assert float(perplexity["value"]) == 20.1 + 0.2
    assert (perplexity["record"], perplexity["kind"], perplexity["job"]) == ("base", "measured", "evaluate")
    assert next(r for r in rows if r["figure"] == "peak_memory_bytes")["value"] == "", "unknown is empty, never 0"
    speed = next(r for r in rows if r["figure"] == "train_tokens_per_second")
    assert json.loads(speed["samples"]) == [98.0, 99.0, 100.0, 101.0, 102.0]
    assert json.loads(speed["config"])["strategy"] == "ddp"
    assert json.loads(speed["data"]) == {"alpaca.json": "c" * 64}


def test_text_with_commas_quotes_and_lines_survives() -> None:
    (row, *_) = csv.DictReader(io.StringIO(to_csv([fp32(label='a,"b"\n<script>')])))
    assert row["label"] == 'a,"b"\n<script>'


def test_parquet_has_typed_columns(tmp_path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_export(RECORDS, "parquet", tmp_path / "records.parquet")
    table = parquet.read_table(tmp_path / "records.parquet")
    assert table.num_rows == NUM_FIGURES
    assert tuple(table.column_names) == COLUMNS
    assert str(table.schema.field("value").type) == "double"
    assert str(table.schema.field("num_devices").type) == "int64"
    assert table.to_pylist() == figure_rows(RECORDS)


def test_without_pyarrow_parquet_is_refused_with_what_to_do(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pyarrow, which is not installed") as caught:
        to_parquet(RECORDS)
    assert "genaccel[parquet]" in caught.value.hint


@pytest.fixture
def runs(tmp_path):
    for record in RECORDS:
        write_record(record, tmp_path / "runs")
    return tmp_path / "runs"


def test_duckdb_reads_the_records_as_they_are(runs) -> None:
    """The query of docs/records.md."""
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(
        f"""
        SELECT id, model, f.name, f.value, f.kind
        FROM read_json('{runs}/*.json', union_by_name = true, maximum_depth = 4), UNNEST(figures) AS t(f)
        WHERE f.name LIKE '%tokens_per_second' ORDER BY id, f.name
        """
    ).fetchall()
    expected = sorted(
        (r.id, r.model, f.name, f.value, f.kind)
        for r in RECORDS
        for f in r.figures
        if f.name.endswith("tokens_per_second")
    )
    assert found == expected
    assert len(found) == 5


def test_pandas_reads_the_records_as_they_are(runs) -> None:
    """The lines of docs/records.md."""
    pandas = pytest.importorskip("pandas")
    records = [json.loads(path.read_text()) for path in runs.glob("*.json")]
    figures = pandas.json_normalize(records, "figures", ["id", "job", "model", ["environment", "accelerator"]])
    assert len(figures) == NUM_FIGURES
    speed = figures[figures.name == "train_tokens_per_second"].iloc[0]
    assert (speed["id"], speed["value"], speed["environment.accelerator"]) == ("tuned", 100.0, "Some CPU")


def test_duckdb_and_pandas_read_the_export(tmp_path) -> None:
    duckdb, pandas = pytest.importorskip("duckdb"), pytest.importorskip("pandas")
    write_export(RECORDS, "csv", tmp_path / "records.csv")
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/records.csv'").fetchall() == [(NUM_FIGURES,)]
    assert len(pandas.read_csv(tmp_path / "records.csv")) == NUM_FIGURES


def test_a_records_json_is_one_object() -> None:
    assert isinstance(json.loads(record_to_json(fp32())), dict)
