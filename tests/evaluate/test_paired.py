"""Two models on the same examples: differences with error bars, and baselines that are refused or no records."""

from __future__ import annotations

import pytest

from genaccel.errors import UserError
from genaccel.evaluate.paired import data_of

from .small_runs import NUM_QUESTIONS, evaluate, judged_by, write_questions


def test_a_baseline_gives_paired_differences(tiny_llama, tiny_qwen2, data, tmp_path):
    first, path = evaluate(tiny_llama, data, tmp_path / "runs")
    second, _ = evaluate(tiny_qwen2, data, tmp_path / "runs", baseline=path)
    for name in ("hellaswag_acc", "hellaswag_acc_norm", "boolq_acc"):
        change = second.figure(f"{name}_difference")
        assert change.value == pytest.approx(second.figure(name).value - first.figure(name).value)
        assert change.interval[0] <= change.value <= change.interval[1]
        assert "McNemar" in change.note
        assert first.id in change.protocol
    for name in ("perplexity", "word_perplexity"):
        ratio = second.figure(f"{name}_ratio")
        assert ratio.value == pytest.approx(second.figure(name).value / first.figure(name).value)
        assert ratio.interval[0] <= ratio.value <= ratio.interval[1]


def test_a_model_does_not_differ_from_itself(tiny_llama, data, tmp_path):
    _, path = evaluate(tiny_llama, data, tmp_path / "runs")
    record, _ = evaluate(tiny_llama, data, tmp_path / "runs", baseline=path)
    difference = record.figure("boolq_acc_difference")
    assert difference.value == 0.0
    assert difference.interval == pytest.approx((-0.0876, 0.0876), abs=1e-4)  # 40 questions prove no more
    assert "p = 1" in record.figure("boolq_acc_difference").note
    assert record.figure("perplexity_ratio").value == 1.0


def test_unlike_baselines_are_refused_before_scoring(tiny_llama, data, tmp_path):
    _, path = evaluate(tiny_llama, data, tmp_path / "runs", {"limit": 5})
    with pytest.raises(UserError, match="another protocol"):
        evaluate(tiny_llama, data, tmp_path / "runs", {"limit": 6}, baseline=path)
    write_questions(data, NUM_QUESTIONS + 1)
    with pytest.raises(UserError, match="other data"):
        evaluate(tiny_llama, data, tmp_path / "runs", {"limit": 5}, baseline=path)


def test_what_the_baseline_lacks_is_said(tiny_llama, data, tmp_path):
    _, path = evaluate(tiny_llama, data, tmp_path / "runs", {"tasks": ("boolq",)})
    record, _ = evaluate(tiny_llama, data, tmp_path / "runs", {"tasks": ("boolq", "hellaswag")}, baseline=path)
    assert record.figure("boolq_acc_difference") is not None
    assert record.warnings == ("The baseline was not judged by hellaswag; no difference is given.",)


@pytest.mark.parametrize("text", [None, "{", "{}"])
def test_a_baseline_that_is_no_record(tiny_llama, data, tmp_path, text):
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError):
        evaluate(tiny_llama, data, tmp_path / "runs", baseline=path)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"limit": 2}, {"limit": 3}, "limit 2, this model with 3"),
        ({"limit": 2}, {}, "limit 2, this model with not set"),
        ({"tasks": (), "text": "wikitext2"}, {"tasks": (), "text": "wikitext2", "window": 32}, "window 64"),
        ({"tasks": (), "text": "wikitext2"}, {"tasks": (), "text": "wikitext2", "stride": 32}, "stride not set"),
        ({"tasks": ("boolq",)}, {"tasks": ("hellaswag",)}, "nothing to compare"),
        ({"tasks": ("boolq",)}, {"tasks": (), "text": "wikitext2"}, "nothing to compare"),
        ({"tasks": (), "text": "pydoc", "limit": 1}, {"tasks": (), "text": "wikitext2"}, "nothing to compare"),
    ],
)
def test_other_windows_and_tasks_are_refused_before_scoring(tiny_llama, data, tmp_path, first, second, said):
    alone = {"tasks": ("wikitext2",)}
    _, path = evaluate(tiny_llama, data, tmp_path / "runs", alone | first)
    with pytest.raises(UserError, match=said):
        evaluate(tiny_llama, data, tmp_path / "runs", alone | second, baseline=path)


def test_other_pages_are_refused_before_scoring(tiny_llama, data, tmp_path):
    _, path = evaluate(tiny_llama, data, tmp_path / "runs", {"tasks": ("wikitext2",), "text": "pydoc", "limit": 1})
    file = data / "wikitext-2" / "wiki.test.raw"
    file.write_text(file.read_text() + "more")
    with pytest.raises(UserError, match="wikitext2 came from other data"):
        evaluate(
            tiny_llama, data, tmp_path / "runs", {"tasks": ("wikitext2",), "text": "pydoc", "limit": 1}, baseline=path
        )


def test_solved_examples_from_another_file_are_refused(tiny_llama, data, tmp_path):
    """The training set is part of what was judged by: its hash is in the record, and a change of it is seen."""
    judged = {"tasks": ("boolq",), "num_fewshot": 1}
    train = data / "boolq" / "train.jsonl"
    train.write_text((data / "boolq" / "dev.jsonl").read_text())
    record, path = evaluate(tiny_llama, data, tmp_path / "runs", judged)
    assert len(record.details["tasks"]["boolq"]["train_sha256"]) == 64
    evaluate(tiny_llama, data, tmp_path / "runs", judged, baseline=path)
    train.write_text(train.read_text().replace("Passage", "Another"))
    with pytest.raises(UserError, match="boolq came from other data"):
        evaluate(tiny_llama, data, tmp_path / "runs", judged, baseline=path)


def test_a_record_tells_what_it_was_judged_by(tiny_llama, data, tmp_path):
    record, _ = evaluate(tiny_llama, data, tmp_path / "runs", {"num_fewshot": 1}, seed=7)
    assert data_of(record.details) == judged_by(data, num_fewshot=1).data(7)
    assert data_of(record.details) != judged_by(data, num_fewshot=1).data(8)


def test_quantizing_judges_fp32_anew_when_the_data_changed(tiny_llama, data, tmp_path):
    """The names of the tasks stayed the same; an FP32 record of the old file says nothing about the new one."""
    from genaccel.quantize.config import QuantizeConfig
    from genaccel.quantize.run import prepare, run

    def baseline():
        config = QuantizeConfig(str(tiny_llama), mode="fake", device="cpu", runs=tmp_path / "runs")
        return run(prepare(config, judged_by(data, tasks=("boolq",)))).baseline

    first = baseline()
    assert baseline().id == first.id
    write_questions(data, NUM_QUESTIONS + 1)
    assert baseline().id != first.id
