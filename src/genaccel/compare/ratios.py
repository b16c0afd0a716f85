"""Ratios of two measurements with 95 % intervals, by bootstrap on their samples, seeded.

A cell of a comparison holds one record or several (repeated runs). Its value is the median over records. The bootstrap
draws records, then samples inside each, both with replacement: the difference between runs counts, and it is often
larger than that between the steps of one run. Samples of one run follow each other and are not quite independent, so
an interval from a single run is rather too narrow; it is a lower bound of what is not known.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from genaccel.compare.identity import Measurement
from genaccel.evaluate.intervals import Z95, paired_log_ratio

if TYPE_CHECKING:
    import numpy as np

Interval = tuple[float, float]
DRAWS = 2000
HIGH_SPREAD = 0.10
FEW_SAMPLES = 5
FENCE = 3.0  # interquartile ranges beyond the quartiles: Tukey's outer fence


def cell_value(cell: Sequence[Measurement]) -> float:
    """The median over the records of a cell."""
    return statistics.median(m.value for m in cell)


def ratio_interval(cell: Sequence[Measurement], base: Sequence[Measurement]) -> tuple[Interval | None, str]:
    """95 % interval of ``cell``'s value over ``base``'s, and how it was found; None where nothing tells."""
    if len(cell) == len(base) == 1:
        ours, theirs = cell[0], base[0]
        for way in (_paired_windows, _paired_samples):
            if (found := way(ours, theirs)) is not None:
                return found
    drawn = [_draws(side, seed) for seed, side in enumerate((cell, base))]  # two seeds: the sides are independent
    if drawn[0] is not None and drawn[1] is not None and (drawn[1] > 0).all():
        return _percentiles(drawn[0] / drawn[1]), "bootstrap of samples" + (" and runs" if len(cell) > 1 else "")
    errors = [_log_error(side) for side in (cell, base)]
    if errors[0] is not None and errors[1] is not None:
        centre, half = cell_value(cell) / cell_value(base), Z95 * math.hypot(errors[0], errors[1])
        return (centre * math.exp(-half), centre * math.exp(half)), "standard errors, not paired"
    return None, ""


def _paired_windows(ours: Measurement, theirs: Measurement) -> tuple[Interval, str] | None:
    """Two perplexities on the same windows: what makes a window hard cancels."""
    if ours.figure.name != "perplexity" or ours.fields["data"] != theirs.fields["data"]:
        return None
    names = ("nll_by_window", "tokens_by_window")
    (nll, tokens), (other, other_tokens) = ([_list(m.record.details.get(n)) for n in names] for m in (ours, theirs))
    if len(tokens) < 2 or tokens != other_tokens or not len(nll) == len(other) == len(tokens) or min(tokens) <= 0:
        return None
    interval = paired_log_ratio(nll, other, tokens).interval
    return (interval, "paired by window") if interval else None


def _paired_samples(ours: Measurement, theirs: Measurement) -> tuple[Interval, str] | None:
    """Two means over the same examples (maps): examples are drawn, both sides of each together."""
    import numpy as np

    a, b = (np.asarray(m.figure.samples, float) for m in (ours, theirs))
    same = len(a) == len(b) > 1 and ours.fields["data"] and ours.fields["data"] == theirs.fields["data"]
    if not same or _statistic(ours) is not _mean or _statistic(theirs) is not _mean:
        return None
    index = np.random.default_rng(0).integers(len(a), size=(DRAWS, len(a)))
    below = b[index].mean(axis=1)
    return (_percentiles(a[index].mean(axis=1) / below), "paired by example") if (below > 0).all() else None


def _draws(cell: Sequence[Measurement], seed: int) -> np.ndarray | None:
    """Bootstrap draws of the cell's value, or None when some record has no samples that tell of its value."""
    import numpy as np

    generator, drawn = np.random.default_rng(seed), []
    for measurement in cell:
        statistic = _statistic(measurement)
        if statistic is None:
            return None
        values = np.asarray(measurement.figure.samples, float)
        drawn.append(statistic(values[generator.integers(len(values), size=(DRAWS, len(values)))]))
    records = generator.integers(len(cell), size=(DRAWS, len(cell)))
    medians: np.ndarray = np.median(np.stack(drawn)[records, np.arange(DRAWS)[:, None]], axis=1)
    return medians


def _median(values: Any) -> Any:
    import numpy as np

    return np.median(values, axis=1)


def _mean(values: Any) -> Any:
    return values.mean(axis=1)


def _statistic(measurement: Measurement) -> Callable[[Any], Any] | None:
    """How the value came from its samples: their median or mean; None for too few, or neither."""
    samples, value = measurement.figure.samples, measurement.value
    if len(samples) < 2:
        return None
    if math.isclose(statistics.median(samples), value, rel_tol=1e-6):
        return _median
    return _mean if math.isclose(statistics.fmean(samples), value, rel_tol=1e-6) else None


def _log_error(cell: Sequence[Measurement]) -> float | None:
    """Standard error of the logarithm of a single record's value."""
    error = cell[0].figure.stderr
    return error / cell[0].value if len(cell) == 1 and error is not None and cell[0].value > 0 else None


def _percentiles(values: np.ndarray) -> Interval:
    import numpy as np

    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)


def remarks(cell: Sequence[Measurement]) -> list[str]:
    """What may mislead: high spread, outliers, few samples, runs that disagree."""
    found = []
    spreads = [m.figure.spread for m in cell if m.figure.spread is not None and m.figure.spread > HIGH_SPREAD]
    if spreads:
        found.append(f"spread {max(spreads):.0%}")
    outliers = sum(count_outliers(m.figure.samples) for m in cell)
    if outliers:
        found.append(f"{outliers} outlier{'s' if outliers > 1 else ''}")
    if any(0 < len(m.figure.samples) < FEW_SAMPLES for m in cell):
        found.append("few samples")
    values = [m.value for m in cell]
    middle = statistics.median(values)
    if len(values) > 1 and middle and (max(values) - min(values)) / abs(middle) > HIGH_SPREAD:
        found.append(f"runs differ by {(max(values) - min(values)) / abs(middle):.0%}")
    return found


def count_outliers(samples: Sequence[float]) -> int:
    """Samples beyond Tukey's outer fences; 0 for fewer than five."""
    if len(samples) < FEW_SAMPLES:
        return 0
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    reach = FENCE * (upper - lower)
    return sum(not lower - reach <= s <= upper + reach for s in samples)


def _list(values: Any) -> list[float]:
    numeric = isinstance(values, list) and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
    return values if numeric else []
