"""Steps of every process -> figures and curves of a record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from genaccel.hardware import accelerator_of
from genaccel.measure import Samples
from genaccel.records import Environment, Figure
from genaccel.train.meter import PHASES, Step, step_samples


def speed_figures(by_rank: Sequence[Sequence[Step]], num_warmup: int, unit: str) -> list[Figure]:
    """Throughput (global and per device), the length of a step and of its phases, and what was communicated.

    ``unit`` is what ``Step.tokens`` counts: tokens or images.
    """
    seconds, rates = step_samples(by_rank, num_warmup)
    world = len(by_rank)
    how = f"{len(seconds.values)} steps after {seconds.num_warmup} of warm-up, slowest process of each step"
    per = Samples(tuple(v / world for v in rates.values), rates.num_warmup)
    counted = f"{unit} without padding, all {world} processes together" if world > 1 else f"{unit} without padding"
    figures = [
        _median(f"train_{unit}_per_second", rates, f"{unit}/s", f"{counted}; {how}"),
        _median(f"train_{unit}_per_second_per_device", per, f"{unit}/s", f"{unit} without padding, one device; {how}"),
        _median("step_seconds", seconds, "s", how),
        Figure("step_seconds_p95", percentile(seconds.values, 0.95), "s", "measured", f"95th percentile; {how}"),
    ]
    steps = [s for steps in by_rank for s in steps[seconds.num_warmup :]]
    for phase in PHASES:
        values = [getattr(s, phase) for s in steps]
        figures.append(
            _plain(f"{phase}_seconds", statistics.median(values), "s", f"median over steps and processes; {how}")
        )
    return figures + _communication(steps, [s for ranks in by_rank for s in ranks], how)


def arithmetic_figures(
    step_flops: Sequence[float], seconds: Samples, precision: str, environment: Environment, protocol: str
) -> list[Figure]:
    """Arithmetic of a step, and its share of the device's dense peak where the catalogue knows that.

    ``step_flops`` are those of every measured step, over all devices; ``protocol`` says what was counted.
    """
    figures = [Figure("step_flops", statistics.median(step_flops), "FLOP", "predicted", f"{protocol}; median")]
    card = accelerator_of(environment.accelerator)
    peak = card.peak_flops.get(precision) if card else None
    if card is None or peak is None:
        note = f"no dense {precision} peak is known for {environment.accelerator}"
        return [*figures, Figure("mfu", None, "", "measured", "share of the dense peak", note=note)]
    attained = peak * environment.num_devices
    share = statistics.median(w / s / attained for w, s in zip(step_flops, seconds.values, strict=True))
    assert share <= 1, f"{share:.2f} of the peak of {card.name} cannot be: the arithmetic or the peak is wrong"
    how = f"model arithmetic over time and the dense {precision} peak of {environment.num_devices} {card.name}"
    return [*figures, Figure("mfu", share, "", "measured", how)]


def memory_figure(peak_bytes: Sequence[float], environment: Environment) -> Figure:
    """The largest peak of any process; NaN where a device does not tell."""
    known = [p for p in peak_bytes if math.isfinite(p)]
    scope = "resident set of a process" if environment.device == "cpu" else "allocated on a device"
    protocol = f"peak while training, {scope}, largest"
    return Figure("peak_memory_bytes", max(known, default=None), "B", "measured", protocol)


def energy_figure(before: float | None, after: float | None) -> Figure:
    """Joules between two readings of the device's counter; unknown where it is missing or began anew."""
    joules = None if before is None or after is None or after < before else after - before
    protocol = "device of the first process, all steps, checkpoints included"
    note = "" if joules is not None else "the device does not tell"
    return Figure("energy_joules", joules, "J", "measured", protocol, note=note)


def spread_warnings(figures: Sequence[Figure]) -> tuple[str, ...]:
    """What a reader should know before comparing speeds."""
    spread = next((f.spread for f in figures if f.name == "step_seconds"), None)
    if spread is not None and spread > 0.10:
        return (f"the length of a step varies by {spread:.0%} (interquartile range over median)",)
    return ()


def _communication(steps: Sequence[Step], all_steps: Sequence[Step], how: str) -> list[Figure]:
    what = {
        "communication_bytes": ("B", "handed to collectives by one process in a step"),
        "communication_calls": ("", "collectives of one process in a step"),
        "communication_seconds": ("s", "some collective was under way on one process"),
        "exposed_communication_seconds": ("s", "one process stood still: for a collective, or on a CPU for a turn"),
    }
    found = []
    for name, (unit, meaning) in what.items():
        # How long collectives take is profiled in warm-up steps alone, for profiling slows a step down.
        profiled = name == "communication_seconds"
        known = [v for s in (all_steps if profiled else steps) if math.isfinite(v := getattr(s, name))]
        value = statistics.median(known) if known else None
        protocol = f"{meaning}, median; " + ("profiled warm-up steps" if profiled else how)
        found.append(Figure(name, value, unit, "measured", protocol, note="" if known else "unknown here"))
    return found


def curves(by_rank: Sequence[Sequence[Step]]) -> dict[str, Any]:
    """What happened step by step, for the report: lists of equal length, and each process's medians."""
    first = by_rank[0]
    together = list(zip(*by_rank, strict=True))
    rows = [
        {name: statistics.median([getattr(s, name) for s in steps]) for name in ("seconds", *PHASES)}
        for steps in by_rank
    ]
    return {
        "step": [s.step + 1 for s in first],
        "loss": [s.loss for s in first],
        "gradient_norm": [_finite(s.gradient_norm) for s in first],
        "learning_rate": [s.learning_rate for s in first],
        "step_seconds": [max(s.seconds for s in ranks) for ranks in together],
        "tokens": [sum(s.tokens for s in ranks) for ranks in together],
        "by_rank": rows,
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the order statistics."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _median(name: str, samples: Samples, unit: str, protocol: str) -> Figure:
    return Figure(name, samples.median, unit, "measured", f"median of {protocol}", samples.values, samples.spread)


def _plain(name: str, value: float, unit: str, protocol: str) -> Figure:
    return Figure(name, value, unit, "measured", protocol)
