"""Lists and 'show': every number with its kind and source, gaps with their reason, names with the nearest."""

from __future__ import annotations

import json

import pytest

from genaccel import facts
from genaccel.errors import UserError
from genaccel.hardware import accelerators, clusters
from genaccel.shapes import model_shapes
from genaccel.unets import unet_shapes

EVERYTHING = [*accelerators(), *clusters(), *model_shapes(), *unet_shapes()]


def test_no_name_means_two_things():
    assert len(EVERYTHING) == len(set(EVERYTHING))


@pytest.mark.parametrize("name", EVERYTHING)
def test_whatever_is_listed_can_be_shown(name):
    thing = facts.find(name)
    for fact in facts.facts(thing):
        absent = fact.value == "absent"
        assert fact.note if absent else (fact.source and (fact.kind or fact.what == "accelerator")), fact
    document = json.loads(json.dumps(facts.document(thing), allow_nan=False))
    assert document["name"] == name
    assert document["is"] in ("accelerator", "cluster", "model", "unet")


def rows_of(name):
    return {fact.what: fact for fact in facts.facts(facts.find(name))}


def test_an_accelerators_rows():
    rows = rows_of("gaudi3")
    assert (rows["memory"].value, rows["memory"].kind) == ("128 GB", "spec")
    peak = rows["dense peak in fp16"]
    assert (peak.value, peak.kind) == ("419.7 TFLOP/s", "derived")
    assert peak.printed == "459 TFLOP/s, dense, per card, at 1750 MHz"
    assert peak.source == "stas00/ml-engineering@744d01e, compute/accelerator/README.md (2026-08-22)"
    assert rows_of("gaudi1")["dense peak in bf16"].value == "absent"


def test_a_clusters_and_a_models_rows():
    assert rows_of("perlmutter")["links between nodes, a card, one direction"].value == "25 GB/s"
    assert rows_of("aws-p5")["price of a card"].value == "4.916 USD/h"
    assert rows_of("mixtral-8x7b")["parameters"].value == "46,702,792,704"
    assert rows_of("sdxl")["parameters"].value == "2,567,463,684"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.12e14, "FLOP/s", "312 TFLOP/s"),
        (1.979e15, "OP/s", "1,979 TOP/s"),
        (8e10, "B", "80 GB"),
        (9.5e10, "FLOP/s", "95 GFLOP/s"),
        (4e7, "B", "40 MB"),
        (2.039e12, "B/s", "2,039 GB/s"),
        (1.41e9, "Hz", "1,410 MHz"),
        (108.0, "units", "108"),
        (400.0, "W", "400 W"),
        (2.5e-5, "s", "25 us"),
    ],
)
def test_numbers_as_people_write_them(value, unit, text):
    assert facts.in_units(value, unit) == text


@pytest.mark.parametrize(
    ("name", "found"), [("meta-llama/Llama-3.1-8B", "llama-3.1-8b"), ("GAUDI2", "gaudi2"), ("A100", "a100")]
)
def test_hub_ids_and_capitals_are_names(name, found):
    assert facts.find(name).name == found


def test_an_unknown_name_offers_the_nearest_of_all_kinds():
    with pytest.raises(UserError, match=r"no accelerator, cluster or model 'perlmuter'. .Did you mean perlmutter"):
        facts.find("perlmuter")


def test_lists_have_a_row_for_everything_and_name_kinds_and_sources():
    cards = {row["accelerator"]: row for row in facts.list_accelerators()}
    assert set(cards) == set(accelerators())
    assert cards["gaudi3"]["kinds"] == "spec; derived: fp32, fp16, link"
    assert cards["a100"]["bf16 T/s"] == "312"
    assert cards["a100"]["fp8 T/s"] == "-"
    assert cards["a100"]["sources"].startswith("stas00/ml-engineering")
    assert {row["cluster"] for row in facts.list_clusters()} == set(clusters())
    assert {row["model"] for row in facts.list_shapes()} == {*model_shapes(), *unet_shapes()}


def test_a_file_of_ones_own_is_shown_like_the_catalogues(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ndescription = "My card"\n[sources.me]\ntitle = "my own"\ndate = "2026"\n')
    assert facts.find(str(path)).description == "My card"
    with pytest.raises(UserError, match="no file"):
        facts.find("nowhere.toml")


def test_show_from_the_command_line(run):
    code, out, _ = run("show", "gaudi3", "--json")
    document = json.loads(out)
    assert (code, document["is"], document["memory_bytes"]) == (0, "accelerator", 128_000_000_000)
    assert document["figures"]["peak_flops.fp16"]["kind"] == "derived"
    code, out, _ = run("show", "gaudi1")
    assert code == 0
    assert "dense peak in bf16" in out
    assert "absent" in out
    code, _, err = run("show", "gaudi")
    assert code == 2
    assert "no accelerator, cluster or model 'gaudi'" in err
    assert "gaudi2" in err


def test_lists_from_the_command_line(run):
    code, out, _ = run("list", "clusters")
    assert code == 0
    assert "perlmutter" in out
    code, out, _ = run("list", "clusters", "--json")
    row = next(r for r in json.loads(out)["clusters"] if r["cluster"] == "perlmutter")
    assert row["sources"].startswith("docs.nersc.gov")
    assert row["outside GB/s"] == "25"
