"""Files are written whole or not at all, and several writers lose nothing."""

from __future__ import annotations

import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from genaccel import store
from genaccel.errors import UserError
from genaccel.records import Environment, Figure, Record, record_from_json, record_to_json

ENVIRONMENT = Environment("cpu", "chip", 1, 2, "chip x 2", "3.11", "linux", {"torch": "2"}, "abc")


def record(value: float | None = 1.5, label: str = "x") -> Record:
    figure = Figure("perplexity", value, "1", "measured", "protocol", samples=(1.0, 2.0))
    return Record("quantize", label, "m", "real", "cpu", {}, ENVIRONMENT, (figure,))


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch, call, number):
    path = tmp_path / "a.txt"
    store.write_text(path, "old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(UserError, match="disk is full" if number == errno.ENOSPC else "Permission denied"):
        store.write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_folder_vanishes_and_the_old_one_stays(tmp_path, error):
    folder = tmp_path / "out"
    with store.whole_folder(folder) as new:
        (new / store.CHECKPOINT_MARK).write_text("old")

    def interrupted() -> None:
        with store.whole_folder(folder) as new:
            (new / "half").write_text("x")
            raise error

    with pytest.raises(error):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert [p.name for p in folder.iterdir()] == [store.CHECKPOINT_MARK]


def test_a_folder_replaces_a_checkpoint_whole(tmp_path):
    for name in ("one", "two"):
        with store.whole_folder(tmp_path / "out") as new:
            (new / store.CHECKPOINT_MARK).write_text("")
            (new / "base").mkdir()
            (new / "base" / name).write_text("")
    assert {p.name for p in (tmp_path / "out" / "base").iterdir()} == {"two"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_records_round_trip_and_a_torn_one_is_reported(tmp_path):
    first, second = record(), record(None)
    store.write_record(first, tmp_path)
    torn = store.write_record(second, tmp_path)
    assert sorted(store.read_records(tmp_path)[0], key=lambda r: r.id) == sorted((first, second), key=lambda r: r.id)
    torn.write_text(torn.read_text()[:-40])
    records, problems = store.read_records(tmp_path)
    assert records == [first]
    assert len(problems) == 1
    assert torn.name in problems[0]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"schema_version": 1', '"schema_version": 7', "schema version 7"),
        ('"label": "x"', '"labell": "x"', "unknown key 'labell' (Did you mean label"),
        ('"value": 1.5', '"value": NaN', "NaN is no JSON number"),
        ('"value": 1.5', '"value": "1.5"', "not valid"),
        ('"kind": "measured"', '"kind": "guessed"', "not valid"),
    ],
)
def test_a_record_that_is_wrong_is_refused(old, new, sentence):
    text = record_to_json(record())
    assert old in text
    with pytest.raises(UserError) as caught:
        record_from_json(text.replace(old, new), "here.json")
    assert sentence in caught.value.message
    assert "here.json" in caught.value.message


def test_a_figure_that_is_no_number_cannot_be_stored():
    with pytest.raises(ValueError, match="JSON"):
        record_to_json(record(float("nan")))


def _write_many(folder: str, label: str, count: int) -> None:
    for _ in range(count):
        store.write_record(record(label=label), Path(folder))


def test_two_writers_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(str(tmp_path), label, 40)) for label in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    records, problems = store.read_records(tmp_path)
    assert problems == []
    assert sorted(r.label for r in records) == ["a"] * 40 + ["b"] * 40
