"""Error bars against scipy, textbook values and simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.evaluate.intervals import accuracy, mcnemar, mean_stderr, paired_accuracy, paired_log_ratio, ratio

scipy_stats = pytest.importorskip("scipy.stats")


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_accuracy_is_scipys_wilson_interval(correct):
    found = accuracy(correct)
    expected = scipy_stats.binomtest(sum(correct), len(correct)).proportion_ci(0.95, method="wilson")
    assert found.value == sum(correct) / len(correct)
    assert found.interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    if len(correct) > 1:
        values = [float(c) for c in correct]
        assert found.stderr == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)))


def test_one_example_has_an_interval_but_no_stderr():
    assert accuracy([True]).stderr is None
    assert accuracy([True]).interval == pytest.approx((0.2065, 1.0), abs=1e-4)
    assert ratio([3.0], [2.0]).interval is None
    assert mean_stderr([1.0]) is None


@pytest.mark.parametrize(("only_ours", "only_baseline"), [(0, 0), (1, 0), (5, 5), (3, 12), (700, 800), (0, 5000)])
def test_mcnemar_is_the_binomial_test(only_ours, only_baseline):
    n = only_ours + only_baseline
    expected = scipy_stats.binomtest(only_ours, n).pvalue if n else 1.0
    assert mcnemar(only_ours, only_baseline) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_paired_accuracy_by_hand():
    """Ours right on 1, 2, 3; theirs on 3, 4: difference 1/5, discordant 2 and 1."""
    found = paired_accuracy([True, True, True, False, False], [False, False, True, True, False])
    assert found.difference.value == pytest.approx(0.2)
    assert (found.num_only_ours, found.num_only_baseline) == (2, 1)
    assert found.difference.stderr == pytest.approx(statistics.stdev([1, 1, 0, -1, 0]) / math.sqrt(5))
    assert found.mcnemar_p == 1.0


def test_equal_models_differ_by_exactly_nothing():
    found = paired_accuracy([True, False, True], [True, False, True])
    assert (found.difference.value, found.difference.interval, found.mcnemar_p) == (0.0, (0.0, 0.0), 1.0)
    same = paired_log_ratio([3.0, 4.0], [3.0, 4.0], [2.0, 2.0])
    assert (same.value, same.interval) == (1.0, (1.0, 1.0))


def test_the_ratio_interval_covers_as_often_as_it_says():
    """Pages of varying length whose nll per word varies by page: about 95 of 100 intervals hold the truth."""
    generator = random.Random(3)
    hits = 0
    for _ in range(400):
        counts = [generator.randint(50, 500) for _ in range(60)]
        sums = [c * generator.gauss(3.0, 0.4) for c in counts]
        low, high = ratio(sums, counts).interval
        hits += low <= 3.0 <= high
    assert 0.91 <= hits / 400 <= 0.98
