"""Tokens and targets: only answers count, records that do not fit are named, nothing is tokenized twice."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.conftest import byte_tokenizer

from genaccel import models
from genaccel.errors import UserError
from genaccel.finetune.data import prompt_ids, split, tokenize, tokenizer_hash
from genaccel.finetune.datasets import Dataset, Turn, load_dataset_named

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def conversations(*records):
    turns = tuple(tuple(Turn(*t) for t in record) for record in records)
    return Dataset("d", "conversation", turns, tuple(f"record {i + 1}" for i in range(len(turns))), "", str(records))


ONE = (("user", "1+2?"), ("assistant", "3"))
TWO = (("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "dd"))


def texts_of(data, tokenizer, example):
    """(everything, the targets alone) of an example as text."""
    span = slice(data.starts[example], data.starts[example + 1])
    ids, marks = data.tokens[span], data.is_target[span]
    return tokenizer.decode(ids.tolist()), tokenizer.decode(ids[marks].tolist())


def test_with_a_template_only_answers_and_their_ends_count(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    data = tokenize(conversations(ONE, TWO), tokenizer, "t", 100, tmp_path)
    assert texts_of(data, tokenizer, 0) == ("[user]1+2?</s>[assistant]3</s>", "3</s>")
    assert texts_of(data, tokenizer, 1) == ("[user]a</s>[assistant]b</s>[user]c</s>[assistant]dd</s>", "b</s>dd</s>")


def test_without_a_template_the_answer_and_the_end_count(tmp_path):
    tokenizer = byte_tokenizer()
    data = tokenize(conversations(ONE), tokenizer, "t", 100, tmp_path)
    assert texts_of(data, tokenizer, 0) == ("User: 1+2?\n\nAssistant: 3</s>", "3</s>")


def test_the_prompt_of_an_answer_is_what_training_saw_before_it(tmp_path):
    for template in (TEMPLATE, None):
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = template
        data = tokenize(conversations(ONE), tokenizer, f"t{template}", 100, tmp_path)
        first_target = int(np.flatnonzero(data.is_target)[0])
        assert prompt_ids(tokenizer, "1+2?") == data.tokens[:first_target].tolist()


def test_a_template_that_rewrites_earlier_turns_is_refused(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages|length }}" + TEMPLATE
    with pytest.raises(UserError, match="changes earlier turns in record 1"):
        tokenize(conversations(TWO), tokenizer, "t", 100, tmp_path)


@pytest.mark.parametrize(
    ("template", "whole"),
    [
        (TEMPLATE, "[user]a</s>[assistant]b</s>[user]c</s>[assistant]dd</s>"),
        (None, "User: a\n\nAssistant: b</s>\n\nUser: c\n\nAssistant: dd</s>"),
    ],
)
def test_every_answer_of_a_conversation_counts_and_a_question_never_does(tmp_path, template, whole):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    unanswered = (*TWO, ("user", "and?"))
    data = tokenize(conversations(TWO, unanswered), tokenizer, "t", 100, tmp_path)
    assert texts_of(data, tokenizer, 0) == (whole, "b</s>dd</s>")
    assert texts_of(data, tokenizer, 1) == (whole, "b</s>dd</s>"), "what nobody answered is left out"


def test_a_bos_stands_only_in_front(tmp_path):
    tokenizer = byte_tokenizer(adds_bos=True)
    data = tokenize(conversations(TWO), tokenizer, "t", 100, tmp_path)
    assert np.flatnonzero(data.tokens == tokenizer.bos_token_id).tolist() == [0]


@pytest.mark.parametrize("template", [TEMPLATE, None])
def test_an_answer_to_nothing_is_named(tmp_path, template):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="Record 2 begins with an answer"):
        tokenize(conversations(ONE, TWO[1:]), tokenizer, "t", 100, tmp_path)


def test_a_record_that_the_template_refuses_is_named(tmp_path):
    tokenizer = byte_tokenizer()
    refusal = "{{ raise_exception('System role not supported') }}"
    tokenizer.chat_template = "{% if messages[0].role == 'system' %}" + refusal + "{% endif %}" + TEMPLATE
    with pytest.raises(UserError, match=r"Record 2 does not fit .*: System role not supported\."):
        tokenize(conversations(ONE, (("system", "Be brief."), *ONE)), tokenizer, "t", 100, tmp_path)


def test_a_files_name_keeps_its_capitals(tmp_path):
    turns = (Turn("user", "q"), Turn("assistant", "x" * 50))
    dataset = Dataset("d", "conversation", (turns,), ("record 1 of My_Data.json",), "", "x")
    with pytest.raises(UserError, match=r"Record 1 of My_Data\.json has 71 tokens"):
        tokenize(dataset, byte_tokenizer(), "t", 40, tmp_path)


def test_the_last_token_of_a_running_text_is_no_lost_record(tmp_path):
    dataset = Dataset("d", "text", ("abcdefg",), ("d",), "", "x", whole=True)
    data = tokenize(dataset, byte_tokenizer(), "t", 3, tmp_path)
    assert data.lengths.tolist() == [3, 3]
    assert data.warnings("d", 3) == ()


def test_nothing_is_held_out_when_nothing_is_asked_for(tmp_path):
    data = tokenize(conversations(ONE, TWO), byte_tokenizer(), "t", 100, tmp_path)
    train, held_out = split(data, 0, seed=1)
    assert (train.num_examples, held_out.num_examples) == (2, 0)
    assert (train.tokens == data.tokens).all()


def test_a_running_text_is_cut_and_all_but_first_tokens_count(tmp_path):
    dataset = Dataset("d", "text", ("abcdefgh",), ("d",), "", "x", whole=True)
    data = tokenize(dataset, byte_tokenizer(), "t", 3, tmp_path)
    assert data.lengths.tolist() == [3, 3, 2]
    assert data.targets_by_example().tolist() == [2, 2, 1]


LONG = (("user", "q"), ("assistant", "x" * 50))
ASKS_LONG = (("user", "q" * 60), ("assistant", "x"))


def test_what_is_too_long_is_named_truncated_or_dropped(tmp_path):
    dataset = conversations(ONE, LONG, ASKS_LONG)
    tokenizer = byte_tokenizer()
    with pytest.raises(UserError) as caught:
        tokenize(dataset, tokenizer, "t", 40, tmp_path, "error")
    assert caught.value.message.startswith("Record 2 has 71 tokens, more than --length 40")
    cut = tokenize(dataset, tokenizer, "t", 40, tmp_path, "truncate")
    assert (cut.lengths.tolist(), cut.num_truncated, cut.num_dropped) == ([25, 40], 1, 1), (
        "no answer is left of the third"
    )
    left = tokenize(dataset, tokenizer, "t", 40, tmp_path, "drop")
    assert (left.lengths.tolist(), left.num_truncated, left.num_dropped) == ([25], 0, 2)


class _NeverAsked:
    chat_template = None

    def __call__(self, *_, **__):
        raise AssertionError("tokenized again")


def test_it_is_tokenized_once_and_a_torn_file_is_made_anew(tmp_path):
    dataset, tokenizer = conversations(ONE, TWO), byte_tokenizer()
    first = tokenize(dataset, tokenizer, "t", 60, tmp_path)
    again = tokenize(dataset, _NeverAsked(), "t", 60, tmp_path)
    assert (again.tokens == first.tokens).all()
    assert (again.is_target == first.is_target).all()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:20])
    assert (tokenize(dataset, tokenizer, "t", 60, tmp_path).starts == first.starts).all()
    with pytest.raises(AssertionError, match="tokenized again"):
        tokenize(dataset, _NeverAsked(), "another tokenizer", 60, tmp_path)


def test_the_tokenizers_hash_sees_its_files(tiny_llama, tmp_path):
    first = tokenizer_hash(tiny_llama)
    for file in tiny_llama.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert tokenizer_hash(tmp_path) == first
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert tokenizer_hash(tmp_path) != first


def test_held_out_examples_are_not_trained_on(tmp_path):
    records = [(("user", f"{i:02}"), ("assistant", "x")) for i in range(20)]
    data = tokenize(conversations(*records), byte_tokenizer(), "t", 40, tmp_path)
    train, held_out = split(data, 5, seed=1)
    texts = [{texts_of(part, byte_tokenizer(), i)[0] for i in range(part.num_examples)} for part in (train, held_out)]
    assert (len(texts[0]), len(texts[1])) == (15, 5)
    assert not texts[0] & texts[1]
    with pytest.raises(UserError, match="leaves none"):
        split(data, 20, seed=1)


@pytest.mark.data
@pytest.mark.parametrize(("file", "number"), [("alpaca_en_demo.json", 999), ("rasbt_instruction-data.json", 1100)])
def test_real_instructions_and_a_real_tokenizer(data_dir, tmp_path, file, number):
    source = models.resolve("smollm2-135m")
    tokenizer = models.load_tokenizer(source)
    dataset = load_dataset_named(str(data_dir / "sft" / file))
    assert len(dataset.records) == number
    data = tokenize(dataset, tokenizer, tokenizer_hash(source.folder), 2048, tmp_path)
    assert data.num_examples == number
    answers = [r["output"] for r in json.loads((data_dir / "sft" / file).read_text())]
    for example in range(0, number, 97):
        _, said = texts_of(data, tokenizer, example)
        assert (
            said.removesuffix("\n").removesuffix("<|im_end|>").removesuffix("</s>").strip() == answers[example].strip()
        )
