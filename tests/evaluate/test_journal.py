"""What was found is there again: exact floats, torn lines, other identities, a second writer."""

from __future__ import annotations

import math

import pytest

from genaccel.evaluate.journal import FOLDER, Journal

IDENTITY = {"model": "m", "protocol": "p", "data": "d"}


def kept(folder, identity=IDENTITY):
    journal = Journal(folder, identity)
    results = dict(journal.results)
    journal.close()
    return results


def fill(folder, results):
    journal = Journal(folder, IDENTITY)
    for index, result in results.items():
        journal.keep(index, result)
    journal.close()
    return journal.path


def test_results_read_back_exactly(tmp_path):
    results = {0: -math.pi * 1e3, 7: [-1 / 3, None], 2: 5e-324}
    fill(tmp_path, results)
    assert kept(tmp_path) == results


@pytest.mark.parametrize("torn", [b"[3, -1.2", b"[3, -1.25]", b"\xff\xfe", b"[3", b"12\n[4, 1.0]\n"])
def test_a_torn_end_is_dropped_and_written_over(tmp_path, torn):
    path = fill(tmp_path, {0: 1.0, 1: 2.0})
    with open(path, "ab") as file:
        file.write(torn)
    assert kept(tmp_path) == {0: 1.0, 1: 2.0}
    fill(tmp_path, {3: 4.0})
    assert kept(tmp_path) == {0: 1.0, 1: 2.0, 3: 4.0}


@pytest.mark.parametrize("changed", ["model", "protocol", "data"])
def test_another_identity_has_another_journal(tmp_path, changed):
    fill(tmp_path, {0: 1.0})
    assert kept(tmp_path, IDENTITY | {changed: "other"}) == {}


def test_finished_journals_leave_nothing(tmp_path):
    journal = Journal(tmp_path, IDENTITY)
    journal.keep(0, 1.0)
    journal.close(finished=True)
    assert not (tmp_path / FOLDER).exists()
    journal.close(finished=True)  # twice does no harm


def test_a_second_writer_keeps_to_itself(tmp_path, capsys):
    first = Journal(tmp_path, IDENTITY)
    first.keep(0, 1.0)
    second = Journal(tmp_path, IDENTITY)
    assert "Another run makes the same evaluation" in capsys.readouterr().err
    second.keep(1, 2.0)
    assert second.results == {1: 2.0}
    second.close(finished=True)
    first.close()
    assert kept(tmp_path) == {0: 1.0}


def test_without_a_folder_results_are_in_memory():
    journal = Journal(None, IDENTITY)
    journal.keep(3, 1.0)
    journal.close(finished=True)
    assert journal.results == {3: 1.0}
