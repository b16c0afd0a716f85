"""Texts and rows: where they come from, bytes kept as they are, and what is said when they cannot be had."""

from __future__ import annotations

import hashlib
import json

import pytest

from genaccel import corpora
from genaccel.corpora import ROW_FILES, data_folder, load_corpus, load_rows, read_rows
from genaccel.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of evaluation data, in small; the environment names none."""
    monkeypatch.delenv("GENACCEL_DATA", raising=False)
    for name in ("wikitext-2", "hellaswag", "boolq"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "wikitext-2" / "wiki.test.raw").write_bytes(b"test \r\n text\n")
    (tmp_path / "data" / "wikitext-2" / "wiki.valid.raw").write_bytes(b"validation text\n")
    (tmp_path / "data" / "boolq" / "dev.jsonl").write_text('{"answer": true}\n\n{"answer": false}\n')
    return tmp_path / "data"


@pytest.fixture
def no_hub(monkeypatch):
    """The hub answers nothing, at once."""
    import datasets

    def unreachable(*_, **__):
        raise ConnectionError("the network is off.\nmore about it")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)


# --- Texts ------------------------------------------------------------------------------------------------------------


def test_both_halves_of_the_built_in_text_are_whole():
    from pydoc_data.topics import topics

    first, second = load_corpus("pydoc", "calibration"), load_corpus("pydoc", "test")
    assert first.text + second.text == "\n".join(topics[name] for name in sorted(topics))
    assert first.text.endswith("\n")
    assert abs(len(first.text) - len(second.text)) < 2000
    assert load_corpus("pydoc").sha256 == second.sha256 != first.sha256


@pytest.mark.parametrize(("split", "content"), [("test", b"test \r\n text\n"), ("calibration", b"validation text\n")])
def test_wikitext_comes_from_the_folder_byte_for_byte(folder, split, content):
    corpus = load_corpus("wikitext2", split, folder)
    assert corpus.text.encode() == content
    assert corpus.sha256 == hashlib.sha256(content).hexdigest()
    assert str(folder) not in corpus.source  # records travel; paths do not


def test_the_environment_names_the_folder_and_an_argument_overrides_it(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("GENACCEL_DATA", str(tmp_path / "missing"))
    assert data_folder(folder) == folder
    assert load_corpus("wikitext2", "test", folder).text.startswith("test")
    with pytest.raises(UserError, match=r"no data folder .*missing"):
        data_folder(None)
    monkeypatch.setenv("GENACCEL_DATA", str(folder))
    assert load_corpus("wikitext2").text.startswith("test")


def test_a_file_of_ones_own_by_path_or_under_a_known_name(tmp_path):
    (tmp_path / "mine.txt").write_text("déjà vu\n", encoding="utf-8")
    by_path = load_corpus(str(tmp_path / "mine.txt"))
    assert (by_path.text, by_path.source) == ("déjà vu\n", "mine.txt")
    named = load_corpus("wikitext2", file=tmp_path / "mine.txt")
    assert (named.name, named.text) == ("wikitext2", "déjà vu\n")


@pytest.mark.parametrize(
    ("name", "sentence", "hint"),
    [
        ("wikitext", "no text 'wikitext'", "Did you mean wikitext2?"),
        ("no/such/file.txt", "no text 'no/such/file.txt'", "path of a text file"),
        ("~nobody-of-that-name/file.txt", "no text '~nobody", "path of a text file"),
        ("It was the best of times. " * 40, "no text 'It was", "path of a text file"),
    ],
)
def test_an_unknown_text_is_refused(name, sentence, hint):
    with pytest.raises(UserError) as caught:
        load_corpus(name)
    assert sentence in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("content", "sentence"), [(b"", "is empty"), (b" \n\t\n", "is empty"), (b"\xff\xfe", "it is not UTF-8")]
)
def test_a_file_that_holds_no_text_is_refused(tmp_path, content, sentence):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_corpus(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("given", [True, False])
def test_without_file_and_hub_both_ways_out_are_told(tmp_path, no_hub, monkeypatch, given):
    monkeypatch.delenv("GENACCEL_DATA", raising=False)
    with pytest.raises(UserError) as caught:
        load_corpus("wikitext2", "test", tmp_path if given else None)
    assert caught.value.message == "WikiText-2 could not be had from the hub: the network is off."
    assert ("has no wiki.test.raw" if given else "No data folder is given") in caught.value.hint
    assert "genaccel[hub]" in caught.value.hint


# --- Rows -------------------------------------------------------------------------------------------------------------


def test_rows_keep_their_line_numbers_and_the_files_hash(folder):
    rows = load_rows("boolq", "validation", folder)
    assert rows.items == ({"answer": True}, {"answer": False})
    assert rows.lines == (1, 3)
    assert rows.sha256 == hashlib.sha256((folder / "boolq" / "dev.jsonl").read_bytes()).hexdigest()


def test_a_named_file_stands_for_the_validation_split_only(folder, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"a": "\u2028 is no line break"}\n', encoding="utf-8")
    rows = load_rows("boolq", "validation", folder, tmp_path / "own.jsonl")
    assert (rows.items, rows.source) == (({"a": "\u2028 is no line break"},), "own.jsonl")
    assert load_rows("boolq", "train", folder, tmp_path / "own.jsonl") is None


def test_no_training_split_beside_the_validation_split_is_no_reason_to_ask_the_hub(folder, no_hub):
    assert load_rows("boolq", "train", folder) is None
    (folder / "boolq" / "train.jsonl").write_text('{"answer": true}\n')
    assert len(load_rows("boolq", "train", folder).items) == 1


def test_rows_of_the_hub_are_those_of_the_address(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*address, split):
        asked.append((*address, split))
        return [{"answer": 1}, {"answer": 0}]

    monkeypatch.delenv("GENACCEL_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows = load_rows("boolq", "validation")
    assert asked == [(*ROW_FILES["boolq"].hub, "validation")]
    assert rows.items == ({"answer": 1}, {"answer": 0})
    assert rows.lines == (1, 2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"a": 1}\n{"a": \n', "Line 2 of .* is not JSON"),
        ('{"a": 1}\n\n[1]\n', "Line 3 of .* is not a JSON object"),
        ("\n \n", "holds no examples"),
    ],
)
def test_a_torn_file_of_rows_names_the_line(tmp_path, content, sentence):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.data
@pytest.mark.parametrize(("name", "count"), [("boolq", 3270), ("hellaswag", 10042)])
def test_the_evaluation_data_are_whole(data_dir, name, count):
    """The published sizes of the validation splits."""
    rows = load_rows(name, "validation", data_dir)
    assert len(rows.items) == count
    first = json.loads((data_dir / ROW_FILES[name].test).read_text(encoding="utf-8").split("\n", 1)[0])
    assert rows.items[0] == first


def test_every_known_text_can_be_asked_for():
    assert set(corpora.TEXTS) == {"pydoc", "wikitext2"}
