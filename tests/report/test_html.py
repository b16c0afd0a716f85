from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.made_records import ENVIRONMENT, TEXT, fake, fp32, number, real

from genaccel.compare.perplexity import group_records
from genaccel.errors import UserError
from genaccel.records import Figure, Record, Setting
from genaccel.report import COLUMNS, evidence, html, render_report, summary_row, write_report
from genaccel.report.parts import Anchors
from genaccel.store import write_record

HEADERS = ["run", "plan", "ran on", "size", "compression", "perplexity", "change from FP32", "prefill tok/s",
           "decode tok/s", "peak memory", "record"]  # fmt: skip


@dataclass
class Page(HTMLParser):
    """What a browser would see: elements with their attributes, and the rows of the tables of results."""

    html: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.inside = self.in_results = False
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attributes}))
        if tag == "table":
            self.in_results = dict(attributes).get("id") in ("results", "training-runs")
        if tag == "tr" and self.in_results:
            self.rows.append([])
        if tag in ("td", "th") and self.in_results:
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.inside and self.in_results:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data.strip()}".strip()

    def cells(self, record_id: str) -> dict[str, str]:
        """The cells of a record's row by the title of their column."""
        (row,) = [r for r in self.rows if len(r) == len(HEADERS) and r[-1].startswith(record_id)]
        return dict(zip(HEADERS, row, strict=True))


def page(*records: Record) -> Page:
    return Page(render_report(records))


# --- Values and labels ------------------------------------------------------------------------------------------------


def test_table_values() -> None:
    shown = page(real(), fake(), fp32())
    assert shown.rows[0] == HEADERS
    assert shown.cells("base") == {
        "run": "FP32", "plan": "–", "ran on": "cpu env. 1", "size": "400.0 MB m", "compression": "reference",
        "perplexity": "20.000 m", "change from FP32": "reference", "prefill tok/s": "100 m IQR 10%",
        "decode tok/s": "10.0 m IQR 2%", "peak memory": "–", "record": "base",
    }  # fmt: skip
    assert shown.cells("fake") == {
        "run": "fake a100", "plan": "magnitude: 1 of 2 layers high", "ran on": "cpu env. 1", "size": "100.0 MB p",
        "compression": "4.00x p", "perplexity": "21.000 m", "change from FP32": "+1.000 m +5.00 %",
        "prefill tok/s": "90 m", "decode tok/s": "9.0 m", "peak memory": "2.0 GB m", "record": "fake",
    }  # fmt: skip
    assert shown.cells("real")["compression"] == "2.00x m"
    assert shown.cells("real")["record"] == "real 1 warning"
    assert [r[0] for r in shown.rows[2:]] == ["FP32", "fake a100", "real cpu"]


@pytest.mark.parametrize(
    ("perplexity", "shown"), [(19.0, "−1.000 m −5.00 %"), (20.00001, "0.000 m 0.00 %"), (20.0, "0.000 m 0.00 %")]
)
def test_signs_of_changes(perplexity: float, shown: str) -> None:
    assert page(fp32(), fake(perplexity=perplexity)).cells("fake")["change from FP32"] == shown


def test_every_kind_is_labelled_in_html_and_on_the_console() -> None:
    published = replace(real("pub"), figures=(number("perplexity", 12.5, kind="published", protocol="a paper's"),))
    assert page(published).cells("pub")["perplexity"] == "12.500 pub"
    by_title = dict(zip([c.title for c in COLUMNS], summary_row(published), strict=True))
    assert by_title["perplexity"] == "12.500 (pub)"
    assert by_title["size"] == "-"
    assert summary_row(fake()) == [
        "tiny", "a100", "fake", "0.5", "100.0 MB (p)", "4.00x (p)", "21.000", "90", "9.0", "2.0 GB"
    ]  # fmt: skip


def test_unknown_is_a_dash_and_never_zero() -> None:
    shown = page(replace(fake("none"), figures=()), fake("nan", perplexity=float("nan")))
    numbers = HEADERS[3:-1]
    assert {shown.cells("none")[h] for h in numbers} == {"–"}
    assert shown.cells("nan")["perplexity"] == shown.cells("nan")["change from FP32"] == "–"


def test_titles_hold_kind_protocol_and_note() -> None:
    noted = replace(fake(), figures=(Figure("tensor_bytes", 5e6, "B", "predicted", "from the plan", note="at best"),))
    assert ("td", "predicted; from the plan; at best") in [(t, a.get("title")) for t, a in page(noted).elements]


