"""Language modelling as the training loop sees it: this process's micro-batches and their loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from genaccel.finetune.batches import padded_batches
from genaccel.finetune.loss import loss_sum

if TYPE_CHECKING:
    from genaccel.finetune.batches import Batch, DataPlan
    from genaccel.finetune.data import TokenizedData
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group


@dataclass(frozen=True)
class LanguageModelling:
    """Next-token prediction on the samples of ``plan``."""

    plan: DataPlan
    group: Group
    micro_batch: int

    def micro_batches(self, step: int) -> Iterator[Batch]:
        """This process's micro-batches of a step."""
        yield from self.plan.micro_batches(step, self.group.rank, self.group.world_size, self.micro_batch)

    def num_targets(self, step: int) -> float:
        """Targets in the step's global batch."""
        return float(self.plan.num_targets_of_step(step))

    def loss_sum(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Cross-entropy summed over the batch's targets, in nats."""
        return loss_sum(model, batch)

    def describe_step(self, step: int) -> str:
        """The examples of a step, counted after records were held out or dropped."""
        return f"training examples {', '.join(str(i + 1) for i in self.plan.examples_of_step(step))}"


@torch.no_grad()
def held_out_loss(engine: Steps, held_out: TokenizedData, micro_batch: int, group: Group) -> float:
    """Mean loss over all targets of ``held_out``, in nats; every process computes its part.

    Under sharding every process must run the model as often as the others: those that run out repeat a batch that
    then counts for nothing.
    """
    batches = padded_batches(held_out, micro_batch)
    rounds = -(-len(batches) // group.world_size)
    loss = targets = 0.0
    for number in range(rounds):
        index = number * group.world_size + group.rank
        batch = batches[min(index, len(batches) - 1)].to(group.device.torch_device())
        with engine.autocast():
            part = float(loss_sum(engine.model, batch))
        if index < len(batches):
            loss += part
            targets += batch.num_targets
    loss, targets = group.sum([loss, targets])
    return loss / targets
