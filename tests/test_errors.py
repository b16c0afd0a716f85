"""Errors for people: a sentence, a hint, the nearest names."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError, did_you_mean, reason_of, unknown


def test_an_error_reads_as_sentence_and_hint():
    assert str(UserError("It is full.", "Empty it.")) == "It is full. (Empty it.)"
    assert str(UserError("It is full.")) == "It is full."


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("int9", ("int8", "fp16"), "Did you mean int8?"),
        ("modle", ("model", "mode", "method"), "Did you mean mode or model?"),
        ("xyz", ("int8", "fp16"), "Known: fp16, int8."),
        ("xyz", (), "None is known."),
        ("", ("int8",), "Known: int8."),
    ],
)
def test_the_hint_offers_near_names_or_all_of_them(name, known, hint):
    assert did_you_mean(name, known) == hint
    assert unknown("format", name, known).message == f"There is no format '{name}'."
    assert unknown("format", name, known).hint == hint


@pytest.mark.parametrize(
    ("error", "phrase"),
    [
        (ValueError("It is bad.\nSee above."), "It is bad"),
        (ValueError("\n  It is bad  \n"), "It is bad"),
        (ValueError("Bad field 'x':\n    TypeError: no int\n"), "Bad field 'x': TypeError: no int"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "KeyError 'x'"),
    ],
)
def test_somebody_elses_error_becomes_a_phrase(error, phrase):
    assert reason_of(error) == phrase


@given(st.text(string.ascii_lowercase, min_size=4, max_size=12), st.data())
def test_one_wrong_letter_is_always_forgiven(name, data):
    place = data.draw(st.integers(0, len(name) - 1))
    misspelled = name[:place] + "#" + name[place + 1 :]
    assert did_you_mean(misspelled, [name, "0123456789"]) == f"Did you mean {name}?"
