"""Whole evaluations: records, error bars, resuming after a kill, and mistakes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from genaccel import models
from genaccel.devices import get
from genaccel.errors import UserError
from genaccel.evaluate.journal import FOLDER
from genaccel.evaluate.run import judge

from .small_runs import NUM_QUESTIONS, evaluate, judged_by, write_questions

FIGURES = (
    "perplexity",
    "word_perplexity",
    "byte_perplexity",
    "bits_per_byte",
    "hellaswag_acc",
    "hellaswag_acc_norm",
    "hellaswag_acc_bytes",
    "boolq_acc",
)


def test_a_record_holds_every_figure_with_its_error_bar(tiny_model, data, tmp_path):
    output = tmp_path / "examples.jsonl"
    record, _ = evaluate(tiny_model, data, tmp_path / "runs", output=output)
    for name in FIGURES:
        figure = record.figure(name)
        low, high = figure.interval
        assert low <= figure.value <= high
        assert figure.stderr >= 0
    assert record.figure("byte_perplexity").value == pytest.approx(2 ** record.figure("bits_per_byte").value)
    assert "text as the file gives it" in record.figure("hellaswag_acc").protocol
    assert all(len(t["sha256"]) == 64 for t in record.details["tasks"].values())
    assert not (tmp_path / "runs" / FOLDER).exists()
    examples = [json.loads(line) for line in output.read_text().splitlines()]
    by_task = {t: [e for e in examples if e["task"] == t] for t in ("perplexity", "wikitext2", "hellaswag", "boolq")}
    assert [len(e) for e in by_task.values()] == [len(record.details["nll_by_window"]), 5, NUM_QUESTIONS, NUM_QUESTIONS]
    share = sum(e["correct"]["acc"] for e in by_task["boolq"]) / NUM_QUESTIONS
    assert record.figure("boolq_acc").value == share


def test_the_same_twice_gives_the_same(tiny_llama, data, tmp_path):
    first, second = (evaluate(tiny_llama, data, tmp_path / name)[0] for name in ("a", "b"))
    assert first.details == second.details


def test_bos_is_told_in_the_protocol(tiny_llama_untied, tiny_llama, data, tmp_path):
    told = [
        evaluate(m, data, tmp_path / "runs")[0].figure("boolq_acc").protocol for m in (tiny_llama_untied, tiny_llama)
    ]
    assert told[0].endswith("BOS added by the tokenizer")
    assert told[1].endswith("no BOS")


def test_one_example(tiny_llama, data, tmp_path):
    record, _ = evaluate(tiny_llama, data, tmp_path / "runs", {"limit": 1})
    assert record.figure("boolq_acc").stderr is None
    assert record.figure("boolq_acc").interval is not None
    assert record.figure("word_perplexity").interval is None


def test_truncated_contexts_are_counted_and_reported(tiny_llama, data, tmp_path):
    row = {"passage": "long " * 100, "question": "is it", "answer": True}
    (data / "boolq" / "dev.jsonl").write_text(json.dumps(row) + "\n")
    record, _ = evaluate(tiny_llama, data, tmp_path / "runs", {"tasks": ("boolq",)})
    assert record.details["tasks"]["boolq"]["contexts_truncated"] == 2
    assert any("2 contexts were longer" in w for w in record.warnings)


def test_tasks_alone_decide_what_is_measured(tiny_llama, data):
    loaded, device = models.load(models.resolve(str(tiny_llama))), get("cpu")

    def names(**changes):
        return [f.name for f in judge(loaded, judged_by(data, limit=2, **changes), device).figures]

    assert names(tasks=("boolq",)) == ["boolq_acc", "peak_memory_bytes"]
    assert names(tasks=()) == ["perplexity", "peak_memory_bytes"]
    assert names(tasks=("boolq",), text="wikitext2")[:2] == ["perplexity", "boolq_acc"]


# --- Resuming ---------------------------------------------------------------------------------------------------------


def test_a_killed_evaluation_goes_on(tiny_llama, data, tmp_path):
    """SIGKILL half-way through the questions; the second run scores the rest and gives an uninterrupted run's figures."""
    write_questions(data, 1500)
    arguments = ["--tasks", "wikitext2,hellaswag,boolq", "--window", "64", "--no-speed", "--batch-size", "3"]
    command = [sys.executable, "-m", "genaccel", "evaluate", str(tiny_llama), "--device", "cpu", "--json", *arguments]
    environment = os.environ | {"GENACCEL_DATA": str(data), "OMP_NUM_THREADS": "1"}

    def run(runs, **options):
        return subprocess.Popen([*command, "--runs", str(runs)], env=environment, text=True, **options)

    def lines():
        return [f.read_bytes().count(b"\n") for f in (tmp_path / "killed" / FOLDER).glob("*.jsonl")]

    process = run(tmp_path / "killed", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while sum(lines()) < 500 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
    done = sum(lines())
    assert 0 < max(lines()) < 1500
    assert not list((tmp_path / "killed").glob("*.json"))
    with open(max((tmp_path / "killed" / FOLDER).glob("*.jsonl"), key=os.path.getsize), "ab") as file:
        file.write(b"[1499, [-1.0, -2")  # torn in the middle of a line

    again = run(tmp_path / "killed", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    output, notes = again.communicate(timeout=300)
    found = [int(line.split(":")[1].split()[0]) for line in notes.splitlines() if "Going on with" in line]
    assert sum(found) == done
    whole, _ = run(tmp_path / "whole", stderr=subprocess.DEVNULL, stdout=subprocess.PIPE).communicate(timeout=300)
    (resumed,), (uninterrupted,) = json.loads(output), json.loads(whole)
    assert resumed["details"] == uninterrupted["details"]  # every log-likelihood's consequences, bit for bit
    values = [
        {f["name"]: f["value"] for f in r["figures"] if f["name"] != "peak_memory_bytes"}
        for r in (resumed, uninterrupted)
    ]
    assert values[0] == values[1]
    assert not (tmp_path / "killed" / FOLDER).exists()


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tasks": ("arc",)}, "no task 'arc'"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": 0, "tasks": ("hellaswag",)}, "limit is 0"),
        ({"num_fewshot": -1}, "few-shot examples is -1"),
        ({"num_fewshot": NUM_QUESTIONS, "tasks": ("boolq",)}, "to draw from"),
        ({"batch_size": 0}, "questions a batch is 0"),
        ({"tasks": ("hellaswag=missing.jsonl",)}, "cannot be read"),
    ],
)
def test_mistakes_are_found_before_a_model_is_loaded(data, changes, said):
    with pytest.raises(UserError, match=said):
        judged_by(data, **changes).check(128)


