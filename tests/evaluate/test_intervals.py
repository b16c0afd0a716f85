"""Error bars against scipy, textbook values and simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.evaluate.intervals import (
    accuracy,
    mcnemar,
    mean_stderr,
    paired_accuracy,
    paired_interval,
    paired_log_ratio,
    ratio,
)

scipy_stats = pytest.importorskip("scipy.stats")
scipy_optimize = pytest.importorskip("scipy.optimize")


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


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 400))
def test_the_paired_interval_ends_where_a_score_test_begins_to_reject(gained, lost, both):
    """Likelihood maximized by search over the share lost, variance from it: an implementation of its own."""
    n = gained + lost + both

    def z(difference):
        def minus_log_likelihood(share):
            kept = 1 - 2 * share - difference
            return -sum(
                k * math.log(max(p, 1e-300)) for k, p in ((gained, share + difference), (lost, share), (both, kept))
            )

        lowest, highest = max(0.0, -difference), (1 - difference) / 2
        best = scipy_optimize.minimize_scalar(
            minus_log_likelihood, bounds=(lowest, highest), method="bounded", options={"xatol": 1e-12}
        ).x
        return (gained - lost - n * difference) / math.sqrt(n * (2 * best + difference - difference**2))

    low, high = paired_interval(gained, lost, n)
    assert -1 < low < (gained - lost) / n < high < 1
    assert z(low) == pytest.approx(1.96, abs=2e-3)
    assert z(high) == pytest.approx(-1.96, abs=2e-3)
    assert paired_interval(lost, gained, n) == pytest.approx((-high, -low), abs=1e-9)


@pytest.mark.parametrize("n", [1, 8, 1000])
def test_few_questions_do_not_prove_that_nothing_was_lost(n):
    """No question tells the two apart: the interval is +-z^2 / (n + z^2), wide for few questions."""
    bound = 1.959964**2 / (n + 1.959964**2)
    assert paired_interval(0, 0, n) == pytest.approx((-bound, bound), abs=1e-6)
    assert paired_interval(n, 0, n)[1] == pytest.approx(1.0)
    assert paired_interval(0, n, n)[0] == pytest.approx(-1.0)


@pytest.mark.parametrize(("share_gained", "share_lost"), [(0.05, 0.05), (0.02, 0.04), (0.003, 0.003)])
def test_the_paired_interval_covers_as_often_as_it_says(share_gained, share_lost):
    generator = random.Random(11)
    hits, trials, n = 0, 1500, 300
    for _ in range(trials):
        draws = [generator.random() for _ in range(n)]
        gained = sum(d < share_gained for d in draws)
        lost = sum(share_gained <= d < share_gained + share_lost for d in draws)
        low, high = paired_interval(gained, lost, n)
        hits += low <= share_gained - share_lost <= high
    assert hits / trials >= 0.935


def test_equal_models_differ_by_nothing():
    found = paired_accuracy([True, False, True], [True, False, True])
    assert (found.difference.value, found.difference.stderr, found.mcnemar_p) == (0.0, 0.0, 1.0)
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
