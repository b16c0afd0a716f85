"""What a model's kernels reach beside square products: attention, convolutions, what is between them, weights that one token
reads, their start.

All in fp32, which every device computes in, forward and backward where a training step has both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genaccel.measure import Samples, repeat
from genaccel.probe import Found

if TYPE_CHECKING:
    import torch

    from genaccel.devices import Device

HEADS, LENGTH, HEAD_DIM = 8, 512, 64
CHANNELS, SIDE, IMAGES = 64, 32, 16
WIDTH, FEW, MORE = 1024, 4, 32
TOKENS, HIDDEN, MLP = 512, 768, 2048
STARTS = 500


def kernel_figures(device: Device, weights_bytes: int) -> list[Found]:
    """FLOP/s of causal attention and of a convolution, bytes per second between products and of weights, seconds of a start.

    ``weights_bytes`` are more than any cache holds.
    """
    place = device.torch_device()
    starts = repeat(_starts(place), device).map(lambda seconds: seconds / STARTS)
    return [
        _rate("attention_fp32", device, _attention(place), f"causal, {HEADS} heads of {HEAD_DIM}, {LENGTH} tokens"),
        _rate("convolution_fp32", device, _convolution(place), f"3x3, {CHANNELS} channels, {IMAGES} x {SIDE}^2"),
        *_between(device),
        *_weights(device, weights_bytes),
        Found("kernel_start", starts.median, "s", starts, f"an addition of 8 numbers, {STARTS} in a row"),
    ]


def _rate(name: str, device: Device, kernel: tuple[Callable[[], object], float], about: str) -> Found:
    run, flops = kernel
    samples = repeat(run, device, num_repeats=7)
    return Found(name, flops / samples.median, "FLOP/s", samples, f"{about}, both ways")


def _attention(place: torch.device) -> tuple[Callable[[], object], float]:
    """Scores and weighted values of a causal half: 4 d FLOPs a pair forward, two and a half times that backward."""
    import torch
    import torch.nn.functional as F

    q, k, v = (torch.randn(1, HEADS, LENGTH, HEAD_DIM, device=place, requires_grad=True) for _ in range(3))
    ones = torch.ones_like(q)

    def run() -> object:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(out, (q, k, v), ones)

    return run, 3.5 * 4 * HEADS * HEAD_DIM * LENGTH * (LENGTH + 1) / 2


def _convolution(place: torch.device) -> tuple[Callable[[], object], float]:
    import torch

    layer = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1).to(place)
    x = torch.randn(IMAGES, CHANNELS, SIDE, SIDE, device=place, requires_grad=True)
    parameters = (x, *layer.parameters())
    ones = torch.ones_like(layer(x))
    return lambda: torch.autograd.grad(layer(x), parameters, ones), 3.0 * 2 * 9 * CHANNELS**2 * SIDE**2 * IMAGES


def _between(device: Device) -> list[Found]:
    """Norms, rotation, activations and sums of a decoder layer, forward and both ways, as bytes per second.

    The bytes are what the time models count: 14 hidden and 6 MLP rows a token forward, 22 and 8 both ways. Most of it stays in
    caches and some of it computes, so that it is no share of the memory's bandwidth which another processor would have, too.
    """
    import torch
    import torch.nn.functional as F

    place = device.torch_device()
    x, cosine, sine = (torch.randn(TOKENS, HIDDEN, device=place) for _ in range(3))
    gate, up = (torch.randn(TOKENS, MLP, device=place) for _ in range(2))
    gain = torch.ones(HIDDEN, device=place)
    trained = (x, gate, up, gain)
    ones = (torch.ones_like(x), torch.ones_like(gate))

    def norm(x: torch.Tensor) -> torch.Tensor:
        return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def forward() -> tuple[torch.Tensor, torch.Tensor]:
        first = norm(x)
        half = first.chunk(2, dim=-1)
        rotated = first * cosine + torch.cat((-half[1], half[0]), dim=-1) * sine
        summed = x + rotated
        return summed + norm(summed), F.silu(gate) * up

    def found(name: str, run: Callable[[], object], rows: int, mlp_rows: int) -> Found:
        samples = repeat(run, device, num_repeats=15)
        moved = 4.0 * TOKENS * (rows * HIDDEN + mlp_rows * MLP)
        return Found(name, moved / samples.median, "B/s", samples, f"{TOKENS} tokens of {HIDDEN} and {MLP}, fp32")

    alone = found("elementwise", forward, 14, 6)
    for tensor in trained:
        tensor.requires_grad_()
    return [alone, found("elementwise_both", lambda: torch.autograd.grad(forward(), trained, ones), 22, 8)]


def _weights(device: Device, num_bytes: int) -> list[Found]:
    """How fast weights are read that one token is multiplied with, and those that a few are.

    Products with several rows copy a matrix into the order that they compute in; what that takes does not depend on the
    rows, and is what is left of the time of few and of more when their arithmetic is taken away.
    """
    import torch
    import torch.nn.functional as F

    place = device.torch_device()
    matrices = [torch.ones(WIDTH, WIDTH, device=place) for _ in range(max(1, num_bytes // (4 * WIDTH**2)))]
    total = 4 * WIDTH**2 * len(matrices)

    def measured(rows: int) -> Samples:
        tokens = torch.ones(rows, WIDTH, device=place)
        return repeat(lambda: [F.linear(tokens, matrix) for matrix in matrices], device)

    one, few, more = measured(1), measured(FEW), measured(MORE)
    left = few.median - FEW * (more.median - few.median) / (MORE - FEW)
    left = min(few.median, max(left, few.median / 4))
    about = f"{len(matrices)} matrices of {WIDTH}^2"
    return [
        Found("weights_read", total / one.median, "B/s", one, f"by one token; {about}"),
        Found("weights_packed", total / left, "B/s", few, f"by {FEW} tokens, less their arithmetic; {about}"),
    ]


def _starts(place: torch.device) -> Callable[[], None]:
    import torch

    x = torch.ones(8, device=place)

    def run() -> None:
        for _ in range(STARTS):
            torch.add(x, x)

    return run
