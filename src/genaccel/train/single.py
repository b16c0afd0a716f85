"""One process, nothing wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from genaccel.train.config import TrainConfig
from genaccel.train.engine import Engine
from genaccel.train.group import Group


def wrap(module: nn.Module, layers: Sequence[nn.Module], config: TrainConfig, group: Group) -> Engine:
    """The model as it is."""
    return Engine(module, module, config, group.device, {"strategy": "single", "wrapped": type(module).__name__})
