"""Rows to questions: both kinds of HellaSwag, BoolQ, few-shot, limits, and files that are not as they should be."""

from __future__ import annotations

import json

import pytest

from genaccel.errors import UserError
from genaccel.evaluate.questions import Question, boolq_question, load_task, parse_tasks, with_examples

GIVEN = {"query": "A man [x]  sits. he", "endings": ["runs", "sleeps"], "label": 1}
ORIGINAL = {"activity_label": "Work", "ctx_a": "A [x] man.", "ctx_b": "HE", "endings": ["[a] runs ", "b"], "label": "0"}


def write(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def load(path, name="hellaswag", limit=None, num_fewshot=0, seed=0):
    return load_task(name, None, path, limit, num_fewshot, seed)


def test_a_finished_query_is_taken_as_it_is(tmp_path):
    task = load(write(tmp_path / "rows.jsonl", GIVEN))
    assert task.questions == (Question("A man [x]  sits. he", ("runs", "sleeps"), 1),)
    assert "as the file gives it" in task.protocol


def test_original_fields_are_cleaned(tmp_path):
    task = load(write(tmp_path / "rows.jsonl", ORIGINAL))
    assert task.questions == (Question("Work: A man. He", (" runs", "b"), 0),)
    assert "cleaned" in task.protocol


def test_boolq_by_answer_or_label():
    row = {"passage": "P.", "question": "is it"}
    expected = Question("P.\nQuestion: is it?\nAnswer:", ("no", "yes"), 1)
    assert boolq_question(row | {"answer": True}) == boolq_question(row | {"label": 1}) == expected


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([GIVEN, "{broken"], "Line 2 .* is not JSON"),
        ([GIVEN, "[1]"], "Line 2 .* not a JSON object"),
        ([GIVEN, "", GIVEN | {"label": 2}], r"Example 3 .*label is 2, but there are 2 endings \(0..1\)"),
        ([GIVEN | {"label": -1}], "label is -1"),
        ([GIVEN | {"label": "x"}], "label 'x' is no number"),
        ([GIVEN | {"label": True}], "label True is no number"),
        ([GIVEN | {"endings": ["a"]}], "'endings' is not a list of two"),
        ([GIVEN | {"endings": "ab"}], "'endings' is not a list of two"),
        ([{"query": "q", "label": 0}], "field 'endings' is missing"),
        ([GIVEN | {"query": 3}], "'query' is not a text"),
        ([GIVEN, ORIGINAL], "Example 2 .*other fields than the first"),
        ([], "holds no examples"),
        (["", ""], "holds no examples"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, lines, said):
    with pytest.raises(UserError, match=said):
        load(write(tmp_path / "rows.jsonl", *lines))


@pytest.mark.parametrize("answer", ["yes", 1, None])
def test_an_answer_that_is_no_boolean_is_named(tmp_path, answer):
    file = write(tmp_path / "rows.jsonl", {"passage": "p", "question": "q", "answer": answer})
    with pytest.raises(UserError, match=r"Example 1 .*not true or false"):
        load(file, "boolq")


def test_limits(tmp_path):
    file = write(tmp_path / "rows.jsonl", *[GIVEN | {"query": str(i)} for i in range(5)])
    assert [q.context for q in load(file, limit=2).questions] == ["0", "1"]
    assert "first 2 examples" in load(file, limit=2).protocol
    assert "all 5 examples" in load(file, limit=9).protocol
    with pytest.raises(UserError, match="limit is 0"):
        load(file, limit=0)


def test_few_shot_examples_are_others_and_the_seed_decides(tmp_path):
    file = write(tmp_path / "rows.jsonl", *[GIVEN | {"query": f"q{i}"} for i in range(6)])
    task = load(file, num_fewshot=2, seed=5)
    for i, question in enumerate(task.questions):
        *shown, last = question.context.split("\n\n")
        assert last == f"q{i}"
        assert len(set(shown)) == 2
        assert f"q{i} sleeps" not in shown
        assert all(s.endswith(" sleeps") for s in shown)
    assert load(file, num_fewshot=2, seed=5).questions == task.questions
    assert load(file, num_fewshot=2, seed=6).questions != task.questions
    assert "2-shot from the other questions, seed 5" in task.protocol


def test_duplicates_of_a_question_are_not_its_examples():
    pool = [Question("same", ("a", "b"), 0)] * 3 + [Question("other", ("a", "b"), 1)]
    made = with_examples(pool[:1] * 8, pool, 1, 0, True)
    assert {q.context for q in made} == {"other b\n\nsame"}


def test_too_many_few_shot_examples(tmp_path):
    with pytest.raises(UserError, match=r"there are 1 to draw from"):
        load(write(tmp_path / "rows.jsonl", GIVEN), num_fewshot=1)


def test_a_training_set_beside_the_validation_set_is_used(tmp_path):
    (tmp_path / "boolq").mkdir()
    row = {"passage": "v", "question": "q", "answer": True}
    write(tmp_path / "boolq" / "dev.jsonl", row)
    write(tmp_path / "boolq" / "train.jsonl", row | {"passage": "t"})
    task = load_task("boolq", tmp_path, None, None, 1, 0)
    assert task.questions[0].context.startswith("t\nQuestion: q?\nAnswer: yes\n\nv\n")
    assert "from the training set" in task.protocol


def test_task_names():
    found = parse_tasks(["wikitext2, hellaswag", "boolq=a/b.jsonl"])
    assert {k: v and str(v) for k, v in found.items()} == {"wikitext2": None, "hellaswag": None, "boolq": "a/b.jsonl"}
    with pytest.raises(UserError, match="no task 'helaswag'") as raised:
        parse_tasks(["helaswag"])
    assert "hellaswag" in raised.value.hint
    with pytest.raises(UserError, match="named twice"):
        parse_tasks(["boolq,boolq"])