def test_protocols_are_tagged_where_a_column_mixes_them() -> None:
    other = replace(fake("other"), figures=(number("decode_tokens_per_second", 7.0, protocol="decode, batch 8"),))
    shown = page(fp32(), fake(), other)
    tag = shown.cells("other")["decode tok/s"].removeprefix("7.0 m ")
    assert re.fullmatch(r"§\d+", tag)
    assert shown.cells("fake")["decode tok/s"] != shown.cells("other")["decode tok/s"]
    assert f"protocol-{tag[1:]}" in [a.get("id") for _, a in shown.elements]
    assert "§" not in shown.cells("fake")["prefill tok/s"], "one protocol needs no tag"


# --- Comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"protocol": "another window"}, {"model": "other"}, {"details": {"text": TEXT | {"sha256": "b" * 64}}},
     {"details": {"model_fingerprint": "beef"}}],
)  # fmt: skip
def test_nothing_is_compared_across_protocols_models_texts_or_weights(changes: dict[str, object]) -> None:
    shown = page(fp32(), fake(**changes))
    assert shown.cells("fake")["perplexity"] == "21.000 m"
    assert shown.cells("fake")["change from FP32"] == "–"


def test_quality_is_drawn_for_two_points_of_one_protocol_only() -> None:
    assert 'id="quality"' not in render_report([fake(), fp32(protocol="another window")])
    html = render_report([fake(), fp32()])
    assert 'id="quality"' in html
    assert "4.00x (predicted), perplexity 21.000" in html
    pictures = evidence.quality_pictures(
        group_records([fake("1"), fp32(), fake("2", protocol="x"), fake("3", 22.0, 5.0)])
    )
    assert [p.drawing.svg.count("<title>") for p in pictures] == [3]


# --- What stands behind the table -------------------------------------------------------------------------------------


def test_pictures_kernels_and_origins_are_there() -> None:
    shown = page(fp32(), fake(), real())
    text = " ".join(shown.texts)
    for part in [
        "layer 1: 0.75, bf16", "layers.0.mlp.up: int8", "bf16 80.0%, int8 20.0%", "shares the embedding's",
        "the machine was not quiet", "timed for 1, 16 and 256 rows", "broken: wrong on extreme values (1 of 1 shapes)",
        "fast_few", "1,200.2", "90, 100, 110", TEXT["sha256"], "abc123", "numpy 2.0.0", "Some CPU x 4",
        "from flag", "share = 0.5", "from default", "seed = 0", "400,000,000",
    ]:  # fmt: skip
        assert part in text, part
    line = evidence.show_kernels(real())[1]().lines[0]
    assert (line.format, line.shape) == ("int8", "64x32")
    assert line.choices == (("fast_few", 1.5), ("fast_many", 20.0), ("fast_many", 1200.25))


def test_figures_with_an_error_bar_are_shown_by_protocol() -> None:
    def scored(value: float, protocol: str) -> Figure:
        return Figure("task_acc", value, "1", "measured", protocol, stderr=0.01, interval=(value - 0.02, value + 0.02))

    records = [
        replace(record, figures=(*record.figures, scored(value, protocol)))
        for record, value, protocol in [(fp32(), 0.5, "all"), (fake(), 0.25, "all"), (real(), 0.75, "first 10")]
    ]
    found = evidence.estimates(records, Anchors(records))
    assert found is not None
    assert {(g.title, g.about): [(r.cells[-1].text, r.cells[2].value) for r in g.rows] for g in found.groups} == {
        ("task_acc", "all"): [("base", 0.5), ("fake", 0.25)],
        ("task_acc", "first 10"): [("real", 0.75)],
    }
    text = " ".join(page(*records).texts)
    assert "0.2300 to 0.2700" in text
    assert "task_acc" not in " ".join(page(fp32()).texts)


def test_mixed_layers_and_experts() -> None:
    listed = [
        ["layers.0.experts.0.up", "0", "int8", "1"],
        ["layers.0.experts.1.up", "0", "bf16", "1"],
        ["layers.1.experts.0.up", "1", "int8", "1"],
        ["layers.1.experts.1.up", "1", "int8", "1"],
        ["head", "head", "bf16", "1"],
    ]
    svg = evidence.show_plan(fake(details={"layer_formats": listed}))[1]().drawing.svg
    assert re.findall("<title>(.*?)</title>", svg) == [
        "layers.0.experts.0.up: mixed", "layers.1.experts.0.up: int8", "head: bf16"
    ]  # fmt: skip
    assert "experts.*.up" in svg


