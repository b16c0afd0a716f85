"""Validation: its statistics by hand, intervals from errors that are known, and the published tables where they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from genaccel.predict.constants import Corrections, Key
from genaccel.predict.intervals import Errors, interval_for
from genaccel.predict.rows import Row, read_rows
from genaccel.predict.serving import SERVING
from genaccel.predict.validate import Validation, Verdict, known_rows, published_files, validate

KEY = Key("hopper", "h100", "vllm")
SEEN = Corrections(SERVING, {("device", "h100"): np.zeros(13), ("stack", "vllm"): np.zeros(13)})


def published_folder() -> Path:
    """The folder, or a skip that says what is missing."""
    given = os.environ.get("GENACCEL_PUBLISHED")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "published"
    if not folder.is_dir():
        pytest.skip("no published tables: set GENACCEL_PUBLISHED or put a shared/published folder beside the checkout")
    return folder


def row(value, source="s"):
    cells = {"source": source, "model": "m", "device": "d", "metric": "x"}
    return Row(2, "inference", cells, value, "serving", "g")


def test_statistics_by_hand():
    verdicts = [Verdict(row(100.0), 110, 90, 130, "", False), Verdict(row(100.0), 70, 60, 80, "", False)]
    found = Validation(verdicts, refused=[row(1.0)], suspect=[row(1.0)], num_rows=4)
    (line,) = found.by(lambda r: r.source)
    assert (line["rows"], line["inside"]) == (3, 0.5)
    assert line["predicted"] == pytest.approx(2 / 3)
    assert line["median_error"] == pytest.approx(0.2)
    assert found.share_predicted == pytest.approx(2 / 3)


def errors_of(sizes):
    return Errors.of([("serving", "vllm", "h100", False, f"g{i}", size) for i, size in enumerate(sizes)])


def test_an_interval_holds_four_fifths_of_the_errors():
    known = errors_of(np.linspace(0.01, 1.0, 100))
    factor = interval_for("serving", KEY, False, SEEN, known).factor
    assert np.log(factor) == pytest.approx(0.8, abs=0.03)


def test_a_group_left_out_does_not_widen_its_own_interval():
    known = errors_of([0.1] * 20 + [3.0])
    inside = interval_for("serving", KEY, False, SEEN, known, leave_out="g20").factor
    assert np.log(inside) == pytest.approx(0.1)


def test_what_was_never_seen_gets_a_wider_interval_and_says_so():
    known = errors_of([0.1] * 20)
    usual = interval_for("serving", KEY, False, SEEN, known)
    strange = interval_for("serving", Key("hopper", "h300", "vllm"), False, SEEN, known)
    assert strange.factor > usual.factor
    assert "never seen" in strange.basis
    assert "never seen" not in usual.basis


def test_the_packages_rows_are_predicted_within_their_targets():
    rows = [row for path in published_files() for row in read_rows(path)]
    found = validate(rows)
    assert found.share_predicted > 0.95
    by_stack = {}
    for v in found.verdicts:
        if not v.row.memory:
            by_stack.setdefault(v.row.question.asked.key.stack, []).append(v)
    for stack, target in (("llm-foundry", 0.08), ("vllm", 0.08), ("tensorrt-llm", 0.08), ("mlperf", 0.08)):
        assert np.median([v.error for v in by_stack[stack]]) < target, stack
    assert np.median([v.error for v in found.verdicts if v.row.memory]) < 0.05
    draws = [v for v in found.verdicts if v.row.workload == "imaging" and v.row.question.asked.trains]
    assert np.median([v.error for v in draws]) < 0.15
    assert 0.7 < np.mean([v.inside for v in found.verdicts]) < 0.9
    fitted = known_rows()["serving"].problem.groups
    assert all(v.left_out for v in found.verdicts if v.row.group in fitted)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["finetune.csv", "inference_diffusion.csv"])
def test_the_full_tables_are_predicted(name):
    found = validate(read_rows(published_folder() / name))
    assert found.share_predicted > 0.9
    assert np.median([v.error for v in found.verdicts]) < 0.08
