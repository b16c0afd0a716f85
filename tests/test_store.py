"""Files are written whole or not at all, and several writers lose nothing."""

from __future__ import annotations

import errno
import multiprocessing
import os
from dataclasses import replace
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
        ('"schema_version": 2', '"schema_version": 7', "schema version 7"),
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


@pytest.mark.slow
def test_a_writer_that_is_killed_loses_nothing(tmp_path):
    from tests.killed_writers import kill_writers

    found = kill_writers(tmp_path, 20)
    assert (found.lost, found.problems) == (set(), [])
    assert found.num_records >= found.num_promised >= 40


def test_another_record_is_never_replaced(tmp_path):
    path = tmp_path / "a.json"
    store.write_new(path, b"first")
    store.write_new(path, b"first")
    with pytest.raises(UserError, match="another file"):
        store.write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_is_written_to(tmp_path, monkeypatch, number):
    def no_link(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_link)
    path = store.write_record(record(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_records_of_several_folders_and_files_are_gathered_once(tmp_path):
    first, second, third = record(label="1"), record(label="2"), record(label="3")
    for one, folder in ((first, "a"), (second, "a"), (second, "b")):
        store.write_record(one, tmp_path / folder)
    file = store.write_record(third, tmp_path / "c")
    (tmp_path / "b" / "torn.json").write_text("{")
    records, problems = store.gather_records([tmp_path / "a", tmp_path / "b", file])
    assert sorted(r.label for r in records) == ["1", "2", "3"]
    assert len(problems) == 1
    with pytest.raises(UserError, match="no folder"):
        store.gather_records([tmp_path / "d"])


# --- Folders ----------------------------------------------------------------------------------------------------------


def put(folder: Path, content: str) -> None:
    with store.whole_folder(folder) as new:
        (new / store.CHECKPOINT_MARK).write_text(content)


def test_a_folder_of_something_else_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    with pytest.raises(UserError, match="thesis is not empty and holds no checkpoint"):
        put(tmp_path / "thesis", "new")
    assert [p.name for p in tmp_path.rglob("*")] == ["thesis", "chapter1.tex"]


@pytest.mark.parametrize("name", ["new", "empty", "deep/er/new"])
def test_a_new_or_empty_folder_is_filled(tmp_path, name):
    (tmp_path / "empty").mkdir()
    put(tmp_path / name, "x")
    assert (tmp_path / name / store.CHECKPOINT_MARK).read_text() == "x"
    assert not list(tmp_path.rglob(".*"))


def test_a_relative_folder_is_filled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(Path("here"), "x")
    assert [p.name for p in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize("target", ["nothing yet", "an empty folder", "an old checkpoint"])
def test_a_link_to_another_disk_stays_a_link(tmp_path, target):
    """Home folders are small: people link their outputs to scratch."""
    (tmp_path / "home").mkdir()
    (tmp_path / "scratch").mkdir()
    link = tmp_path / "home" / "out"
    link.symlink_to(tmp_path / "scratch" / "out")
    if target == "an empty folder":
        (tmp_path / "scratch" / "out").mkdir()
    if target == "an old checkpoint":
        put(tmp_path / "scratch" / "out", "old")
    put(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "scratch" / "out" / store.CHECKPOINT_MARK).read_text() == "new"
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["out"]
    assert [p.name for p in (tmp_path / "scratch").iterdir()] == ["out"]


def test_when_the_new_folder_cannot_take_its_name_the_old_one_has_it_back(tmp_path, monkeypatch):
    put(tmp_path / "out", "old")
    rename = os.rename

    def fails_for_the_new(source, target):
        if str(source).endswith(".part"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_for_the_new)
    with pytest.raises(UserError, match="Input/output error"):
        put(tmp_path / "out", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / store.CHECKPOINT_MARK).read_text() == "old"


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    def fill() -> None:
        with store.whole_folder(tmp_path / "out") as new:
            (new / "half").write_text("x")
            store.check_free_space(new, 10**18)

    with pytest.raises(UserError, match=r"disk is full.*1,000,000,000,000,000,000 bytes are needed"):
        fill()
    assert not list(tmp_path.iterdir())
    store.check_free_space(tmp_path, 0)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("file", "The output .*file is a file"), ("file/below", "file is a file, so .* cannot be a folder")],
)
def test_an_output_that_cannot_be_a_folder_is_refused(tmp_path, path, sentence):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=sentence):
        store.check_output_folder(tmp_path / path)


@pytest.mark.parametrize(("mask", "file", "folder"), [(0o022, 0o644, 0o755), (0o077, 0o600, 0o700)])
def test_files_are_as_private_as_the_user_wants_them(tmp_path, mask, file, folder):
    before = os.umask(mask)
    try:
        store.write_text(tmp_path / "a.txt", "")
        put(tmp_path / "out", "")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == file
    assert (tmp_path / "out").stat().st_mode & 0o777 == folder


# --- Records ----------------------------------------------------------------------------------------------------------


def test_records_come_oldest_first_whatever_their_files_are_called(tmp_path):
    times = [f"2026-01-0{day}T00:00:00.000+00:00" for day in (3, 1, 2)]
    for time in times:
        store.write_record(replace(record(label=time[9]), created=time), tmp_path)
    assert [r.label for r in store.read_records(tmp_path)[0]] == ["1", "2", "3"]


def test_what_is_no_record_is_named_and_the_others_are_read(tmp_path):
    good = record()
    store.write_record(good, tmp_path)
    (tmp_path / "latin.json").write_bytes(b"\xe9")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / ".x.json.abc.part").write_text("half")
    (tmp_path / "notes.txt").write_text("no record")
    records, problems = store.read_records(tmp_path)
    assert records == [good]
    assert [name for name in ("folder", "latin", "other") if any(f"{name}.json" in p for p in problems)] == [
        "folder", "latin", "other",
    ]  # fmt: skip
    assert len(problems) == 3


def test_a_missing_folder_of_records_is_said(tmp_path):
    with pytest.raises(UserError, match=r"no folder .*nowhere"):
        store.read_records(tmp_path / "nowhere")
