"""The commands on records as a person types them: ls, show, export, compare, report."""

from __future__ import annotations

import json

import pytest
from tests.made_records import dust, fake, fp32, real, tuned

from genaccel.store import write_record

RECORDS = [fp32(), fake(), real(), tuned("d1"), tuned("f1", "fsdp", 80.0), dust()]


@pytest.fixture
def runs(tmp_path):
    for record in RECORDS:
        write_record(record, tmp_path / "runs")
    (tmp_path / "runs" / "torn.json").write_text('{"schema_version": 2, "la')
    return tmp_path / "runs"


def test_ls_lists_and_a_torn_file_is_said_and_skipped(run, runs):
    code, out, err = run("records", "ls")
    assert code == 0
    assert all(r.id in out for r in RECORDS)
    assert "torn.json is torn" in err
    code, out, _ = run("records", "ls", "runs", "--job", "finetune", "--json")
    assert [r["id"] for r in json.loads(out)] == ["d1", "f1"]
    code, _, err = run("records", "ls", "--model", "tyny")
    assert (code, "Did you mean tiny?" in err) == (2, True)


def test_show_by_the_beginning_of_an_id(run, runs):
    code, out, _ = run("records", "show", "d1", "runs")
    assert code == 0
    for part in ("train_tokens_per_second", "strategy", "flag", "alpaca.json, sha256", "Some CPU"):
        assert part in out
    assert json.loads(run("records", "show", "dust", "--json")[1])["id"] == "dust"
    code, _, err = run("records", "show", "x")
    assert (code, "No record begins with 'x'" in err) == (2, True)
    write_record(tuned("d12"), runs)
    code, _, err = run("records", "show", "d1")
    assert (code, "Several records begin with 'd1'" in err, "d1, d12" in err) == (2, True, True)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_export_writes_every_figure(run, runs, tmp_path, form):
    if form == "parquet":
        pytest.importorskip("pyarrow")
    code, out, _ = run("records", "export", "runs", "--format", form, "-o", f"all.{form}")
    assert code == 0
    assert f"{sum(len(r.figures) for r in RECORDS)} figures of 6 records: all.{form}" in out
    assert (tmp_path / f"all.{form}").stat().st_size > 1000


def test_compare_prints_ratios_with_intervals_and_what_is_equal(run, runs):
    code, out, _ = run("compare", "runs", "--by", "strategy", "--metric", "train_tokens_per_second")
    assert code == 0
    assert "train_tokens_per_second by strategy (more is better)" in out
    row = next(line for line in out.splitlines() if line.strip().startswith("fsdp"))
    assert "0.800x" in row
    assert "equal: accelerator Some CPU" in out
    document = json.loads(run("compare", "--by", "strategy", "--metric", "train_tokens_per_second", "--json")[1])
    assert [c["at"] for c in document["comparisons"][0]["cells"]] == ["ddp", "fsdp"]


def test_compare_refuses_unlike_records_in_one_sentence(run, tmp_path):
    for record in (tuned("1"), tuned("2", "fsdp", data={"alpaca.json": "e" * 64})):
        write_record(record, tmp_path / "runs")
    code, out, err = run("compare", "--by", "strategy", "--metric", "train_tokens_per_second")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: No two records can be compared by strategy: the nearest (1 and 2) also differ in data.",
        f"hint: data: 'alpaca.json {'c' * 12}' against 'alpaca.json {'e' * 12}'.",
    ]


def test_compare_finds_the_pareto_set(run, runs):
    code, out, _ = run("compare", "runs", "--pareto", "bytes,perplexity")
    assert code == 0
    assert "Pareto set of tensor_bytes and perplexity" in out
    assert "100.0 MB (predicted)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "runs"], "It takes --by and --metric, or --pareto."),
        (
            ["compare", "--by", "strategy", "--metric", "mfu", "--price", "a100"],
            "--price a100 is no accelerator and price",
        ),
        (["compare", "--by", "strategy", "--metric", "mfu", "--price", "a100=-1"], "is no price in dollars"),
        (["compare", "nowhere", "--by", "strategy", "--metric", "mfu"], "There is no folder nowhere."),
        (["report", "runs", "--rows", "nothing.csv"], "There is no file of rows nothing.csv."),
    ],
)
def test_mistakes_are_said_in_a_sentence(run, runs, arguments, message):
    code, _, err = run(*arguments)
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("form", "beginning"), [("html", "<!doctype html>"), ("md", "# genaccel report"), ("csv", "record,created")]
)
def test_report_in_every_form(run, runs, tmp_path, form, beginning):
    code, out, _ = run("report", "runs", "--format", form, "--figures", "figures")
    assert code == 0
    assert "Report of 6 records" in out
    assert (tmp_path / f"report.{form}").read_text().lstrip().lower().startswith(beginning)
    assert len(list((tmp_path / "figures").glob("*.pdf"))) == 7
