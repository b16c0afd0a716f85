"""Error bars: of an accuracy, of a perplexity, and of the difference between two models judged on the same examples.

The two models of a pair see the same questions, so their difference is far better known than either figure: all
differences here are of pairs, example by example. Intervals are 95 %. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Z95 = 1.959963984540054
"""The standard normal's 97.5 % point."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A value, its standard error and 95 % interval; both are None where one example is too few to tell."""

    value: float
    stderr: float | None
    interval: Interval | None


def mean_stderr(values: Sequence[float]) -> float | None:
    """Sample standard deviation (n - 1) over sqrt(n), as lm-eval reports it; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def accuracy(correct: Sequence[bool]) -> Estimate:
    """Share of correct answers with Wilson's score interval (Wilson 1927), which stays inside 0..1 for any count."""
    n = len(correct)
    p = sum(correct) / n
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n * n))
    return Estimate(p, mean_stderr([float(c) for c in correct]), (max(0.0, centre - half), min(1.0, centre + half)))


def ratio(sums: Sequence[float], counts: Sequence[float]) -> Estimate:
    """sum(sums) / sum(counts) over groups (pages, windows), by the delta method: groups vary, not single tokens.

    Cochran, Sampling Techniques, 3rd ed., eq. 6.13 without the finite-population term.
    """
    n, total = len(sums), math.fsum(counts)
    value = math.fsum(sums) / total
    if n < 2:
        return Estimate(value, None, None)
    residuals = math.fsum((s - value * c) ** 2 for s, c in zip(sums, counts, strict=True))
    stderr = math.sqrt(residuals * n / (n - 1)) / total
    return Estimate(value, stderr, (value - Z95 * stderr, value + Z95 * stderr))


def exponential(log_estimate: Estimate) -> Estimate:
    """The estimate of exp(x): the interval's ends are mapped, so that it stays positive; stderr by the delta method."""
    value = math.exp(log_estimate.value)
    stderr = None if log_estimate.stderr is None else value * log_estimate.stderr
    interval = log_estimate.interval and (math.exp(log_estimate.interval[0]), math.exp(log_estimate.interval[1]))
    return Estimate(value, stderr, interval)


@dataclass(frozen=True)
class PairedAccuracy:
    """Accuracy of ours minus the baseline's on the same questions, and McNemar's exact test of 'no difference'."""

    difference: Estimate
    num_only_ours: int
    num_only_baseline: int
    mcnemar_p: float


def paired_accuracy(ours: Sequence[bool], baseline: Sequence[bool]) -> PairedAccuracy:
    """Compare two models' answers to the same questions; stderr is that of the mean of the paired differences."""
    differences = [float(a) - float(b) for a, b in zip(ours, baseline, strict=True)]
    gained, lost, n = differences.count(1.0), differences.count(-1.0), len(differences)
    estimate = Estimate((gained - lost) / n, mean_stderr(differences), paired_interval(gained, lost, n))
    return PairedAccuracy(estimate, gained, lost, mcnemar(gained, lost))


def paired_interval(gained: int, lost: int, n: int) -> Interval:
    """Tango's score interval of the difference (gained - lost) / n between two accuracies on the same ``n`` questions.

    It holds the differences that a score test does not reject, McNemar's test at 0 among them. A normal interval would
    have no width where no question tells two models apart: ten questions would prove what ten thousand may not.
    Tango, Statistics in Medicine 17 (1998), 891-908.
    """

    def rejected(difference: float) -> float:
        """The test's z statistic: above 0 where ``difference`` is too low for what was seen."""
        b = (2 * n - gained + lost) * difference - gained - lost
        c = -lost * difference * (1 - difference)
        # The likeliest share of questions lost, given the difference.
        share_lost = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * share_lost + difference * (1 - difference))
        surprise = gained - lost - n * difference
        return surprise / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, surprise)

    seen = (gained - lost) / n
    return _crossing(rejected, -1.0, seen, Z95), _crossing(rejected, seen, 1.0, -Z95)


def _crossing(falling: Callable[[float], float], low: float, high: float, level: float) -> float:
    """Where ``falling`` passes ``level`` between ``low`` and ``high``, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return (low + high) / 2


def mcnemar(only_ours: int, only_baseline: int) -> float:
    """Two-sided exact p of McNemar's test: the questions that one model alone gets right split like fair coins.

    1 when there are none. McNemar 1947; the exact binomial form.
    """
    n, k = only_ours + only_baseline, min(only_ours, only_baseline)
    # In integers: 0.5 ** n is 0 in floats for the thousands of questions that may differ.
    tail = sum(math.comb(n, i) for i in range(k + 1))
    return min(1.0, float(2 * tail / 2**n))


def paired_log_ratio(ours: Sequence[float], baseline: Sequence[float], counts: Sequence[float]) -> Estimate:
    """Ratio of two perplexities over the same groups of tokens: exp of the difference of their mean nll."""
    return exponential(ratio([a - b for a, b in zip(ours, baseline, strict=True)], counts))
