"""Whole evaluations of tiny models on small data, shared by the tests of this folder."""

from __future__ import annotations

import json
from dataclasses import replace

from genaccel.evaluate.config import EvaluateConfig, JudgeConfig
from genaccel.quantize.baseline import evaluate_model, prepare_evaluation
from genaccel.records import record_from_json

NUM_QUESTIONS = 40


def write_questions(folder, count):
    rows = [
        {
            "query": f"Question {i}" + " more" * (i % 9),
            "endings": [f"{c}" * (1 + (i * j) % 5) for j, c in enumerate("abcd")],
            "label": i % 4,
        }
        for i in range(count)
    ]
    (folder / "hellaswag" / "hellaswag_val.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    rows = [{"passage": f"Passage {i}.", "question": "is it", "answer": bool(i % 3)} for i in range(count)]
    (folder / "boolq" / "dev.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def judged_by(data, **changes):
    fixed = {"tasks": ("wikitext2,hellaswag,boolq",), "data_dir": data, "window": 64, "speed": False}
    return JudgeConfig(**fixed | changes)


def evaluate(model, data, runs, judge_changes=None, **changes):
    config = EvaluateConfig(str(model), device="cpu", runs=runs, **changes)
    record, path = evaluate_model(prepare_evaluation(config, judged_by(data, **judge_changes or {})))
    assert record_from_json(path.read_text(), str(path)) == replace(
        record, details=json.loads(json.dumps(record.details))
    )
    return record, path
