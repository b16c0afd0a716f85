"""Advice on quantizing: what records in a folder measured is allowed, refused, or no evidence."""

from __future__ import annotations

import json

import pytest
from tests.made_records import TEXT, fake, fp32

from genaccel.advise_quantize import advise_quantization
from genaccel.store import write_record

MODEL = "tinyllama-1.1b"
OTHER_TEXT = {"text": TEXT | {"sha256": "b" * 64}, "model_fingerprint": "f00d"}


def plan(*formats):
    """Details of a record whose weights are so many elements in each format."""
    return {"layer_formats": [[f"w{i}", str(i), name, str(n)] for i, (name, n) in enumerate(formats)]}


BASE = fp32(model=MODEL)
HALF = fake("half", 20.1, model=MODEL, details=plan(("fp16", 500), ("int8", 500)))
ALL = fake("all", 21.0, model=MODEL, details=plan(("int8", 1000)))


def test_records_say_what_is_allowed_and_the_fastest_is_first():
    found = advise_quantization(MODEL, "a100", 0.06, [BASE, HALF, ALL])
    assert [m.name for m in found.allowed] == ["100% int8", "50% fp16 + 50% int8"]
    assert [m.increase for m in found.allowed] == pytest.approx([0.05, 0.005])
    assert found.allowed[0].compression == pytest.approx(4.0)
    assert found.allowed[1].compression == pytest.approx(4 / 1.5)
    assert found.allowed[1].evidence == "record half against base"
    assert {m.name for m in found.unmeasured}.isdisjoint(m.name for m in found.allowed)
    strict = advise_quantization(MODEL, "a100", 0.01, [BASE, HALF, ALL])
    assert [m.name for m in strict.allowed] == ["50% fp16 + 50% int8"]
    assert [m.name for m in strict.refused] == ["100% int8"]


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([HALF], "no FP32 record has the same"),
        ([fp32(model=MODEL, details=OTHER_TEXT), HALF], "no FP32 record has the same"),
        ([fp32(model=MODEL, details={"text": TEXT, "model_fingerprint": "cafe"}), HALF], "no FP32 record has the same"),
        ([fp32(model=MODEL, protocol="token perplexity, sometext, window 16"), HALF], "no FP32 record has the same"),
        ([BASE, fake("x", None, model=MODEL)], "not judged by perplexity"),
        ([BASE, fake("x", 20.1, model=MODEL, details=plan())], "it has no formats"),
        ([BASE, fake("x", 20.1, model=MODEL, details=plan(("int5_g64", 10)))], "how fast int5 is served is not known"),
    ],
)
def test_what_is_no_evidence_says_why(records, why):
    found = advise_quantization(MODEL, "a100", 0.06, records)
    assert found.allowed == found.refused == ()
    assert len(found.left_out) == 1
    assert why in found.left_out[0]


def test_other_models_and_targets_are_not_mentioned():
    others = [BASE, fake("x", model="smollm2-135m"), fake("y", model=MODEL, target="gaudi2")]
    found = advise_quantization(MODEL, "a100", 0.06, others)
    assert found.allowed == found.refused == found.left_out == ()


def test_a_folder_of_records_from_the_command_line(run, tmp_path):
    for record in (BASE, HALF, ALL):
        write_record(record, tmp_path / "records")
    options = ("--on", "a100", "--max-perplexity-increase", "1%", "--runs", str(tmp_path / "records"))
    code, out, err = run("advise", "quantize", MODEL, *options, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert [m["evidence"] for m in document["allowed"]] == ["record half against base"]
    assert [m["evidence"] for m in document["refused"]] == ["record all against base"]
    code, out, err = run("advise", "quantize", MODEL, *options)
    assert code == 0, err
    assert "Recommended: 50% fp16 + 50% int8 (record half against base)." in " ".join(out.split())
