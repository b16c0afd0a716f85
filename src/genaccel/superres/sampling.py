"""Super-resolved ensembles of maps of any size: tile by tile, in the map's own units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from genaccel.console import format_bytes
from genaccel.errors import UserError
from genaccel.superres.maps import DustMap
from genaccel.superres.resolver import Resolver

OVERLAP = 8  # low-resolution pixels that neighbouring tiles share, half of them as margin
BATCH = 8  # tiles or members computed at once


@dataclass(frozen=True)
class Ensemble:
    """Draws [members, height, width] and the regression's map, in the input's units; NaN where the input is masked."""

    members: np.ndarray
    regression: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """The ensemble's mean."""
        return np.asarray(self.members.mean(axis=0))

    @property
    def deviation(self) -> np.ndarray:
        """The ensemble's standard deviation: its uncertainty."""
        return np.asarray(self.members.std(axis=0, ddof=1 if len(self.members) > 1 else 0))


def super_resolve(
    resolver: Resolver,
    low: DustMap,
    num_members: int,
    num_steps: int,
    seed: int = 0,
    preserve_flux: bool = True,
    tile: int = 256,
    advance: Callable[[str], None] = lambda _: None,
) -> Ensemble:
    """An ensemble of maps with ``factor`` times the pixels of ``low`` along each side.

    Noise is drawn for the whole map first, so that tiles agree where they overlap; they are blended there. Masked
    pixels are filled with the nearest valid ones for the network only, and are NaN in the result.
    """
    factor, brightness = resolver.info.factor, resolver.info.brightness
    if brightness.kind == "log" and low.values[low.valid].min() <= 0:
        raise UserError(
            f"{low.name} has pixels that are not positive, but the model was trained on the logarithm of flux.",
            "Mask them (NaN), or train on maps that have such pixels: then asinh is used.",
        )
    device = next(resolver.parameters()).device
    bright = torch.from_numpy(brightness.forward(_filled(low))).float()
    height, width = (n * factor for n in low.shape)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn((num_members, height, width), generator=generator)
    draws = torch.zeros(num_members, height, width)
    mean, weight = torch.zeros(height, width), torch.zeros(height, width)
    for rows, row_window in _tiles(low.shape[0], tile // factor):
        for columns, column_window in _tiles(low.shape[1], tile // factor):
            window = _enlarged(row_window, factor)[:, None] * _enlarged(column_window, factor)[None, :]
            here = slice(rows.start * factor, rows.stop * factor), slice(columns.start * factor, columns.stop * factor)
            for start in range(0, num_members, BATCH):
                some = slice(start, min(start + BATCH, num_members))
                part = bright[rows, columns].expand(some.stop - some.start, 1, -1, -1).to(device)
                drawn, regressed = resolver.draw(part, noise[some][:, None, *here].to(device), num_steps)
                draws[some][:, *here] += drawn[:, 0].cpu() * window
            mean[here] += regressed[0, 0].cpu() * window
            weight[here] += window
            advance("")
    members = brightness.backward((draws / weight).double().numpy())
    regression = brightness.backward((mean / weight).double().numpy())
    if preserve_flux:
        members = np.stack([with_flux_of(low, m, factor, brightness.kind) for m in members])
        regression = with_flux_of(low, regression, factor, brightness.kind)
    masked = ~np.repeat(np.repeat(low.valid, factor, axis=0), factor, axis=1)
    members[:, masked], regression[masked] = np.nan, np.nan
    return Ensemble(members, regression)


def check_memory(
    resolver: Resolver, shape: tuple[int, int], num_members: int, tile: int, available: int | None
) -> None:
    """Refuse what would not fit: the ensemble of the whole map, and the network's activations of the tiles computed at once."""
    factor = resolver.info.factor
    height, width = (n * factor for n in shape)
    # Noise, draws and flux in double precision, once before and once after flux is preserved.
    whole = height * width * num_members * (4 + 4 + 8 + 8)
    pixels = min(tile, height) * min(tile, width) * min(BATCH, num_members)
    tiles = pixels * resolver.bytes_per_pixel
    if available is None or whole + tiles <= available:
        return
    asked = f"{format_bytes(whole + tiles)} would be needed (predicted), but {format_bytes(available)} are available."
    if whole > available / 2:
        raise UserError(
            f"{num_members} members of {height} x {width} pixels do not fit: {asked}",
            "Ask for fewer --members, or cut the map into parts.",
        )
    smaller = max(32, int((available - whole) / resolver.bytes_per_pixel / min(BATCH, num_members)) ** 0.5 // 32 * 32)
    raise UserError(f"Tiles of {tile} pixels do not fit: {asked}", f"Use --tile {smaller:.0f}.")


def _filled(low: DustMap) -> np.ndarray:
    """Values with masked pixels replaced by the nearest valid one, for the network to look at."""
    if low.valid.all():
        return low.values
    from scipy.ndimage import distance_transform_edt

    _, nearest = distance_transform_edt(~low.valid, return_indices=True)
    return np.asarray(low.values[tuple(nearest)])


def _tiles(length: int, side: int) -> list[tuple[slice, torch.Tensor]]:
    """(pixels, weight of each) of tiles of at most ``side`` pixels that overlap; weights rise linearly over an overlap."""
    if length <= side:
        return [(slice(0, length), torch.ones(length))]
    side = max(side, 2 * OVERLAP)
    number = -(-(length - OVERLAP) // (side - OVERLAP))
    starts = np.linspace(0, length - side, number).round().astype(int).tolist()
    found = []
    for start in starts:
        weights = torch.ones(side)
        # The outer half of the overlap has seen an edge that is not there, and counts for nothing.
        ramp = torch.cat(
            [torch.zeros(OVERLAP // 4), torch.linspace(0, 1, OVERLAP // 2 + 2)[1:-1], torch.ones(OVERLAP // 4)]
        )
        if start > 0:
            weights[:OVERLAP] = ramp
        if start + side < length:
            weights[-OVERLAP:] = ramp.flip(0)
        found.append((slice(start, start + side), weights))
    return found


def _enlarged(weights: torch.Tensor, factor: int) -> torch.Tensor:
    return weights.repeat_interleave(factor)


def with_flux_of(low: DustMap, high: np.ndarray, factor: int, kind: str) -> np.ndarray:
    """``high`` with the mean of every block made that of its low-resolution pixel: scaled where flux is positive, else
    shifted. Blocks of masked pixels are left as they are."""
    height, width = low.shape
    blocks = high.reshape(height, factor, width, factor)
    means = blocks.mean(axis=(1, 3), keepdims=True)
    wanted = np.where(low.valid, low.values, np.nan)[:, None, :, None]
    corrected = blocks * (wanted / means) if kind == "log" else blocks + (wanted - means)
    return np.where(np.isfinite(corrected), corrected, blocks).reshape(high.shape)
