"""Strategy by name -> the file that wraps a model for it, imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn

from genaccel.errors import unknown

if TYPE_CHECKING:
    from genaccel.train.config import TrainConfig
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group

FILES = {"single": "single", "ddp": "ddp", "fsdp": "fsdp", "zero1": "zero3", "zero2": "zero3", "zero3": "zero3"}


def wrap(module: nn.Module, layers: Sequence[nn.Module], config: TrainConfig, group: Group) -> Steps:
    """``module`` wrapped by the run's strategy; ``layers`` are those that sharding treats one by one.

    What was really wrapped is asserted by the strategy itself: there is no silent fallback to another one.
    """
    if config.strategy not in FILES:
        raise unknown("strategy", config.strategy, FILES)
    file = importlib.import_module(f"genaccel.train.{FILES[config.strategy]}")
    engine: Steps = file.wrap(module, layers, config, group)
    return engine
