"""The ways to multiply by an encoded weight, each checked against a reference and the fastest picked by timing.

Nothing is assumed about a kernel: whether it is right depends on the instruction set (int8 saturates on AVX2 without
VNNI in some libraries), whether it is fast on the shapes (bf16 is quick with AMX and 15 times slower than fp32 without).
So each candidate is first run on extreme values beside fp64, then timed for one, few and many rows of activations.
The choice, and why others were left out, goes into the record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from genaccel.measure import median_seconds
from genaccel.plans import Format
from genaccel.quantize.formats import Parts, decode, encode

if TYPE_CHECKING:
    from genaccel.devices import Device

Multiply = Callable[[torch.Tensor, Parts, Format], torch.Tensor]

# Row counts at which kernels are timed; up to the bound, that choice is used.
ROW_CLASSES = ((1, 4), (16, 64), (256, 1 << 62))
CHUNK_ELEMENTS = 1 << 21  # decoded at a time: 8 MiB in fp32, fits a last-level cache
TIMING_BUDGET_SECONDS = 0.02
# A decoding step meets every weight once, so kernels are timed over copies that do not all stay in a core's cache.
TIMED_BYTES, MAX_COPIES = 1 << 25, 32
CLEARLY_FASTER = 0.85  # a later candidate must take at most this share of the time, so noise does not flip the choice


@dataclass(frozen=True)
class Kernel:
    """y = x W^T for x (rows, inputs) of any float dtype and an encoded W; y comes back in x's dtype.

    ``tolerance`` bounds |y - reference| / (|x| |W|^T) for every element on extreme values: rounding stays far below it
    whatever cancels in the sum, while an accumulator that overflows or saturates does not. ``largest_activation`` is the
    extreme that it is tried with: fp16 cannot hold larger outputs, here as on any device.
    """

    name: str
    multiply: Multiply
    devices: tuple[str, ...]
    accepts: Callable[[Format], bool]
    tolerance: float
    largest_activation: float = 127.0


def _dequantize(dtype: torch.dtype) -> Multiply:
    def multiply(x: torch.Tensor, parts: Parts, form: Format) -> torch.Tensor:
        """Decode a chunk of output channels, multiply, go on: right for every format, on every device."""
        x_cast = x.to(dtype)
        num_outputs = next(iter(parts.values())).shape[0]
        rows = max(1, CHUNK_ELEMENTS // x.shape[1])
        if rows >= num_outputs:
            return F.linear(x_cast, decode(parts, form, dtype)).to(x.dtype)
        y = x.new_empty(x.shape[0], num_outputs)
        for start in range(0, num_outputs, rows):
            chunk = {name: part[start : start + rows] for name, part in parts.items()}
            y[:, start : start + rows] = F.linear(x_cast, decode(chunk, form, dtype))
        return y

    return multiply


def _native(x: torch.Tensor, parts: Parts, form: Format) -> torch.Tensor:
    """The stored floats as they are."""
    weight = parts["weight"]
    return F.linear(x.to(weight.dtype), weight).to(x.dtype)


def _matvec(x: torch.Tensor, parts: Parts, form: Format) -> torch.Tensor:
    """A matrix-vector product for a single row, which some libraries do better than a one-row matrix product."""
    weight = parts["weight"]
    if x.shape[0] != 1:
        return _native(x, parts, form)
    return torch.mv(weight, x[0].to(weight.dtype)).to(x.dtype)[None]


def _int8pack(x: torch.Tensor, parts: Parts, form: Format) -> torch.Tensor:
    """torch's weight-only int8 product: bf16 activations and scales, int8 weights, fp32 accumulation."""
    scale = parts["weight_scale"].view(-1).to(torch.bfloat16)
    return torch._weight_int8pack_mm(x.to(torch.bfloat16), parts["weight"], scale).to(x.dtype)


# In order of preference when two are equally fast: fewest roundings first.
KERNELS: tuple[Kernel, ...] = (
    Kernel("native_fp32", _native, ("cpu", "cuda", "hpu"), lambda f: f.name == "fp32", 1e-5),
    Kernel("dequantize_fp32", _dequantize(torch.float32), ("cpu", "cuda", "hpu"), lambda f: f.name != "fp32", 1e-5),
    Kernel("native_fp16", _native, ("cpu", "cuda"), lambda f: f.name == "fp16", 2**-9, largest_activation=1.0),
    Kernel("native_bf16", _native, ("cpu", "cuda", "hpu"), lambda f: f.name == "bf16", 2**-7),
    Kernel("matvec_bf16", _matvec, ("cpu",), lambda f: f.name == "bf16", 2**-7),
    Kernel("dequantize_bf16", _dequantize(torch.bfloat16), ("cpu", "cuda", "hpu"), lambda f: f.bits <= 8, 2**-7),
    Kernel("int8pack_bf16", _int8pack, ("cpu", "cuda"), lambda f: f.name == "int8", 2**-7),
)
BY_NAME = {k.name: k for k in KERNELS}


