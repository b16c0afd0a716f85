"""A running mean of the weights (EMA), which diffusion models sample with; part of the checkpoint."""

from __future__ import annotations

import torch
from torch import nn

from genaccel.train.engine import trained, whole


class Average:
    """The exponential moving average of a module's trained parameters, sharded as they are.

    Early on the decay is lower, (1 + updates) / (10 + updates), so that the first random weights are soon forgotten.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        """The mean begins at the weights as they are."""
        self.module, self.decay, self.updates = module, decay, 0
        self.mean = {name: p.detach().clone() for name, p in trained(module).items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after one more step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        for name, parameter in trained(self.module).items():
            self.mean[name].lerp_(parameter.detach(), 1 - decay)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The mean itself, by the names of a checkpoint."""
        return {f"average.{name}": tensor for name, tensor in self.mean.items()}

    def whole_weights(self) -> dict[str, torch.Tensor]:
        """The mean on the host, gathered where it is sharded; all processes must ask together."""
        return {name: whole(tensor).cpu() for name, tensor in self.mean.items()}
