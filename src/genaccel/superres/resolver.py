"""The super-resolver: a regression mean and a diffusion of what is left, in standardized brightness.

Both networks see the low-resolution map, enlarged. The regression learns the mean, and how large the residual around it is
at every pixel; the diffusion learns the residual divided by that, so that one noise level fits smooth and rough places. SR3,
the classical baseline, has no regression: its one network draws the map itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from genaccel.errors import UserError
from genaccel.records import structure_strictly
from genaccel.store import RESOLVER_MARK, whole_folder, write_text
from genaccel.superres.calibration import NUM_RINGS, filtered
from genaccel.superres.maps import Brightness
from genaccel.superres.network import UNet, find_size
from genaccel.superres.process import Noise, find_process
from genaccel.train.probing import Arithmetic

INFO, WEIGHTS = RESOLVER_MARK, "model.safetensors"
KIND = "genaccel superres"
LAYOUT = 4  # 1 had no local scale, 2 did not show it to the diffusion, 3 had no gains
LOG_BOUNDS = math.log(0.01), math.log(10.0)  # of the local scale over the residual's typical size


@dataclass(frozen=True)
class ResolverInfo:
    """What a checkpoint is: all that its networks and units follow from."""

    size: str
    process: str
    factor: int
    brightness: Brightness
    trained_areas: tuple[str, ...] = ()
    kind: str = KIND
    schema_version: int = LAYOUT


class Resolver(nn.Module):
    """Networks of a ``ResolverInfo``. Maps are [maps, 1, height, width] of standardized brightness."""

    residual_scale: torch.Tensor
    gains: torch.Tensor

    def __init__(self, info: ResolverInfo) -> None:
        super().__init__()
        self.info, self.process = info, find_process(info.process)
        size = find_size(info.size)
        self.regression = None if info.process == "sr3" else UNet(size, num_inputs=2, num_outputs=2)
        self.diffusion = UNet(size, num_inputs=2 if self.regression is None else 4, num_outputs=1)
        self.register_buffer("residual_scale", torch.ones(()))
        self.register_buffer("gains", torch.ones(NUM_RINGS))  # ``calibration.calibrate`` sets them

    def enlarge(self, low: torch.Tensor) -> torch.Tensor:
        """Low resolution to the pixels of high resolution, smoothly."""
        return F.interpolate(low, scale_factor=float(self.info.factor), mode="bicubic", align_corners=False)

    def regress(self, large: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the mean: the enlarged map and a correction, the typical size of what is left, pixel by pixel)."""
        if self.regression is None:
            return large, torch.ones_like(large)
        correction, size = self.regression(torch.zeros_like(large), large.new_zeros(len(large)), large).chunk(2, dim=1)
        return large + correction, self.residual_scale * size.clamp(*LOG_BOUNDS).exp()

    def condition(self, large: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """What the diffusion is given: the mean, the detail that the regression added in units of the scale, and the scale."""
        return torch.cat([mean, (mean - large) / scale, (scale / self.residual_scale).log()], dim=1)

    def forward(self, low: torch.Tensor, high: torch.Tensor, noise: Noise) -> torch.Tensor:
        """Loss of every map, [maps]: the mean's squared error, the scale's likelihood, and the diffusion's squared error.

        The scale's loss takes the mean as given, and the diffusion's takes both, though mean and scale share a network.
        """
        large = self.enlarge(low)
        if self.regression is None:
            return self.process.loss(self.diffusion, high, large, noise)
        mean, scale = self.regress(large)
        error, size = (high - mean) / self.residual_scale, scale / self.residual_scale
        likelihood = (error.detach() / size).square() / 2 + size.log()  # of a normal residual (Nix and Weigend 1994)
        regression = (error.square() + likelihood).flatten(1).mean(1)
        mean, scale = mean.detach(), scale.detach()
        c = self.condition(large, mean, scale)
        return regression + self.process.loss(self.diffusion, (high - mean) / scale, c, noise)

    @torch.no_grad()
    def draw(self, low: torch.Tensor, noise: torch.Tensor, num_steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(a draw for every map, the regression's mean). ``noise`` has the shape of the result, unit variance."""
        large = self.enlarge(low)
        if self.regression is None:
            return self.process.sample(self.diffusion, noise, large, num_steps), large
        x, mean, scale = self.draw_residual(large, noise, num_steps)
        return mean + scale * filtered(x, self.gains), mean

    @torch.no_grad()
    def draw_residual(
        self, large: torch.Tensor, noise: torch.Tensor, num_steps: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(what is left around the mean, in units of its size and as the diffusion draws it; the mean; the size)."""
        mean, scale = self.regress(large)
        x = self.process.sample(self.diffusion, noise, self.condition(large, mean, scale), num_steps)
        return x, mean, scale

    @property
    def bytes_per_pixel(self) -> float:
        """Memory that drawing takes for every pixel of a tile, roughly: what the finest level keeps and works with."""
        return 4 * 8 * float(max(c / 4**level for level, c in enumerate(find_size(self.info.size).channels, start=1)))

    def compute_with(self, arithmetic: Arithmetic) -> None:
        """Lay the networks out in memory, and compile them, as ``arithmetic`` says; the names of weights stay."""
        layout = torch.channels_last if arithmetic.channels_last else torch.contiguous_format
        self.to(memory_format=layout)  # type: ignore[call-overload]
        for network in (self.regression, self.diffusion):
            if arithmetic.compiled and network is not None:
                network.compile()


def save_resolver(folder: Path, resolver: Resolver) -> None:
    """Write a checkpoint: the resolver's state as safetensors, and what it is, as JSON."""
    from safetensors.torch import save_file

    with whole_folder(folder) as new:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in resolver.state_dict().items()}
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
        if info.schema_version != LAYOUT:
            raise ValueError(f"its networks are of layout {info.schema_version}, and this version has {LAYOUT}")
        resolver = Resolver(info)
        resolver.load_state_dict(load_file(folder / WEIGHTS))
    except (ValueError, OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"The model in {folder} cannot be read: {error}.", "Train or copy it again.") from None
    return resolver.eval()