def test_an_output_that_is_a_folder_is_found_before_anything_is_scored(tiny_llama, data, tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        evaluate(tiny_llama, data, tmp_path / "runs", output=data)
    assert not (tmp_path / "runs").exists()


def test_zero_examples_are_an_error(tiny_llama, data, tmp_path):
    (data / "boolq" / "dev.jsonl").write_text("\n")
    with pytest.raises(UserError, match="holds no examples"):
        evaluate(tiny_llama, data, tmp_path / "runs")


# --- Beside quantize --------------------------------------------------------------------------------------------------


def test_quantize_judges_by_tasks_and_its_checkpoint_scores_the_same(tiny_llama, data, tmp_path):
    """FP32, the quantized model and the checkpoint that it left answer the same questions by the same protocol."""
    from genaccel.quantize.config import QuantizeConfig
    from genaccel.quantize.run import prepare, run

    config = QuantizeConfig(
        str(tiny_llama), mode="real", device="cpu", output=tmp_path / "model", runs=tmp_path / "runs"
    )
    judging = judged_by(data)
    outcome = run(prepare(config, judging))
    again = run(prepare(config, judging))
    assert again.baseline.id == outcome.baseline.id  # judged once, found again
    record, _ = evaluate(tmp_path / "model", data, tmp_path / "runs")
    for name in FIGURES:
        assert record.figure(name).value == pytest.approx(again.record.figure(name).value, rel=1e-6)
        assert record.figure(name).protocol == outcome.baseline.figure(name).protocol
    assert not (tmp_path / "runs" / FOLDER).exists()