@pytest.mark.parametrize(
    "details",
    [
        {"sensitivity": {"metric": "magnitude", "scores": ["high"]}},
        {"sensitivity": {"metric": "magnitude", "scores": [float("nan")]}},
        {"sensitivity": ["magnitude"]},
        {"layer_formats": [["layers.0", "0", "int8"]]},
        {"layer_formats": [["layers.9", "999999999", "int8", "1"]]},
        {"layer_formats": [["layers.0", 0, "int8", "1"]]},
        {"kernels": {"int8 1x1": {"kernels": ["a", "b", "c", "d"]}}},
        {"kernels": {"int8 1x1": ["a"]}},
    ],
)
def test_details_of_an_unknown_shape_are_left_out_and_said(details: dict[str, object]) -> None:
    record = replace(fake("odd"), details=details)
    text = " ".join(page(fp32(), record).texts)
    assert re.search(f"The {next(iter(details)).replace('_', ' ')} of record odd has an unknown shape", text)


def test_a_record_met_twice_counts_once_and_old_ones_keep_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "MAX_DETAILED", 1)
    old, new = fake("old"), fake("new", created="2026-02-01T00:00:00.000+00:00")
    shown = page(new, old, old)
    assert len(shown.rows) == 1 + 1 + 2, "header, group, two records"
    assert [a.get("id") for _, a in shown.elements if a.get("id", "").startswith("record-")] == ["record-1"]
    assert "2 records, 2026-01-01 00:00 UTC to 2026-02-01 00:00 UTC." in " ".join(shown.texts)


# --- Escaping, determinism, file --------------------------------------------------------------------------------------

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "{{ 7 * 7 }}"]


def hostile_records(text: str) -> list[Record]:
    """Records that carry ``text`` wherever a string can stand."""
    environment = replace(ENVIRONMENT, device=text, accelerator=text, git_commit=text, packages={text: text})
    changes = {"model": text, "label": text, "environment": environment, "artefacts": {text: text},
               "warnings": (text,), "config": {text: Setting(text, "flag")}}  # fmt: skip
    listed = [["embed", "embedding", text, "1"], [text, text, text, "1"], [f"layers.0.{text}", "0", text, "1"]]
    details = {"sensitivity": {"metric": text, "scores": [1.0], "settings": {text: text}}, "layer_formats": listed,
               "plan": {"method": text}, text: {text: text}, "text": {"sha256": text},
               "kernels": {text: {"kernels": [text], "left_out": {text: text}, "origin": text}}}  # fmt: skip
    base = fp32(text, protocol=text, details={"text": {"sha256": text}}, **changes)
    other = fake(text + "2", protocol=text, details=details, **changes)
    figures = (*other.figures, Figure(text, 1.0, text, "measured", text, note=text))
    return [base, replace(other, mode=text, target=text, job=text, created=f"2026-02{text}", figures=figures)]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped(text: str) -> None:
    harmless, hostile = page(*hostile_records("harmless")), page(*hostile_records(text))
    # The same elements with the same attributes, in whatever order the names sort.
    seen, expected = (Counter((tag, *sorted(a)) for tag, a in p.elements) for p in (hostile, harmless))
    assert seen == expected
    assert sum(text in t for t in hostile.texts) >= 20
    assert [t for t, _ in hostile.elements].count("script") == 1


def test_text_that_utf8_or_xml_cannot_hold(tmp_path: Path) -> None:
    write_report(hostile_records("a\ud800b\x00c\x1b$\\frac{"), tmp_path / "report.html")
    assert "$\\frac{" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_nothing_outside_the_file_is_asked_for() -> None:
    html = render_report([fp32(), fake(), fake("twin", model="twin"), real()])
    assert not re.search(
        r"https?:|@import|url\((?!#)|\bsrc=(?!\"data:image/png;base64,)|<link|<iframe|<object|<base|srcset", html
    )
    links = [v for _, a in Page(html).elements for k, v in a.items() if k in ("href", "xlink:href", "action", "data")]
    assert links
    assert all(link.startswith("#") for link in links)
    ids = [a["id"] for _, a in Page(html).elements if "id" in a]
    assert {link[1:] for link in links} <= set(ids), "every link inside leads somewhere"
    assert len(ids) == len(set(ids))
    assert "default-src 'none'" in html


def test_same_records_give_the_same_bytes_in_any_order_process_and_settings(tmp_path: Path) -> None:
    records = [fp32(), fake(), fake("more", 22.0, 5.0), real()]
    for record in records:
        write_record(record, tmp_path / "runs")
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.grid: True\n")
    program = (
        "import sys; from pathlib import Path; from genaccel.store import read_records;"
        "from genaccel.report import write_report; write_report(read_records(Path('runs'))[0], Path('report.html'));"
        "assert 'torch' not in sys.modules"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render_report(records[::-1])


def test_a_failed_write_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "report.html"
    output.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("genaccel.store.os.replace", fail)
    with pytest.raises(UserError, match="disk is full"):
        write_report([fp32()], output)
    assert output.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_no_records_make_an_empty_report() -> None:
    assert "0 records" in render_report([])
