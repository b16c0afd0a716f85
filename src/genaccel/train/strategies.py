"""Strategy by name -> the file that wraps a model for it, imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from genaccel.errors import unknown

if TYPE_CHECKING:
    from genaccel.train.config import TrainConfig
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group

FILES = {"single": "single", "ddp": "ddp", "fsdp": "fsdp", "zero1": "zero3", "zero2": "zero3", "zero3": "zero3"}


STREAMED = ("fsdp", "zero3")
"""Strategies that wrap a module without memory and fill it shard by shard."""


def wrap(
    module: nn.Module,
    layers: Sequence[nn.Module],
    config: TrainConfig,
    group: Group,
    fill: Callable[[str], torch.Tensor] | None = None,
) -> Steps:
    """``module`` wrapped by the run's strategy; ``layers`` are those that sharding treats one by one.

    ``fill`` gives the weights, by name, of a module that has no memory yet; only for the strategies in ``STREAMED``.
    What was really wrapped is asserted by the strategy itself: there is no silent fallback to another one.
    """
    if config.strategy not in FILES:
        raise unknown("strategy", config.strategy, FILES)
    file = importlib.import_module(f"genaccel.train.{FILES[config.strategy]}")
    more = () if fill is None else (fill,)
    engine: Steps = file.wrap(module, layers, config, group, *more)
    return engine