@dataclass(frozen=True)
class Choice:
    """Kernels for one, few and many rows, and why: times in seconds by kernel, reasons for those left out."""

    kernels: tuple[str, ...]
    seconds: dict[str, tuple[float, ...]]
    left_out: dict[str, str]


def pick(parts: Parts, form: Format, num_inputs: int, device: Device) -> Choice:
    """Check and time every kernel that fits ``form`` on ``device``; the fastest for each class of row counts.

    Timed on ``parts`` themselves, so layers of one shape and format need one call.
    """
    left_out: dict[str, str] = {}
    able = []
    for kernel in KERNELS:
        if not kernel.accepts(form):
            continue
        if device.NAME not in kernel.devices:
            left_out[kernel.name] = f"not for {device.NAME}"
            continue
        reason = check(kernel, form, next(iter(parts.values())).device)
        if reason is None:
            able.append(kernel)
        else:
            left_out[kernel.name] = reason
    copies = _copies(parts)
    seconds = {
        k.name: tuple(_seconds(k, copies, form, rows, num_inputs, device) for rows, _ in ROW_CLASSES) for k in able
    }
    return Choice(tuple(_fastest(seconds, i) for i in range(len(ROW_CLASSES))), seconds, left_out)


def _copies(parts: Parts) -> list[Parts]:
    size = sum(p.numel() * p.element_size() for p in parts.values())
    count = min(MAX_COPIES, max(1, TIMED_BYTES // size))
    return [parts, *({n: p.clone() for n, p in parts.items()} for _ in range(count - 1))]


def _seconds(kernel: Kernel, copies: list[Parts], form: Format, rows: int, num_inputs: int, device: Device) -> float:
    x = torch.randn(rows, num_inputs, device=next(iter(copies[0].values())).device)
    turn = itertools.cycle(copies)
    return median_seconds(lambda: kernel.multiply(x, next(turn), form), device, budget_seconds=TIMING_BUDGET_SECONDS)


def _fastest(seconds: dict[str, tuple[float, ...]], row_class: int) -> str:
    best = ""
    for name, times in seconds.items():  # in KERNELS' order of preference
        if not best or times[row_class] < CLEARLY_FASTER * seconds[best][row_class]:
            best = name
    return best


def check(kernel: Kernel, form: Format, place: torch.device) -> str | None:
    """None when ``kernel`` agrees with an fp64 product on extreme values, otherwise what went wrong.

    Rows of all-largest weights against all-largest activations make partial sums that overflow narrow accumulators;
    alternating signs, zeros and ordinary values are beside them.
    """
    num_inputs = 256
    generator = torch.Generator().manual_seed(0)
    signs = torch.ones(num_inputs)
    signs[1::2] = -1
    limit = 127.0
    weight = torch.stack(
        [torch.full((num_inputs,), limit), -torch.full((num_inputs,), limit), limit * signs, torch.zeros(num_inputs)]
    )
    weight = torch.cat([weight, torch.randn(28, num_inputs, generator=generator)])
    largest = kernel.largest_activation
    x = torch.stack([torch.full((num_inputs,), largest), largest * signs, torch.zeros(num_inputs)])
    x = torch.cat([x, torch.randn(14, num_inputs, generator=generator)])
    parts = {name: part.to(place) for name, part in encode(weight, form).items()}
    decoded = decode({n: p.cpu() for n, p in parts.items()}, form).double()
    reference, magnitude = x.double() @ decoded.t(), x.double().abs() @ decoded.abs().t()
    for rows in (1, len(x)):
        try:
            y = kernel.multiply(x[:rows].to(place), parts, form).cpu().double()
        except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
            return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        worst = float(((y - reference[:rows]).abs() / magnitude[:rows].clamp_min(1e-6)).max())
        if not worst <= kernel.tolerance:
            return f"wrong on extreme values: relative error {worst:.2g} with {rows} rows"
    return None
