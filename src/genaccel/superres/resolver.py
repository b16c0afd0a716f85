"""The super-resolver: a regression mean and a diffusion of what is left, in standardized brightness.

Both networks see the low-resolution map, enlarged. The regression learns the mean; the diffusion learns the residual
around it, divided by its typical size, so that one noise level fits all maps.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from genaccel.errors import UserError
from genaccel.records import structure_strictly
from genaccel.store import RESOLVER_MARK, whole_folder, write_text
from genaccel.superres.maps import Brightness
from genaccel.superres.network import UNet, find_size
from genaccel.superres.process import Noise, find_process

INFO, WEIGHTS = RESOLVER_MARK, "model.safetensors"
KIND = "genaccel superres"


@dataclass(frozen=True)
class ResolverInfo:
    """What a checkpoint is: all that its networks and units follow from."""

    size: str
    process: str
    factor: int
    brightness: Brightness
    trained_areas: tuple[str, ...] = ()
    kind: str = KIND
    schema_version: int = 1


class Resolver(nn.Module):
    """Networks of a ``ResolverInfo``. Maps are [maps, 1, height, width] of standardized brightness."""

    residual_scale: torch.Tensor

    def __init__(self, info: ResolverInfo) -> None:
        super().__init__()
        self.info, self.process = info, find_process(info.process)
        size = find_size(info.size)
        # SR3 draws the map itself; the others draw what the regression left.
        self.draws_residual = info.process != "sr3"
        self.regression = UNet(size, 1, 1)
        self.diffusion = UNet(size, 1, 2)
        self.register_buffer("residual_scale", torch.ones(()))

    def enlarge(self, low: torch.Tensor) -> torch.Tensor:
        """Low resolution to the pixels of high resolution, smoothly."""
        return F.interpolate(low, scale_factor=float(self.info.factor), mode="bicubic", align_corners=False)

    def mean(self, large: torch.Tensor) -> torch.Tensor:
        """The regression's map: the enlarged one and a correction."""
        none = torch.zeros_like(large)
        out: torch.Tensor = large + self.regression(none, large.new_zeros(len(large)), large)
        return out

    def forward(self, low: torch.Tensor, high: torch.Tensor, noise: Noise) -> torch.Tensor:
        """Loss of every map, [maps]: the regression's squared error and the diffusion's, which does not pull the mean."""
        large = self.enlarge(low)
        mean = self.mean(large)
        regression = (mean - high).square().flatten(1).mean(1)
        mean = mean.detach()
        x = (high - mean) / self.residual_scale if self.draws_residual else high
        diffusion = self.process.loss(self.diffusion, x, torch.cat([large, mean], dim=1), noise)
        return regression / self.residual_scale**2 + diffusion

    @torch.no_grad()
    def draw(self, low: torch.Tensor, noise: torch.Tensor, num_steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(a draw for every map, the regression's mean). ``noise`` has the shape of the result, unit variance."""
        large = self.enlarge(low)
        mean = self.mean(large)
        x = self.process.sample(self.diffusion, noise, torch.cat([large, mean], dim=1), num_steps)
        return (mean + x * self.residual_scale if self.draws_residual else x), mean


def save_resolver(folder: Path, resolver: Resolver, weights: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint: ``weights`` by the names of the resolver's state, as safetensors, and what it is, as JSON."""
    from safetensors.torch import save_file

    with whole_folder(folder) as new:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in (resolver.state_dict() | weights).items()}
        save_file(state, new / WEIGHTS)
        write_text(new / INFO, json.dumps(asdict(resolver.info), indent=1, allow_nan=False) + "\n")


def load_resolver(folder: Path) -> Resolver:
    """The resolver in ``folder``; ``UserError`` when it is none, or one of another kind."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / INFO).is_file():
        raise UserError(f"{folder} holds no super-resolution model.", "Train one with 'genaccel superres train'.")
    try:
        data: dict[str, Any] = json.loads((folder / INFO).read_text(encoding="utf-8"))
        info = structure_strictly(ResolverInfo, data, str(folder / INFO))
        resolver = Resolver(info)
        resolver.load_state_dict(load_file(folder / WEIGHTS))
    except (ValueError, OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"The model in {folder} cannot be read: {error}.", "Train or copy it again.") from None
    return resolver.eval()
