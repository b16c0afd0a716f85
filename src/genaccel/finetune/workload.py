"""Language modelling as the training loop sees it: this process's micro-batches and their loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from genaccel.finetune.batches import Batch, DataPlan
    from genaccel.train.group import Group


@dataclass(frozen=True)
class LanguageModelling:
    """Next-token prediction on the samples of ``plan``."""

    plan: DataPlan
    group: Group
    micro_batch: int

    def micro_batches(self, step: int) -> Iterator[Batch]:
        """This process's micro-batches of a step."""
        for samples in self.plan.for_rank(step, self.group.rank, self.group.world_size, self.micro_batch):
            yield self.plan.batch(samples)

    def num_targets(self, step: int) -> float:
        """Targets in the step's global batch."""
        return float(self.plan.num_targets_of_step(step))

    def loss_sum(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Cross-entropy summed over the batch's targets, in nats."""
        return loss_sum(model, batch)

    def describe_step(self, step: int) -> str:
        """The samples of a step."""
        return f"samples {', '.join(map(str, self.plan.samples_of_step(step)))}"


def loss_sum(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross-entropy summed over the targets of ``batch``, in nats, a scalar in fp32.

    Logits are computed only where some row has a target: the vocabulary is the widest layer of a small model.
    """
    wanted = (batch.targets >= 0).any(dim=0).nonzero()[:, 0]
    more: dict[str, Any] = {} if batch.document_lengths is None else {"document_lengths": batch.document_lengths}
    logits = model(
        input_ids=batch.input_ids, position_ids=batch.position_ids, logits_to_keep=wanted, use_cache=False, **more
    ).logits
    targets = batch.targets[:, wanted]
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
