"""What every step took, on every process: time by phase, tokens, communication, memory, energy.

Phases end where the device's clock says so (``Device.mark``), without stopping the device in between. Only the end of a
step waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any

from genaccel.measure import Samples

if TYPE_CHECKING:
    from genaccel.train.group import Group
    from genaccel.train.traffic import Traffic

PHASES = ("data", "forward", "backward", "waiting", "optimizer")
"""'waiting' is the sum of the loss over processes: time that this process was ahead of the slowest."""


@dataclass(frozen=True)
class Step:
    """One step of one process. Unknown values are NaN here and null in a record."""

    step: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    data: float
    forward: float
    backward: float
    waiting: float
    optimizer: float
    communication_bytes: float
    communication_calls: float
    communication_seconds: float
    exposed_communication_seconds: float


class Meter:
    """The stopwatch of one process. ``begin``, ``enter`` for every phase, ``end``; then ``steps`` holds what was measured."""

    def __init__(self, group: Group, traffic: Traffic) -> None:
        """``traffic`` counts what the processes send each other."""
        self.group, self.traffic, self.steps = group, traffic, list[Step]()
        self._marks: list[tuple[str, Any]] = []
        self._begin = 0.0

    def begin(self) -> None:
        """A step begins."""
        self.traffic.begin()
        self._begin = time.perf_counter()
        self._marks = []

    def enter(self, phase: str) -> None:
        """What follows belongs to ``phase``."""
        self._marks.append((phase, self.group.device.mark()))

    def end(self, step: int, loss: float, gradient_norm: float, learning_rate: float, tokens: int) -> Step:
        """The step is over when the device is done with it."""
        device = self.group.device
        self._marks.append(("", device.mark()))
        device.synchronize()
        seconds = time.perf_counter() - self._begin
        spent = dict.fromkeys(PHASES, 0.0)
        for (phase, start), (_, stop) in zip(self._marks, self._marks[1:], strict=False):
            spent[phase] += device.seconds_between(start, stop)
        sent = self.traffic.end()
        measured = Step(
            step,
            loss,
            gradient_norm,
            learning_rate,
            tokens,
            seconds,
            spent["data"],
            spent["forward"],
            spent["backward"],
            spent["waiting"],
            spent["optimizer"],
            sent.num_bytes,
            sent.num_calls,
            sent.seconds,
            sent.exposed_seconds,
        )
        self.steps.append(measured)
        return measured


def gather_steps(group: Group, steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of every process, by rank."""
    rows = group.gather([astuple(step) for step in steps])
    whole = {"step", "tokens"}
    names = [f.name for f in fields(Step)]

    def step_of(row: Sequence[float]) -> Step:
        values: dict[str, Any] = {n: int(v) if n in whole else v for n, v in zip(names, row, strict=True)}
        return Step(**values)

    return [[step_of(row) for row in rank_rows] for rank_rows in rows]


def step_samples(by_rank: Sequence[Sequence[Step]], num_warmup: int) -> tuple[Samples, Samples]:
    """(seconds, global tokens per second) of every step after the warm-up; a step lasts as long as on its slowest process."""
    steps = list(zip(*by_rank, strict=True))
    warmup = min(num_warmup, max(0, len(steps) - 1))
    seconds = tuple(max(s.seconds for s in ranks) for ranks in steps[warmup:])
    tokens = [sum(s.tokens for s in ranks) for ranks in steps[warmup:]]
    rates = tuple(t / s for t, s in zip(tokens, seconds, strict=True))
    return Samples(seconds, warmup), Samples(rates, warmup)
