"""Intervals and message sizes, by hand and against a slow second implementation."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.devices import get
from genaccel.train.group import Group
from genaccel.train.traffic import Sent, Traffic, message_bytes, total, union, without

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda p: (min(p), max(p))), max_size=12)


def covered(intervals):
    """Unit cells that some interval covers."""
    return {cell for start, stop in intervals for cell in range(int(start), int(stop))}


@given(SPANS)
def test_the_union_covers_the_same_without_overlap(intervals):
    merged = union(intervals)
    assert covered(merged) == covered(intervals)
    assert total(intervals) == len(covered(intervals))
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged))


@given(SPANS, SPANS)
def test_what_others_hide_is_taken_away(intervals, others):
    left = without(intervals, others)
    assert covered(left) == covered(intervals) - covered(others)


def entry(inputs, outputs, kind="Float"):
    return {
        "input_sizes": inputs,
        "input_dtypes": [kind] * len(inputs),
        "output_sizes": outputs,
        "output_dtypes": [kind] * len(outputs),
    }


@pytest.mark.parametrize(
    ("collective", "size"),
    [
        (entry([[10, 2]], [[10, 2]]), 80),  # a reduction: its buffer
        (entry([[5]], [[20]]), 80),  # a gather into one tensor: the whole
        (entry([[5]], [[5], [5], [5], [5]]), 80),  # into a list of them
        (entry([[20]], [[5]], "BFloat16"), 40),  # a scatter: the whole
        ({}, 0),  # a barrier
    ],
)
def test_the_size_of_a_message(collective, size):
    assert message_bytes(collective) == size


def test_a_single_process_sends_nothing():
    traffic = Traffic(Group(get("cpu")), num_profiled=1)
    traffic.begin()
    assert traffic.end() == Sent(0.0, 0.0, 0.0, 0.0)
