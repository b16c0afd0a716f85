"""Instruction files: every kind is read, everything malformed is named."""

from __future__ import annotations

import json

import pytest

from genaccel.errors import UserError
from genaccel.finetune.datasets import Turn, load_dataset_named

KINDS = {
    "alpaca": ({"instruction": "Add.", "input": "1 2", "output": "3"}, "conversation", ("Add.\n\n1 2", "3")),
    "no input": ({"instruction": "Add.", "input": "", "output": "3"}, "conversation", ("Add.", "3")),
    "completion": ({"prompt": "1+2=", "completion": "3"}, "completion", ("1+2=", "3")),
    "messages": (
        {"messages": [{"role": "user", "content": "1+2?"}, {"role": "assistant", "content": "3"}]},
        "conversation",
        ("1+2?", "3"),
    ),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": "1+2?"}, {"from": "gpt", "value": "3"}]},
        "conversation",
        ("1+2?", "3"),
    ),
}


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_is_read(tmp_path, name, suffix):
    record, kind, (asked, said) = KINDS[name]
    path = tmp_path / f"data.{suffix}"
    path.write_text(json.dumps([record]) if suffix == "json" else json.dumps(record) + "\n")
    found = load_dataset_named(str(path))
    assert found.kind == kind
    assert found.records == ((Turn("user", asked), Turn("assistant", said)),)


def test_texts_and_the_built_in_prose(tmp_path):
    (tmp_path / "a.txt").write_text("some text")
    assert load_dataset_named(str(tmp_path / "a.txt")).records == ("some text",)
    assert "Python" in load_dataset_named("pydoc").records[0]


GOOD = {"instruction": "a", "output": "b"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([GOOD, {"instruction": "a", "output": "  "}], "Record 2 of data.json has an empty 'output'"),
        ([GOOD, {"instruction": "a"}], "Record 2 of data.json has no text under 'output'"),
        ([GOOD, {"instruction": "a", "output": 3}], "Record 2 of data.json has no text under 'output'"),
        ([GOOD, 7], "Record 2 of data.json is not a JSON object"),
        ([GOOD, {"instruction": "a \ud83d", "output": "b"}], "Record 2 of data.json has half a character"),
        ([{"question": "a", "answer": "b"}], "the keys answer, question"),
        ([], "holds no records"),
        ({"a": 1}, "holds no list of records"),
        ([{"messages": [{"role": "user", "content": "x"}]}], "has no answer"),
        ([{"messages": [{"role": "robot", "content": "x"}]}], "a message by 'robot'"),
        ([{"messages": "x"}], "no list of messages"),
    ],
)
def test_what_is_malformed_is_named(tmp_path, content, words):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        load_dataset_named(str(path))
    assert words in caught.value.message


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps(GOOD) + "\n\n{broken\n")
    with pytest.raises(UserError, match=r"Line 3 of .*data.jsonl is not JSON"):
        load_dataset_named(str(path))


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UserError) as caught:
        load_dataset_named("pydocs")
    assert "pydoc" in caught.value.hint


@pytest.mark.parametrize("name", ["data/foo.csv", "data/foo.parquet"])
def test_a_file_of_another_kind_is_not_sought_on_the_hub(name):
    with pytest.raises(UserError, match=rf"{name} is of a kind that is not read"):
        load_dataset_named(name)
