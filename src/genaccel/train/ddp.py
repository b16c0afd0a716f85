"""DistributedDataParallel: every process holds the whole model; gradients are averaged in buckets during backward."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from genaccel.train.config import TrainConfig
from genaccel.train.engine import Engine, trained
from genaccel.train.group import Group


def wrap(module: nn.Module, layers: Sequence[nn.Module], config: TrainConfig, group: Group) -> Engine:
    """DDP over all processes; under accumulation gradients stay at home until the last micro-batch."""
    target = group.device.torch_device()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has another name in the newest torch
        wrapped = DistributedDataParallel(
            module,
            device_ids=[target] if target.type == "cuda" else None,
            bucket_cap_mb=config.bucket_mb,
            gradient_as_bucket_view=True,
            # Constants such as rotary frequencies are the same everywhere and do not change.
            broadcast_buffers=False,
        )
    assert not any("DTensor" in type(p).__name__ for p in module.parameters()), "DDP's weights are whole"
    about = {
        "strategy": "ddp",
        "wrapped": type(wrapped).__name__,
        "bucket_mb": config.bucket_mb,
        "exchanged_parameters": sum(p.numel() for p in trained(module).values()),
    }
    return Engine(wrapped, module, config, group.device, about, hold=wrapped.no_sync)
