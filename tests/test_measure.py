"""Times: medians and spreads beside numpy's, the order of warm-up, synchronizing and reading the clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel import measure
from genaccel.measure import Samples, median_seconds, repeat


class Watched:
    """A device and a clock that write down what happens; each call of ``work`` takes the next of ``durations``."""

    def __init__(self, monkeypatch, durations):
        self.log: list[str] = []
        self.now = 0.0
        self.durations = iter(durations)
        monkeypatch.setattr(measure.time, "perf_counter", self.clock)

    def clock(self) -> float:
        self.log.append("clock")
        return self.now

    def synchronize(self) -> None:
        self.log.append("sync")

    def work(self) -> None:
        self.log.append("work")
        self.now += next(self.durations)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30))
def test_median_and_spread_equal_numpys(values):
    samples = Samples(tuple(values), 0)
    lower, middle, upper = np.percentile(values, [25, 50, 75])
    assert samples.median == pytest.approx(middle)
    assert samples.spread == pytest.approx((upper - lower) / middle, abs=1e-12)


def test_a_spread_needs_two_values_and_a_median():
    assert Samples((3.0,), 0).spread == 0.0
    assert Samples((0.0, 0.0), 0).spread == 0.0


def test_a_derived_quantity_keeps_the_order():
    assert Samples((2.0, 4.0), 3).map(lambda s: 8 / s) == Samples((4.0, 2.0), 3)


def test_warm_up_is_left_out_and_the_device_synchronized_before_each_reading(monkeypatch):
    watched = Watched(monkeypatch, [100, 100, 1, 2, 3])
    samples = repeat(watched.work, watched, num_warmup=2, num_repeats=3)
    assert samples == Samples((1.0, 2.0, 3.0), 2)
    once = ["sync", "clock", "work", "sync", "clock"]
    assert watched.log == ["work", "work", *once, *once, *once]


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([9, 1.0], 1.0),  # one repeat fills the budget
        ([9, 0.25, 0.5, 0.125, 0.25], 0.25),  # the fourth fills it
        ([9, 5.0], 5.0),  # longer than the budget, and still measured once
    ],
)
def test_the_quick_median_stops_when_its_budget_is_spent(monkeypatch, durations, expected):
    watched = Watched(monkeypatch, durations)
    assert median_seconds(watched.work, watched, budget_seconds=1.0) == expected
    assert watched.log.count("work") == len(durations)


def test_the_quick_median_stops_after_the_most_repeats(monkeypatch):
    watched = Watched(monkeypatch, [0.0] * 100)
    assert median_seconds(watched.work, watched, budget_seconds=1.0, max_repeats=7) == 0.0
    assert watched.log.count("work") == 1 + 7
