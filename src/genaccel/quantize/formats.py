"""Encode a weight matrix in a number format, and decode it again. Nearest rounding.

An encoded weight is a dict of tensors by suffix, exactly those that are stored: ``weight`` (and ``weight_scale``), or
``weight_packed``, ``weight_scale``, ``weight_minimum`` for 4 bits. All scales are per row (output channel) or finer,
so matrices are worked on in blocks of rows and no more than a block is ever copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from genaccel.errors import UserError
from genaccel.plans import Format

Parts = dict[str, torch.Tensor]

BLOCK_ELEMENTS = 1 << 22
FLOAT_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FP8_DTYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


def encode(weight: torch.Tensor, form: Format, name: str = "weight") -> Parts:
    """The stored tensors of ``weight`` (outputs, inputs), any float dtype, in ``form``.

    Raises ``UserError`` naming ``name`` for values that are not finite, or that ``form`` cannot hold.
    """
    form.check_shape(name, weight.shape)
    blocks = [_encode_block(block.to(torch.float32), form, name) for block in _row_blocks(weight)]
    # Contiguous whatever the order of ``weight``: kernels read rows, and so does the file.
    return {part: torch.cat([b[part] for b in blocks]).contiguous() for part in blocks[0]}


def decode(parts: Parts, form: Format, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The values (outputs, inputs) that ``parts`` stand for, computed in fp32 and given in ``dtype``."""
    if form.kind == "float":
        return parts["weight"].to(dtype)
    if form.scope == "channel":
        return (parts["weight"].to(torch.float32) * parts["weight_scale"]).to(dtype)
    levels = unpack4(parts["weight_packed"]).to(torch.float32)
    grouped = levels.view(levels.shape[0], -1, form.group_size)
    values = grouped * parts["weight_scale"].float().unsqueeze(-1) + parts["weight_minimum"].float().unsqueeze(-1)
    return values.view_as(levels).to(dtype)


def round_to_(weight: torch.Tensor, form: Format, name: str = "weight") -> None:
    """Replace ``weight`` (outputs, inputs) in place by the values that ``form`` would store: fake quantization."""
    form.check_shape(name, weight.shape)
    for block in _row_blocks(weight):
        block.copy_(decode(_encode_block(block.to(torch.float32), form, name), form))


def stored_bytes(parts: Parts) -> int:
    """Bytes of the stored tensors."""
    return sum(t.numel() * t.element_size() for t in parts.values())


def part_shapes(shape: tuple[int, int], form: Format) -> dict[str, tuple[tuple[int, int], torch.dtype]]:
    """Shape and dtype of every stored tensor of a weight of ``shape``, to allocate or to check."""
    rows, columns = shape
    if form.kind == "float":
        return {"weight": (shape, FLOAT_DTYPES[form.name])}
    if form.scope == "channel":
        dtype = torch.int8 if form.kind == "integer" else FP8_DTYPES[form.name]
        return {"weight": (shape, dtype), "weight_scale": ((rows, 1), torch.float32)}
    groups = (rows, columns // form.group_size)
    return {
        "weight_packed": ((rows, columns // 2), torch.uint8),
        "weight_scale": (groups, torch.float16),
        "weight_minimum": (groups, torch.float16),
    }


def _row_blocks(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from torch.split(weight, max(1, BLOCK_ELEMENTS // weight.shape[1]))


def _encode_block(block: torch.Tensor, form: Format, name: str) -> Parts:
    if not torch.isfinite(block).all():
        raise UserError(f"{name} holds weights that are not finite.", "The checkpoint is damaged; fetch it again.")
    return _ENCODERS[form.kind, form.scope](block, form, name)


def _encode_float(block: torch.Tensor, form: Format, name: str) -> Parts:
    dtype = FLOAT_DTYPES[form.name]
    largest = float(block.abs().max())
    if largest > torch.finfo(dtype).max:
        wider = "fp32" if form.name == "bf16" else "bf16"
        raise UserError(f"{name} holds {largest:g}, which {form.name} cannot.", f"Give it {wider} in the plan.")
    return {"weight": block.to(dtype)}


def _encode_int8(block: torch.Tensor, form: Format, name: str) -> Parts:
    scale = _scale(block, 127.0)
    return {"weight": (block / scale).round_().clamp_(-127, 127).to(torch.int8), "weight_scale": scale}


def _encode_fp8(block: torch.Tensor, form: Format, name: str) -> Parts:
    dtype = FP8_DTYPES[form.name]
    limit = torch.finfo(dtype).max
    scale = _scale(block, limit)
    # Clamped first: a quotient just above the limit would become NaN, not the limit.
    return {"weight": (block / scale).clamp_(-limit, limit).to(dtype), "weight_scale": scale}


def _encode_int4(block: torch.Tensor, form: Format, name: str) -> Parts:
    grouped = block.view(block.shape[0], -1, form.group_size)
    lowest, highest = grouped.aminmax(dim=-1, keepdim=True)
    minimum = lowest.to(torch.float16)
    scale = ((highest - lowest) / 15).to(torch.float16)
    if not (torch.isfinite(minimum).all() and torch.isfinite(scale).all()):
        raise UserError(f"{name} holds weights beyond the range of fp16 scales.", "Give it bf16 in the plan.")
    # A group narrower than fp16's smallest step has scale 0 and is its minimum.
    step = torch.where(scale > 0, scale, torch.ones_like(scale)).float()
    levels = ((grouped - minimum.float()) / step).round_().clamp_(0, 15)
    levels = torch.where(scale > 0, levels, torch.zeros_like(levels)).to(torch.uint8).view_as(block)
    return {
        "weight_packed": pack4(levels),
        "weight_scale": scale.squeeze(-1),
        "weight_minimum": minimum.squeeze(-1),
    }


_ENCODERS: dict[tuple[str, str], Callable[[torch.Tensor, Format, str], Parts]] = {
    ("float", "none"): _encode_float,
    ("integer", "channel"): _encode_int8,
    ("scaled_float", "channel"): _encode_fp8,
    ("integer", "group"): _encode_int4,
}


def _scale(block: torch.Tensor, limit: float) -> torch.Tensor:
    """Per-row scale (rows, 1) that maps the largest magnitude to ``limit``; 1 for a row of zeros."""
    scale = block.abs().amax(dim=1, keepdim=True) / limit
    # A row so small that its scale underflows is stored as zeros rather than as 0/0.
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def pack4(levels: torch.Tensor) -> torch.Tensor:
    """(rows, columns) of 0..15 -> (rows, columns/2) bytes; the even column is the low nibble."""
    return levels[:, 0::2] | (levels[:, 1::2] << 4)


def unpack4(packed: torch.Tensor) -> torch.Tensor:
    """The inverse of ``pack4``."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)
