"""The spectrum of draws, made that of the maps: a gain for every ring of wavenumbers, measured once a model is trained.

A network that has not learned small scales fully draws them too weakly, and so do few steps. Draws of training patches tell by how
much; a short filter makes up for it in every draw. It works on the residual in units of its size, where rough and smooth
patches count alike: in brightness a few rough ones decide. Rings are of equal width, from 0 to 0.5 cycles per pixel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from genaccel.superres.resolver import Resolver

NUM_RINGS = 8
TAPS = 13
BOUNDS = 0.5, 2.0
"""A filter makes up for a few dozen per cent; what is further off is another fault."""

NUM_PATCHES, AT_ONCE = 256, 16


@torch.no_grad()
def calibrate(resolver: Resolver, low: torch.Tensor, high: torch.Tensor, seed: int, num_steps: int) -> None:
    """Set the resolver's gains by draws of ``num_steps`` for patches ``low`` and ``high``, [maps, 1, height, width]."""
    device, generator = resolver.gains.device, torch.Generator().manual_seed(seed)
    drawn, wanted = [], []
    for part, truth in zip(torch.split(low, AT_ONCE), torch.split(high, AT_ONCE), strict=True):
        noise = torch.randn(truth.shape, generator=generator)
        x, mean, scale = resolver.draw_residual(resolver.enlarge(part.to(device)), noise.to(device), num_steps)
        drawn.append(x.cpu())
        wanted.append((truth - mean.cpu()) / scale.cpu())
    resolver.gains.copy_(gains_of(torch.cat(drawn), torch.cat(wanted)))


def ring_powers(maps: torch.Tensor) -> torch.Tensor:
    """Mean power of [maps, 1, height, width] in every ring, [rings], under a Hann window that keeps edges out.

    Small maps have rings without a mode, whose power is NaN.
    """
    height, width = maps.shape[-2:]
    window = torch.outer(torch.hann_window(height, False), torch.hann_window(width, False)).to(maps)
    power = torch.fft.fft2(maps * window).abs().square().mean(dim=(0, 1))
    ring = (_wavenumbers(height, width) * 2 * NUM_RINGS).long()
    return torch.stack([power[ring == i].mean() for i in range(NUM_RINGS)])


def gains_of(drawn: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What amplitudes of ``drawn`` are to be multiplied by to have the power of ``wanted``; maps as in ``ring_powers``."""
    gains = (ring_powers(wanted) / ring_powers(drawn).clamp_min(1e-30)).sqrt().clamp(*BOUNDS)
    return gains.nan_to_num(1.0)


def filtered(maps: torch.Tensor, gains: torch.Tensor) -> torch.Tensor:
    """[maps, 1, height, width] with amplitudes multiplied by ``gains``, which go over into each other; edges are repeated."""
    kernel = _kernel(gains)
    return F.conv2d(F.pad(maps, [TAPS // 2] * 4, mode="replicate"), kernel.to(maps))


def _kernel(gains: torch.Tensor) -> torch.Tensor:
    """The filter in pixels, [1, 1, taps, taps]: the response between rings' centres in straight lines, cut by a Hann window."""
    side = 64
    place = (_wavenumbers(side, side) * 2 * NUM_RINGS - 0.5).clamp(0, NUM_RINGS - 1)
    known = gains.detach().double().cpu()
    below = place.long().clamp_max(NUM_RINGS - 2)
    response = known[below] + (place - below) * (known[below + 1] - known[below])
    kernel = torch.fft.fftshift(torch.fft.ifft2(response).real)
    part = slice(side // 2 - TAPS // 2, side // 2 + TAPS // 2 + 1)
    window = torch.hann_window(TAPS + 2, False, dtype=torch.float64)[1:-1]
    cut: torch.Tensor = kernel[part, part] * torch.outer(window, window)
    return cut[None, None]


def _wavenumbers(height: int, width: int) -> torch.Tensor:
    """Cycles per pixel of every Fourier mode, [height, width]."""
    return torch.hypot(torch.fft.fftfreq(height)[:, None], torch.fft.fftfreq(width)[None, :]).double()
