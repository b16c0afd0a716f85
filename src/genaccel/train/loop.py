"""The training loop: one for every workload, strategy and device.

The loss of a step is the sum over the targets of its global batch, divided by their number, which every process knows
beforehand. So it is the same for every number of processes, micro-batch and strategy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from genaccel.errors import UserError
from genaccel.train.schedule import learning_rate

if TYPE_CHECKING:
    from genaccel.train.checkpoint import Checkpoints
    from genaccel.train.config import TrainConfig
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group
    from genaccel.train.meter import Meter, Step


class Batch(Protocol):
    """A micro-batch of one process."""

    @property
    def num_tokens(self) -> int:
        """What throughput counts: tokens without padding, or images."""

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""


class Workload(Protocol):
    """What is trained on what. All it needs to know of processes is which samples are its own."""

    def micro_batches(self, step: int) -> Iterable[Batch]:
        """This process's micro-batches of a step, in order; every process has as many."""

    def num_targets(self, step: int) -> float:
        """What the step's loss is divided by: the number of targets in the global batch."""

    def loss_sum(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """The loss summed over the targets of a micro-batch, a scalar; the forward pass goes through ``model``."""

    def describe_step(self, step: int) -> str:
        """Which samples a step holds, for messages."""


@dataclass
class Run:
    """Everything that the loop works with."""

    workload: Workload
    engine: Steps
    config: TrainConfig
    group: Group
    meter: Meter
    num_steps: int
    first_step: int = 0
    checkpoints: Checkpoints | None = None
    told_to_end: Callable[[], bool] = lambda: False
    beat: Callable[[int, str], None] = lambda _step, _phase: None
    show: Callable[[Step], None] = lambda _: None
    after_update: Callable[[], None] = lambda: None
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """Where the loop stopped: after ``step`` steps, at the end or because it was told to."""

    step: int
    ended_early: bool
    checkpoint: Path | None


def train(run: Run) -> Outcome:
    """Train from ``first_step`` to ``num_steps``; ``UserError`` when the loss or the gradient is no longer a number."""
    saved = None
    for step in range(run.first_step, run.num_steps):
        ending = _one_step(run, step)
        done = step + 1
        due = bool(run.config.save_every) and (done % run.config.save_every == 0 or done == run.num_steps)
        if run.checkpoints is not None and (due or ending):
            run.beat(step, "checkpoint")
            samples = done * run.config.global_batch
            saved = run.checkpoints.save(run.engine, done, samples, run.engine.updates, run.losses)
        if ending:
            return Outcome(done, done < run.num_steps, saved)
    return Outcome(run.num_steps, False, saved)


def _one_step(run: Run, step: int) -> bool:
    """Forward and backward over the micro-batches, one update; whether some process was told to end."""
    config, engine, meter = run.config, run.engine, run.meter
    device = run.group.device.torch_device()
    scale = run.group.world_size / run.workload.num_targets(step)  # the exchange takes the mean over processes
    loss, tokens = torch.zeros((), dtype=torch.float32, device=device), 0

    def enter(phase: str) -> None:
        run.beat(step, phase)
        meter.enter(phase)

    meter.begin()
    enter("data")
    batches = list(run.workload.micro_batches(step))
    for number, batch in enumerate(batches, 1):
        enter("data")
        here = batch.to(device)
        with engine.exchange(last=number == len(batches)):
            enter("forward")
            with engine.autocast():
                part = run.workload.loss_sum(engine.model, here)
            enter("backward")
            engine.backward(part * scale)
            run.group.device.launch_collected()
        loss += part.detach()
        tokens += batch.num_tokens
    enter("waiting")
    normalized = float(loss) / run.workload.num_targets(step)
    total, num_told = run.group.sum([normalized, float(run.told_to_end())])
    if not math.isfinite(total):
        raise UserError(
            f"The loss of step {step + 1} is {total} ({run.workload.describe_step(step)}); training stopped before the update.",
            "Lower --learning-rate, or look at those samples; checkpoints of earlier steps are whole.",
        )
    enter("optimizer")
    rate = learning_rate(config, step * config.global_batch, run.num_steps * config.global_batch)
    norm = engine.step(rate)
    run.after_update()
    run.group.device.launch_collected()
    if not math.isfinite(norm) and config.precision != "fp16":  # fp16 skips such a step and lowers its loss scale
        raise UserError(
            f"The gradient of step {step + 1} is not finite ({run.workload.describe_step(step)}).",
            "Lower --learning-rate; checkpoints of earlier steps are whole.",
        )
    run.losses.append(total)
    run.show(meter.end(step, total, norm, rate, tokens))
    return num_told > 0
