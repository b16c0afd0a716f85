"""One attention function for every model of transformers, kernel and kind of batch.

Documents attend to themselves only. A packed row is cut at its documents and each runs through
``scaled_dot_product_attention`` with ``is_causal``: exact, with no mask of quadratic size, and open to every kernel. A
padded row needs no mask either: padding is on the right, where a causal model never looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from genaccel.errors import UserError

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.train.config import Attention

NAME = "genaccel"
KERNELS: tuple[Attention, ...] = ("flash", "memory-efficient", "math")
_forced: Attention = "auto"
"""What ``forced`` asks for: Gaudi's flash attention is no backend of torch's and must be called by name."""


def use(model: Any) -> None:
    """Have a transformers model compute attention by ``attend``; ``UserError`` when its architecture cannot."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend)
    try:
        model.set_attn_implementation(NAME)
    except (ValueError, KeyError) as error:
        raise UserError(
            f"{type(model).__name__} does not let its attention be chosen: {error}.",
            "Use a decoder LM of transformers 5.",
        ) from None


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    document_lengths: tuple[int, ...] | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of [rows, heads, length, head_dim] queries; returns [rows, length, heads, head_dim].

    ``document_lengths`` are those of a single packed row; without them every row is one document.
    """
    assert attention_mask is None, "a mask was made, though documents and causality are known here"
    if document_lengths is None or len(document_lengths) == 1:
        parts = [_document(query, key, value, scaling, dropout, softcap, sliding_window)]
    else:
        queries, keys, values = (torch.split(t, list(document_lengths), dim=2) for t in (query, key, value))
        parts = [
            _document(q, k, v, scaling, dropout, softcap, sliding_window)
            for q, k, v in zip(queries, keys, values, strict=True)
        ]
    joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
    return joined.transpose(1, 2).contiguous(), None


def _document(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    dropout: float,
    softcap: float | None,
    window: int | None,
) -> torch.Tensor:
    length = query.shape[2]
    grouped = query.shape[1] != key.shape[1]
    if softcap is not None:
        return _softcapped(query, key, value, scaling, softcap, window)
    if window is not None and length > window:
        mask = _window_mask(length, window, query.device)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scaling, enable_gqa=grouped)
    if query.device.type == "hpu" and _forced == "flash":
        from genaccel.devices import hpu

        return hpu.fused_attention(query, key, value, scaling, dropout)
    return F.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, is_causal=length > 1, scale=scaling, enable_gqa=grouped
    )


def _window_mask(length: int, window: int, device: torch.device) -> torch.Tensor:
    """[length, length], True where a query looks: itself and the ``window`` - 1 tokens before."""
    ones = torch.ones(length, length, dtype=torch.bool, device=device)
    return ones.tril().triu(1 - window)


def _softcapped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scaling: float | None,
    softcap: float,
    window: int | None,
) -> torch.Tensor:
    """Gemma-2's attention: scores are capped by a tanh, which no kernel of torch computes, so written out."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.tanh(query @ key.transpose(-1, -2) * scale / softcap) * softcap
    length = query.shape[2]
    visible = _window_mask(length, length if window is None else window, query.device)
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype) @ value


@contextmanager
def forced(kernel: Attention) -> Iterator[None]:
    """Let torch use only ``kernel`` within the block; 'auto' leaves it the choice."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    global _forced
    if kernel == "auto":
        yield
        return
    _forced = kernel
    backend = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
        "math": SDPBackend.MATH,
    }[kernel]
    try:
        with sdpa_kernel(backend):
            yield
    finally:
        _forced = "auto"


def available(device: Device, dtype: torch.dtype, head_dim: int) -> dict[str, str]:
    """Kernel -> '' when a small forward and backward pass ran on ``device``, else why not."""
    import warnings

    found: dict[str, str] = {}
    for kernel in KERNELS:
        shape = (1, 2, 16, head_dim)
        here = device.torch_device()
        q, k, v = (torch.randn(shape, device=here, dtype=dtype, requires_grad=True) for _ in range(3))
        try:
            with forced(kernel), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch explains at length; the error's first line will do
                F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()  # type: ignore[no-untyped-call]
        except (RuntimeError, NotImplementedError) as error:
            found[kernel] = str(error).splitlines()[0].rstrip(".")
        else:
            found[kernel] = ""
    return found


def check(kernel: Attention, device: Device, dtype: torch.dtype, head_dim: int, softcap: float | None) -> None:
    """Raise ``UserError`` when ``kernel`` cannot be had for this model here; it names those that can."""
    if kernel == "auto":
        return
    if softcap is not None and kernel != "math":
        raise UserError(
            f"This model caps its attention scores ({softcap:g}), which the {kernel} kernel cannot compute.",
            "Available: math.",
        )
    found = available(device, dtype, head_dim)
    if found[kernel]:
        usable = [name for name, reason in found.items() if not reason]
        raise UserError(
            f"The {kernel} attention kernel is not available on {device.NAME} in {dtype}: {found[kernel]}.",
            f"Available: {', '.join(usable)}.",
        )
