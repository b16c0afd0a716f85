"""Which arithmetic trains fastest here: measured in a few steps, not assumed.

bf16 is many times faster than fp32 on one processor and ten times slower on another; so are memory layouts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.train.config import Precision
    from genaccel.train.group import Group

MARGIN = 1.1


@dataclass(frozen=True)
class Arithmetic:
    """How a network computes: dtype of autocast, whether channels lie innermost in memory, whether it is compiled."""

    precision: Precision = "fp32"
    channels_last: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        parts = [self.precision, "channels last" if self.channels_last else "contiguous"]
        return ", ".join([*parts, "compiled"] if self.compiled else parts)


@dataclass(frozen=True)
class Probe:
    """What was chosen, and the median seconds of a step of everything that was tried."""

    chosen: Arithmetic
    seconds: dict[str, float]

    @property
    def reason(self) -> str:
        """For people: the choice and what it was measured against."""
        if not self.seconds:
            return f"{self.chosen} (as told)"
        tried = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in self.seconds.items())
        return f"{self.chosen} (measured: {tried})"


def fastest(
    candidates: Sequence[Arithmetic],
    step_with: Callable[[Arithmetic], Callable[[], object]],
    group: Group,
    repeats: int = 3,
) -> Probe:
    """Time a step with every candidate; all processes take the choice of the first.

    The first candidate is the plain one: another must be faster by ``MARGIN`` to be taken instead.

    ``step_with`` makes a step; its first call is warm-up. A candidate whose warm-up takes six times as long as the
    fastest step so far is not repeated.
    """
    if len(candidates) == 1:
        return Probe(candidates[0], {})
    seconds: dict[str, float] = {}
    for candidate in candidates:
        seconds[str(candidate)] = _seconds(
            step_with(candidate), group.device, repeats, min(seconds.values(), default=0.0)
        )
    best = min(range(len(candidates)), key=lambda i: seconds[str(candidates[i])] / (1.0 if i else MARGIN))
    agreed = int(group.gather([[float(best)]])[0][0][0])
    return Probe(candidates[agreed], seconds)


def _seconds(step: Callable[[], object], device: Device, repeats: int, best: float) -> float:
    """Median seconds of a step after a first one; of the first one where that is hopeless."""
    taken: list[float] = []
    for number in range(1 + repeats):
        start = time.perf_counter()
        step()
        device.synchronize()
        taken.append(time.perf_counter() - start)
        if number == 0 and best and taken[0] > 6 * best:
            return taken[0]
    return statistics.median(taken[1:])
