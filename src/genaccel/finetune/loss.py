"""The loss of a language model on a micro-batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

if TYPE_CHECKING:
    from genaccel.finetune.batches import Batch


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
