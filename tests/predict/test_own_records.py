"""Corrections from one's own records: what is measured is then predicted, and what cannot be used says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from genaccel.predict import constants
from genaccel.predict.calibrate import corrections_toml
from genaccel.predict.finetuning import Finetuning, predict_finetuning
from genaccel.predict.own_records import errors_of, own_corrections, own_steps
from genaccel.records import Environment, Figure, Record, Setting

ENVIRONMENT = Environment("cuda", "NVIDIA H100 80GB HBM3", 8, 1, "", "", "", {}, "")


def record(seconds, batch=64, **changed):
    values = {
        "strategy": "fsdp",
        "global_batch": batch,
        "micro_batch": 1,
        "length": 2048,
        "precision": "bf16",
        "lora": False,
    }
    settings = {name: Setting(value, "flag") for name, value in values.items()}
    figures = (Figure("step_seconds", seconds, "s", "measured", "test"),)
    given = {"job": "finetune", "label": "x", "model": "llama-3.1-8b", "mode": "full", "target": "h100"} | changed
    return Record(**given, config=settings, environment=ENVIRONMENT, figures=figures)


def slow_machine():
    """Records of a machine that takes half as long again as is predicted."""
    found = []
    for batch in (16, 32, 64, 128, 256):
        ask = Finetuning("llama-3.1-8b", "h100", 8, "fsdp", batch, 1, stack="genaccel")
        found.append(record(1.5 * predict_finetuning(ask).seconds, batch))
    return found


def test_what_was_measured_is_then_predicted():
    found, problems = own_steps(slow_machine())
    assert problems == []
    own = own_corrections(found)
    assert [ratio for _, _, ratio in errors_of(found)] == pytest.approx([1 / 1.5] * 5)
    assert [ratio for _, _, ratio in errors_of(found, own)] == pytest.approx([1.0] * 5, abs=0.03)


def test_corrections_in_ones_own_folder_are_used(tmp_path, monkeypatch):
    found, _ = own_steps(slow_machine())
    (tmp_path / "constants.toml").write_text("\n".join(corrections_toml(own_corrections(found))))
    ask = Finetuning("llama-3.1-8b", "h100", 8, "fsdp", 64, 1)
    monkeypatch.setenv("GENACCEL_CATALOGUE", str(tmp_path))
    constants.stored.cache_clear()
    constants.corrections_of.cache_clear()
    try:
        prediction = predict_finetuning(ask)
    finally:
        constants.stored.cache_clear()
        constants.corrections_of.cache_clear()
    assert prediction.stack == "genaccel"
    assert prediction.seconds == pytest.approx(found[2].seconds, rel=0.03)


def test_records_that_cannot_be_used_say_why():
    unknown = record(1.0, model="somebody's model")
    timeless = replace(record(1.0), figures=())
    found, problems = own_steps([unknown, timeless, record(1.0, job="quantize")])
    assert found == []
    assert len(problems) == 2
