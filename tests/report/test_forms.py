"""The report in other forms: Markdown, rows from elsewhere, figures as PDF; and what is said of long ones."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tests.made_records import dust, fake, fp32, png, real, tuned
from tests.report.test_html import HOSTILE, Page, hostile_records

from genaccel.errors import UserError
from genaccel.report import html, parts
from genaccel.report.html import content_of, render, render_report, write_figures
from genaccel.report.markdown import to_markdown
from genaccel.report.rows import OtherRow, read_rows

ROW = OtherRow(
    "predicted",
    "finetune",
    "llama",
    "gaudi3",
    "tokens_per_second",
    5200.0,
    "tokens/s",
    "roofline",
    "us",
    low=4.0,
    high=9e3,
)
EVERYTHING = [fp32(), fake(), real(), tuned("d"), tuned("f", "fsdp", 80.0), dust()]


def test_every_workload_has_a_section_and_every_number_its_kind() -> None:
    content = content_of(EVERYTHING, [ROW])
    assert [s.id for s in content.sections] == ["table", "training", "superres", "comparisons", "others"]
    page = Page(render(content))
    text = " ".join(" ".join(page.texts).split())
    for part in [
        "5,200 p",
        "4.0 to 9,000",
        "power, high k",
        "a member",
        "0.80x m",
        "Who?",
        "equal: accelerator Some CPU",
    ]:
        assert part in text, part
    assert [a["alt"] for t, a in page.elements if t == "img"][:2] == [
        f"{title} of sky0, edm tiny x4, judged" for title in ("input", "bicubic")
    ]


def test_cards_say_what_the_latest_run_found() -> None:
    cards = {c.title: c for c in content_of(EVERYTHING).cards}
    assert list(cards) == ["Quantization and evaluation", "Fine-tuning", "Super-resolution, quality"]
    card = cards["Quantization and evaluation"]
    assert card.summary == "3 runs of 1 model on Some CPU"
    assert [(c.text, c.kind, what) for c, what in card.numbers][:2] == [
        ("20.5", "measured", "perplexity"), ("2.00x", "measured", "against FP32")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "details",
    [
        {"spectra": {"k": [0.1], "bicubic": [1.0, 2.0]}},
        {"spectra": {"k": [0.1], "bicubic": [-1.0]}},
        {"spectra": {"bicubic": [1.0]}},
        {"pictures": [{"map": "m", "pictures": {"truth": "not base64"}}]},
        {"pictures": [{"map": "m", "pictures": {"truth": base64.b64encode(b"<svg onload=alert(1)>").decode()}}]},
        {
            "pictures": [
                {"map": "m", "pictures": {"truth": base64.b64encode(base64.b64decode(png()) + bytes(200_000)).decode()}}
            ]
        },
        {"pictures": 3},
    ],
)
def test_spectra_and_pictures_of_an_unknown_shape_are_left_out_and_said(details: dict[str, object]) -> None:
    page = render_report([dust("odd", details=details)])
    assert "The spectra or pictures of record odd have an unknown shape" in page
    assert "<img" not in page


# --- Long reports -----------------------------------------------------------------------------------------------------


def test_what_is_packed_is_what_the_template_made_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (parts, html):
        monkeypatch.setattr(module, "MAX_ROWS", 2)
    monkeypatch.setattr(html, "MAX_OPEN", 1)
    monkeypatch.setattr(html, "MAX_DETAILED", 3)
    records = [fake(f"r{n}", label=HOSTILE[0], created=f"2026-01-0{n + 1}T00:00:00.000+00:00") for n in range(5)]
    page = render_report(records)
    packed = re.findall(r'<template data-for="(\S+)">(.*?)</template>', page)
    unpacked = {name: zlib.decompress(base64.b64decode(text)).decode() for name, text in packed}
    assert list(unpacked) == ["results", "records"]
    shown = Page(unpacked["results"])
    assert [t for t, _ in shown.elements].count("tr") == 1 + 3
    assert [r for r in ("r0", "r1", "r2", "r3", "r4") if f"<code>{r}</code>" in unpacked["results"]] == [
        "r0",
        "r1",
        "r2",
    ]
    assert "<script" not in unpacked["results"] + unpacked["records"]
    assert unpacked["records"].count('<details class="record">') == 2
    assert "The 2 latest of 5 rows." in page
    assert "The 3 latest records in full; the other 2 are in the tables and in their files." in page
    assert page.count('<details class="record">') == 1


# --- Other forms ------------------------------------------------------------------------------------------------------


def test_markdown_has_the_same_tables() -> None:
    text = to_markdown(content_of(EVERYTHING, [ROW]))
    assert "| fake a100 | magnitude: 1 of 2 layers high | cpu (env. 1) | 100.0 MB (p) | 4.00x (p) | 21.000 |" in text
    assert "## Super-resolution of dust maps" in text
    assert "- §1 perplexity: token perplexity, sometext, window 8" in text
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")]
    assert all(n > 2 for n in columns)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_markdown_is_inert(hostile: str) -> None:
    text = to_markdown(content_of(hostile_records(hostile)))
    assert "<script" not in text
    assert "<img" not in text


def test_figures_are_pdf_and_the_same_each_time(tmp_path: Path) -> None:
    first, second = (write_figures(content_of(EVERYTHING), tmp_path / name) for name in "ab")
    assert len(first) == len(second) == 7
    assert all(
        a.read_bytes() == b.read_bytes() and a.read_bytes().startswith(b"%PDF")
        for a, b in zip(first, second, strict=True)
    )
    assert first[0].name == "01-perplexity-of-tiny-against-compression.pdf"


def test_a_figure_with_a_hostile_name_stays_in_its_folder(tmp_path: Path) -> None:
    written = write_figures(content_of([replace(r, model="../../x") for r in (fp32(), fake())]), tmp_path / "figures")
    assert {p.parent for p in written} == {tmp_path / "figures"}


def test_rows_are_read_from_json_and_csv(tmp_path: Path) -> None:
    head = "kind,workload,model,accelerator,metric,value,unit,protocol,source,num_devices,low"
    (tmp_path / "a.csv").write_text(
        f"{head}\npublished,finetune,llama,gaudi2,tokens_per_second,3120,tokens/s,theirs,them,8,\n"
    )
    (row,) = read_rows(tmp_path / "a.csv")
    assert (row.value, row.num_devices, row.low, row.kind) == (3120, 8, None, "published")
    (tmp_path / "a.json").write_text('[{"kind": "published", "valeu": 3}]')
    with pytest.raises(UserError, match=r"Row 1 of .*a.json is not valid: unknown key 'valeu'"):
        read_rows(tmp_path / "a.json")


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("{}", "is no list of rows")])
def test_rows_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UserError, match=message):
        read_rows(tmp_path / "a.json")
    with pytest.raises(UserError, match="no file of rows"):
        read_rows(tmp_path / "b.json")
