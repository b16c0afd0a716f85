"""How a time is taken: warm-up first, the device synchronized before the clock is read, several repeats, the median.

A spread above 10 % of the median is said with the figure, not hidden.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genaccel.devices import Device

SPREAD_WARNING = 0.10


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one quantity, in the order they were taken (warm-up left out)."""

    values: tuple[float, ...]
    num_warmup: int

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Interquartile range as a share of the median; 0 for fewer than two samples."""
        if len(self.values) < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return (upper - lower) / self.median if self.median else 0.0

    def map(self, function: Callable[[float], float]) -> Samples:
        """Samples of a derived quantity, e.g. seconds -> tokens per second."""
        return Samples(tuple(function(v) for v in self.values), self.num_warmup)


def repeat(function: Callable[[], object], device: Device, *, num_warmup: int = 2, num_repeats: int = 5) -> Samples:
    """Seconds of ``num_repeats`` calls after ``num_warmup`` uncounted ones."""
    for _ in range(num_warmup):
        function()
    values = []
    for _ in range(num_repeats):
        device.synchronize()
        start = time.perf_counter()
        function()
        device.synchronize()
        values.append(time.perf_counter() - start)
    return Samples(tuple(values), num_warmup)


def median_seconds(
    function: Callable[[], object], device: Device, *, budget_seconds: float, max_repeats: int = 65
) -> float:
    """A quick median for choosing between kernels: one warm-up, then repeats until ``budget_seconds`` are spent."""
    function()
    values: list[float] = []
    begin = time.perf_counter()
    while len(values) < max_repeats and (not values or time.perf_counter() - begin < budget_seconds):
        values.extend(repeat(function, device, num_warmup=0, num_repeats=1).values)
    return statistics.median(values)
